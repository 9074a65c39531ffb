"""Every kind of error of a manifest, word for word, from the case files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwater.base.errors import HeadwaterError
from headwater.manifest.load import find_project, load_project
from unit.manifest.cases import all_cases, run_case

CASES = all_cases()


@pytest.mark.parametrize("case", CASES, ids=[case["claim"].replace(" ", "_") for case in CASES])
def test_a_wrong_manifest_is_refused_in_these_words(case: dict[str, Any]) -> None:
    assert run_case(case).splitlines() == case["errors"]


def test_no_message_shows_the_secret_of_any_case() -> None:
    assert all("hunter2" not in line for case in CASES for line in case["errors"])
    assert sum("hunter2" in str(case["files"]) for case in CASES) >= 8


def test_every_error_has_a_place() -> None:
    for case in CASES:
        starts = [index for index, line in enumerate(case["errors"]) if line.startswith("error[")]
        assert starts, case["claim"]
        assert all(case["errors"][index + 1].startswith("  ") for index in starts), case["claim"]


def test_nesting_that_would_exhaust_the_stack_is_refused(tmp_path: Path) -> None:
    (tmp_path / "headwater.toml").write_text("")
    (tmp_path / "pipelines").mkdir()
    for file, text in (("a.json", '{"id": ' + "[" * 100_000 + "]" * 100_000 + "}"), ("b.toml", "id = " + "[" * 50_000)):
        (tmp_path / "pipelines" / file).write_text(text)
        with pytest.raises(HeadwaterError) as caught:
            load_project(tmp_path, connectors=(), environ={})
        assert caught.value.code in ("HW-M02", "HW-M03")
        (tmp_path / "pipelines" / file).unlink()


@pytest.mark.parametrize(("suffix", "text"), [("toml", "junk junk"), ("toml", ""), ("json", "junk"), ("json", "")])
def test_a_line_break_in_the_name_of_a_file_is_an_escape(tmp_path: Path, suffix: str, text: str) -> None:
    (tmp_path / "headwater.toml").write_text("")
    (tmp_path / "pipelines").mkdir()
    (tmp_path / f"pipelines/y\nerror[HW-X99]: fake.{suffix}").write_text(text)
    with pytest.raises(HeadwaterError) as caught:
        load_project(tmp_path, connectors=(), environ={})
    assert caught.value.message.startswith(rf"`pipelines/y\nerror[HW-X99]: fake.{suffix}` is ")


def test_without_a_project_the_hint_is_init(tmp_path: Path) -> None:
    with pytest.raises(HeadwaterError) as caught:
        find_project(tmp_path)
    assert caught.value.code == "HW-M01"
    assert "headwater init" in caught.value.hint


def test_a_project_is_found_from_below(tmp_path: Path) -> None:
    (tmp_path / "headwater.toml").write_text("")
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert find_project(tmp_path / "a" / "b") == tmp_path.resolve()


def test_an_unknown_pipeline_has_the_nearest_one(tmp_path: Path) -> None:
    (tmp_path / "headwater.toml").write_text(
        '[[pipeline]]\nid = "orders"\nsource = { connector = "x" }\ntables = ["t"]\n'
    )
    project = load_project(tmp_path, connectors={"x"}, environ={})
    assert project.pipeline("orders").spec.id == "orders"
    with pytest.raises(HeadwaterError) as caught:
        project.pipeline("ordres")
    assert (caught.value.code, caught.value.hint) == ("HW-M11", "did you mean `orders`?")
