"""What models write and raise, kept up to a bound, thread by thread, without secrets."""
# ruff: noqa: T201  (what is tested is what `print` does)

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.manifest.references import mask_of, secret_values
from headwater.manifest.spec import PipelineSpec
from headwater.runtime.user_output import UserOutput
from headwater.spark.user_code import PythonCode, SqlCode
from headwater.spark.user_errors import exception_text


def test_output_of_a_thread_is_kept_and_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout, sys.stderr
    output = UserOutput()
    with output.captured():
        print("to stdout", 1)
        print("to stderr", file=sys.stderr)
        sys.stdout.write("no end of line")
    print("not captured")
    assert output.text() == "to stdout 1\nto stderr\nno end of line\n"
    assert capsys.readouterr() == ("not captured\n", output.text())
    assert (sys.stdout, sys.stderr) == before


def test_threads_that_write_at_once_keep_their_output_apart() -> None:
    barrier = threading.Barrier(4)
    outputs = {name: UserOutput() for name in "abcd"}

    def run(name: str) -> None:
        with outputs[name].captured():
            barrier.wait()
            for number in range(50):
                print(name, number)
            barrier.wait()

    threads = [threading.Thread(target=run, args=(name,)) for name in outputs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, output in outputs.items():
        assert output.text() == "".join(f"{name} {number}\n" for number in range(50))


def test_the_beginning_and_the_end_of_much_output_are_kept() -> None:
    output = UserOutput()
    with output.captured():
        for number in range(20_000):
            print(f"line {number:06}")
        print("x" * 1_000_000, end="")
    text = output.text()
    assert len(text.encode()) < limits.RUN_OUTPUT_BYTES + 100
    assert text.startswith("line 000000\n") and text.endswith("xxx\n")
    assert "bytes left out ..." in text


def test_secrets_are_masked_in_what_is_kept_and_in_what_is_passed_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "key.pem").write_text("BEGIN KEY\nbase64base64\nEND KEY\n")
    spec = PipelineSpec.model_validate(
        {
            "id": "crm",
            "source": {"connector": "postgres", "config": {"url": "env:CRM", "key": "file:key.pem", "n": 1}},
            "tables": ["t"],
            "secrets": ["CRM", "UNSET", "QUOTED"],
        }
    )
    values = secret_values([spec], {"CRM": "hunter2", "QUOTED": 'a"b\\c', "OTHER": "fine"}, tmp_path)
    assert values == {"hunter2", 'a"b\\c', "BEGIN KEY\nbase64base64\nEND KEY"}
    output = UserOutput(mask_of(values))
    with output.captured():
        print("password=hunter2;", {"q": 'a"b\\c'}, "fine")
        print((tmp_path / "key.pem").read_text())
    assert output.text().splitlines()[0] == "password=***; {'q': '***'} fine"
    for text in (output.text(), capsys.readouterr().err):
        assert "hunter2" not in text and "base64" not in text and 'a"b' not in text


def test_a_secret_is_masked_where_a_long_line_is_cut() -> None:
    output = UserOutput(mask_of(["hunter2" * 10]))
    with output.captured():
        for _ in range(200):
            print("hunter2" * 10, "x" * 97, end="")
    assert output.text().count("x") == 200 * 97
    assert "hunter2" not in output.text()


MODEL = """\
def inner(rows):
    return {"a": rows}["b"]

def make(rows):
    return inner(rows)
"""


def test_an_exception_is_told_with_the_lines_of_the_users_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "models" / "weather.py"
    path.parent.mkdir()
    path.write_text(MODEL)
    scope: dict[str, object] = {}
    exec(compile(MODEL, str(path), "exec"), scope)
    error = HeadwaterError("HW-R01", "`weather` failed")
    try:
        scope["make"](1)  # type: ignore[operator]
    except KeyError as cause:
        error.__cause__ = cause
    code = PythonCode(path, "make", "models/weather.py")
    said, lines = exception_text(code, error)
    assert said == "KeyError: 'b'"
    assert lines == (
        'models/weather.py:5 in make\n  return inner(rows)\nmodels/weather.py:2 in inner\n  return {"a": rows}["b"]'
    )
    assert exception_text(SqlCode("select 1"), error) == ("KeyError: 'b'", "")
    assert exception_text(code, HeadwaterError("HW-R01", "it returned nothing")) == ("", "")
