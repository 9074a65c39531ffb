"""`headwater simulate`: a table for people, an object for programs, a picture in a file."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headwater.base import limits
from headwater.interfaces.cli.main import main

Say = Callable[..., tuple[int, str, str]]

CHAIN: dict[str, Any] = {
    "pipelines": {
        "orders": {"ripples": {"read": {"seconds": 1}}},
        "daily": {"sources": ["orders"], "ripples": {"sum": {"seconds": 2.5}}},
    },
    "events": [{"at": 0, "do": "pulse", "pipeline": "daily"}],
}


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    def call(*arguments: str | Path) -> tuple[int, str, str]:
        code = main(["simulate", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    path = tmp_path / "chain.json"
    path.write_text(json.dumps(CHAIN))
    return path


def written(path: Path, **changes: Any) -> Path:
    path.write_text(json.dumps(CHAIN | changes))
    return path


def test_the_table_says_what_ran_and_the_timeline_when(chain: Path, say: Say) -> None:
    code, out, err = say(chain)
    assert (code, err) == (0, "")
    pipelines, timeline = out.split("\n\n")
    assert [line.split() for line in pipelines.splitlines()[2:]] == [
        ["orders", "idle", "1", "0", "0", "0", "0", "2.25", "3.5"],
        ["daily", "idle", "1", "0", "0", "0", "0", "3.5", "3.5"],
    ]
    assert [line.split(maxsplit=2) for line in timeline.splitlines()[2:]] == [
        ["0", "daily", "pulse, at least as fresh as 0"],
        ["0", "orders", "run started (freshness 0)"],
        ["0", "orders", "read started (freshness 0)"],
        ["1", "orders", "read completed (freshness 0)"],
        ["1", "orders", "run completed (freshness 0)"],
        ["1", "daily", "run started (freshness 0)"],
        ["1", "daily", "sum started (freshness 0)"],
        ["3.5", "daily", "sum completed (freshness 0)"],
        ["3.5", "daily", "run completed (freshness 0)"],
    ]


def test_failures_retries_and_refusals_are_told(tmp_path: Path, say: Say) -> None:
    pipelines = {**CHAIN["pipelines"], "orders": {**CHAIN["pipelines"]["orders"], "retry": {"immediately": 1}}}
    events = [
        {"at": 0, "do": "tap", "pipeline": "daily"},
        {"at": 0, "do": "fail", "pipeline": "orders", "times": 2},
        {"at": 9, "do": "tap", "pipeline": "daily"},
    ]
    _, out, _ = say(written(tmp_path / "fault.json", pipelines=pipelines, events=events))
    told = [line.split(maxsplit=2)[2] for line in out.split("\n\n")[1].splitlines()[2:]]
    assert "read started, attempt 2 (freshness 0)" in told
    assert told[-4:] == ["run failed (freshness 0)", "blocked", "blocked", "tap refused: `orders` has failed"]
    assert out.splitlines()[3].split() == ["daily", "blocked", "0", "0", "0", "0", "-", "-", "-"]


def test_a_long_timeline_is_cut_and_says_so(tmp_path: Path, say: Say) -> None:
    path = written(tmp_path / "long.json", events=[{"at": 0, "do": "wave", "pipeline": "daily"}], until=1000)
    code, out, err = say(path)
    assert code == 0
    assert len(out.split("\n\n")[1].splitlines()) == limits.TIMELINE_SHOWN + 2
    whole = json.loads(say(path, "--json")[1])["timeline"]
    assert f"{len(whole) - limits.TIMELINE_SHOWN:,} lines left out of the timeline" in err


def test_json_is_the_whole_answer(chain: Path, say: Say) -> None:
    code, out, err = say(chain, "--json")
    assert (code, err) == (0, "")
    answer = json.loads(out)
    assert list(answer) == ["schema_version", "pipelines", "timeline"]
    assert answer["pipelines"]["daily"] == {
        "runs": 1,
        "passes": 0,
        "failures": 0,
        "waste": 0,
        "start_freshness": 0.0,
        "end_freshness": 0.0,
        "delay": 0.0,
        "pull": False,
        "targets": [],
        "state": "idle",
        "staleness": {"mean": 3.5, "max": 3.5},
        "completions": [3.5],
        "ripples": {"sum": {"starts": 1, "completions": 1}},
    }
    assert answer["timeline"][0] == {
        "at": 0.0,
        "event": "demand",
        "pipeline": "daily",
        "kind": "pulse",
        "target": 0.0,
    }


def test_svg_writes_a_picture_named_after_the_file(chain: Path, tmp_path: Path, say: Say) -> None:
    picture = tmp_path / "picture.svg"
    picture.write_text("what was there before")
    code, out, err = say(chain, "--svg", picture)
    assert (code, err) == (0, f"wrote {picture}\n")
    assert out.startswith("pipeline")
    root = ET.fromstring(picture.read_text())
    assert root[0].text == "chain"
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["chain.json", "picture.svg"], "nothing is left over"


def test_a_link_to_a_picture_stays_a_link(chain: Path, tmp_path: Path, say: Say) -> None:
    picture, link = tmp_path / "picture.svg", tmp_path / "link.svg"
    link.symlink_to(picture)
    assert say(chain, "--svg", link)[0] == 0
    assert link.is_symlink() and picture.read_text().startswith("<svg ")


def test_a_picture_that_cannot_be_written_is_said_before_anything_runs(chain: Path, tmp_path: Path, say: Say) -> None:
    for target, reason in ((tmp_path / "no" / "x.svg", "there is no directory"), (tmp_path, "it is not a file")):
        code, out, err = say(chain, "--svg", target)
        assert (code, out) == (2, "")
        assert err.startswith(f"error[HW-U01]: cannot write `{target}`: {reason}")


def test_a_wrong_file_is_invalid_input(tmp_path: Path, say: Say) -> None:
    path = written(tmp_path / "wrong.json", untill=3, events=[{"at": 0, "do": "tap", "pipeline": "dayly"}])
    code, out, err = say(path)
    assert (code, out) == (3, "")
    assert err.count("error[HW-M13]: ") == 2
    assert f"  {path}:1:" in err
    assert "hint: did you mean `daily`?" in err
    code, out, _ = say(path, "--json")
    error = json.loads(out)["error"]
    assert (code, error["code"], error["message"]) == (3, "HW-M13", "2 errors in the scenario")
    assert [inner["code"] for inner in error["detail"]["errors"]] == ["HW-M13", "HW-M13"]
