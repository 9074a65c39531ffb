"""Commands as processes of their own: on a terminal, and before a reader that goes away. No JVM."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

HEADWATER = [sys.executable, "-c", "from headwater.interfaces.cli.main import run; run()"]
INTERRUPTS = 20
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, *arguments: str | Path, environment: dict[str, str] | None = None):
        self.master, slave = pty.openpty()
        plain = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
        self.child = subprocess.Popen(
            [*HEADWATER, *map(str, arguments)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**plain, "TERM": "xterm", **(environment or {})},
            start_new_session=True,
        )
        os.close(slave)
        self.shown = ""

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def read_until(self, text: str, times: int = 1) -> None:
        while self.shown.count(text) < times:
            assert self._read(), f"ended without `{text}`: {self.shown}"

    def interrupt(self) -> int:
        """Ctrl-C, again and again as a person would: a signal between the prompt and the wait for a key is not
        noticed before the next one."""
        for _ in range(INTERRUPTS):
            self.child.send_signal(signal.SIGINT)
            while select.select([self.master], [], [], 3)[0]:
                if not self._read() or "interrupted" in self.shown:
                    return self.end()
        self.child.kill()
        raise AssertionError(f"goes on after {INTERRUPTS} interrupts: {self.shown}")

    def end(self) -> int:
        """The exit code, when all has been read."""
        while self._read():
            pass
        os.close(self.master)
        return self.child.wait()

    def _read(self) -> bool:
        select.select([self.master], [], [])
        try:
            data = os.read(self.master, 65_536)
        except OSError:  # the other side is closed
            return False
        self.shown += data.decode()
        return bool(data)


def test_query_is_interactive_on_a_terminal(landed: Path) -> None:
    terminal = Terminal("--project", landed, "query")
    # What is typed before the prompt is there meets a terminal in another mode, so every prompt is waited for.
    terminal.read_until("headwater> ")
    terminal.type("SELECT sum(id) AS total\n")
    terminal.read_until("        -> ")
    terminal.type("FROM orders;\n")
    terminal.read_until("headwater> ", times=2)
    terminal.type("SELECT nothing;\n")
    terminal.read_until("headwater> ", times=3)
    terminal.type("FROM headwater.tables SELECT name;\n")
    terminal.read_until("headwater> ", times=4)
    terminal.type("\x04")
    assert terminal.end() == 0
    assert "error[HW-Q01]" in terminal.shown
    assert "------" in terminal.shown
    assert "3" in terminal.shown.split("total", 2)[2]


def test_ctrl_c_ends_with_130(landed: Path) -> None:
    terminal = Terminal("--project", landed, "query")
    terminal.read_until("headwater> ")
    assert terminal.interrupt() == 130
    assert "interrupted" in terminal.shown


def test_colour_is_for_terminals_that_want_it() -> None:
    for environment, is_coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        terminal = Terminal("plam", environment=environment)
        assert terminal.end() == 2
        assert "error[HW-U01]" in terminal.shown
        assert (COLOUR.search(terminal.shown) is not None) is is_coloured


def test_a_reader_that_goes_away_is_no_error(landed: Path) -> None:
    child = subprocess.Popen(
        [*HEADWATER, "--project", landed, "query", "SELECT range FROM range(50000)", "--format", "csv"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdout is not None and child.stderr is not None
    assert child.stdout.readline() == b"range\n"
    child.stdout.close()
    assert child.stderr.read() == b""
    assert child.wait() == 0
