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


def child(script: str, armed: str | None) -> subprocess.Popen[bytes]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADWATER_")}
    if armed is not None:
        environment["HEADWATER_CRASH_AT"] = armed
    whole = f"from headwater.base.crash import crash_point\n{script}"
    return subprocess.Popen([sys.executable, "-c", whole], env=environment)


def ended(point: str, armed: str | None) -> int:
    return child(f"crash_point({point!r})", armed).wait()


def test_an_armed_point_ends_the_process_as_a_power_cut_would() -> None:
    assert ended("commit.inside", "commit.inside") == -signal.SIGKILL
    assert ended("commit.inside", "commit.after") == 0


def test_a_number_says_which_pass_is_meant() -> None:
    twice = "crash_point('commit.inside'); crash_point('commit.inside')"
    assert child(twice, "commit.inside@2").wait() == -signal.SIGKILL
    assert child(twice, "commit.inside@3").wait() == 0


def test_a_paused_point_stops_once_and_goes_on() -> None:
    process = child("crash_point('commit.inside'); crash_point('commit.inside')", "commit.inside:pause")
    try:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status) and os.WSTOPSIG(status) == signal.SIGSTOP
        process.send_signal(signal.SIGCONT)
        assert process.wait() == 0
    finally:
        process.kill()


def test_a_point_that_is_not_listed_is_found_as_soon_as_one_is_armed(monkeypatch: pytest.MonkeyPatch) -> None:
    crash_point("no.such.point")
    monkeypatch.setenv("HEADWATER_CRASH_AT", "commit.inside")
    with pytest.raises(AssertionError):
        crash_point("no.such.point")
