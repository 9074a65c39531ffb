"""A scenario file that cannot be simulated is answered with everything that is wrong with it, line by line."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.app.read_scenario import read_scenario
from headwater.app.simulate import simulate_file
from headwater.base import limits
from headwater.base.errors import ErrorList, Exit, HeadwaterError

GOOD = """\
{"pipelines": {"orders": {"ripples": {"read": {"seconds": 1}}}},
 "events": [{"at": 0, "do": "tap", "pipeline": "orders"}]}
"""

REFUSED: dict[str, tuple[str, str, str]] = {
    # what             the text, its first place, a part of the message
    "an empty file": ("", "1:1", "is empty"),
    "a comma too many": ('{"pipelines": {},\n}', "1:17", "not valid JSON: a comma before the `}`"),
    "a comment": ('{\n  // a comment\n "pipelines": {}}', "2:3", "not valid JSON: a comment"),
    "a text without quotes": ('{"pipelines": {A: {}}}', "1:16", "a key in double quotes is expected"),
    "NaN": ('{"until": NaN}', "1:11", "`NaN` is not a number in JSON"),
    "a file that breaks off": ('{"pipelines": {"A": {', "1:22", "the file ends before the `}`"),
    "a key twice": ('{"until": 1,\n "until": 2}', "1:2", "the key `until` occurs twice"),
    "a number too long": (f'{{"until": {"9" * 5000}}}', "", "a number that is too long"),
    "a number that is not finite": (GOOD.replace('"seconds": 1', '"seconds": 1e999'), "1:59", "not a finite number"),
    "a list": ("[]", "", "a scenario is an object, not a list"),
    "a wrong value": (GOOD.replace('"seconds": 1', '"seconds": "1"'), "1:59", "must be a number of seconds"),
    "a wrong key": (GOOD.replace('"events"', '"evnts"'), "2:2", "unknown key `evnts`"),
    "a missing key": (GOOD.replace('"seconds": 1', ""), "1:47", "seconds` is missing"),
    "a wrong item": (GOOD.replace('"at": 0', '"at": null'), "2:20", "must be a number of seconds, not null"),
    "a byte order mark before a wrong key": ('\ufeff{"pipes": {}, "pipelines": {}}', "1:2", "unknown key `pipes`"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_mistake_has_its_line_and_column(what: str, tmp_path: Path) -> None:
    text, place, message = REFUSED[what]
    path = tmp_path / "scenario.json"
    path.write_text(text)
    with pytest.raises(HeadwaterError) as raised:
        read_scenario(path)
    first = raised.value.errors[0] if isinstance(raised.value, ErrorList) else raised.value
    assert (first.code, first.exit_code) == ("HW-M13", Exit.INVALID)
    assert message in first.message
    assert str(first.places[0]) == f"{path}:{place}".removesuffix(":")


def test_all_mistakes_come_together_in_the_order_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "scenario.json"
    path.write_text(
        '{"events": [{"at": 0, "do": "tap", "pipeline": "orders"}],\n'
        ' "pipelines": {\n  "a": {"sources": ["b"], "ripples": {"r": {"seconds": 1}}},\n'
        '  "b": {"sources": ["a"], "ripples": {}}\n }}\n'
    )
    with pytest.raises(ErrorList) as raised:
        read_scenario(path)
    assert (raised.value.code, raised.value.message) == ("HW-M13", "3 errors in the scenario")
    places = [[f"{place.line}:{place.column}" for place in error.places] for error in raised.value.errors]
    assert places == [["1:48"], ["3:21", "4:21"], ["4:38"]]
    assert pickle.loads(pickle.dumps(raised.value)).as_json() == raised.value.as_json()


def test_a_file_that_is_not_there_names_the_one_that_was_meant(tmp_path: Path) -> None:
    (tmp_path / "bottleneck.json").write_text(GOOD)
    with pytest.raises(HeadwaterError) as raised:
        read_scenario(tmp_path / "botleneck.json")
    assert "No such file" in raised.value.message
    assert raised.value.hint == f"did you mean `{tmp_path / 'bottleneck.json'}`?"
    with pytest.raises(HeadwaterError) as raised:
        read_scenario(tmp_path / "something-else.json")
    assert raised.value.hint == ""


def test_what_is_no_file_of_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HeadwaterError, match="Is a directory"):
        read_scenario(tmp_path)
    (tmp_path / "latin").write_bytes(GOOD.replace("orders", "b\xfccher").encode("latin-1"))
    with pytest.raises(HeadwaterError, match="is not UTF-8 text") as raised:
        read_scenario(tmp_path / "latin")
    assert (raised.value.places[0].line, raised.value.places[0].column) == (1, 18)
    with open(tmp_path / "large", "wb") as file:
        file.truncate(limits.SCENARIO_BYTES + 1)
    with pytest.raises(HeadwaterError, match="larger than 64 MiB"):
        read_scenario(tmp_path / "large")


@pytest.mark.parametrize("depth", [300, 100_000])
def test_deep_nesting_is_an_error_and_no_crash(depth: int, tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    path.write_text(f'{{"pipelines": {"[" * depth}{"]" * depth}}}')
    with pytest.raises(HeadwaterError) as raised:
        read_scenario(path)
    assert raised.value.code == "HW-M13"


def test_a_scenario_without_an_end_in_reach_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.base.limits.SIMULATION_STEPS", 1_000)
    path = tmp_path / "loop.json"
    path.write_text(
        '{"pipelines": {"a": {"ripples": {"r": {"seconds": 0}}}},'
        ' "events": [{"at": 0, "do": "wave", "pipeline": "a"}], "until": 60}'
    )
    with pytest.raises(HeadwaterError, match="is not over after 1000 steps") as raised:
        simulate_file(path)
    assert raised.value.code == "HW-M13"


def test_a_good_file_is_simulated(tmp_path: Path) -> None:
    path = tmp_path / "good"
    path.write_text("\ufeff" + GOOD)
    found = simulate_file(path)
    assert found.scenario.pipelines[0].name == "orders"
    assert found.answer["pipelines"]["orders"]["completions"] == [1.0]


def test_simulating_imports_nothing_heavy(tmp_path: Path) -> None:
    (tmp_path / "good.json").write_text(GOOD)
    (tmp_path / "bad.json").write_text(GOOD.replace("tap", "tapp"))
    program = (
        "import sys; from pathlib import Path\n"
        "from headwater.app.simulate import simulate_file\n"
        "from headwater.base.errors import HeadwaterError\n"
        "from headwater.interfaces.timeline_svg import timeline_svg\n"
        "found = simulate_file(Path('good.json')); timeline_svg(found)\n"
        "try: simulate_file(Path('bad.json'))\n"
        "except HeadwaterError: pass\n"
        "heavy = ('sqlalchemy', 'pyspark', 'pyarrow', 'duckdb', 'numpy', 'typer')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
