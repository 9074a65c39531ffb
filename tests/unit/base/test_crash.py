from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import headwater
from headwater.base.crash import POINTS, crash_point

SOURCE = Path(headwater.__file__).parent
USED = re.compile(r'(?:crash_point\(|torn=)"([^"]+)"')


def test_every_crash_point_is_in_the_source_and_every_one_in_the_source_is_listed() -> None:
    found = {name for path in SOURCE.rglob("*.py") for name in USED.findall(path.read_text())}
    assert found == set(POINTS)


def run(point: str, armed: str | None) -> int:
    script = f"from headwater.base.crash import crash_point; crash_point({point!r})"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADWATER_")}
    if armed is not None:
        environment["HEADWATER_CRASH_AT"] = armed
    return subprocess.run([sys.executable, "-c", script], env=environment, check=False).returncode


def test_an_armed_point_ends_the_process_as_a_power_cut_would() -> None:
    assert run("commit.inside", "commit.inside") == -signal.SIGKILL
    assert run("commit.inside", "commit.after") == 0


def test_a_paused_point_stops_once_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    stops: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, sent: stops.append((pid, sent)))
    monkeypatch.setenv("HEADWATER_CRASH_AT", "commit.inside:pause")
    crash_point("commit.after")
    crash_point("commit.inside")
    crash_point("commit.inside")
    assert stops == [(os.getpid(), signal.SIGSTOP)]


def test_a_point_that_is_not_listed_is_found_as_soon_as_one_is_armed(monkeypatch: pytest.MonkeyPatch) -> None:
    crash_point("no.such.point")
    monkeypatch.setenv("HEADWATER_CRASH_AT", "commit.inside")
    with pytest.raises(AssertionError):
        crash_point("no.such.point")
