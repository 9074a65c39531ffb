"""Child processes for tests: sessions that start, end or die must not be the one of the test run."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

WAIT_SECONDS = 180
"""How long a test waits for something that must come; the test fails after that."""


def python(code: str, *arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """A Python that runs `code`, with pipes to all of its streams."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, **(environment or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,
    )


def die_with_parent() -> None:
    """Runs in a new child: a test run that fails or is killed leaves no process behind."""
    death_signal_option = 1
    ctypes.CDLL(None).prctl(death_signal_option, signal.SIGKILL)


def finished(child: subprocess.Popen[str]) -> tuple[str, str]:
    """What a child said on stdout and stderr; it must end well."""
    out, err = child.communicate(timeout=WAIT_SECONDS)
    assert child.returncode == 0, err
    return out, err


def running(pid: int) -> bool:
    """True while a process is alive; a zombie is not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def wait_until(fact: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not fact():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.02)
