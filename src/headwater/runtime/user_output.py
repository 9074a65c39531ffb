"""What a model writes to stdout and stderr while it runs: kept up to a bound, and passed on to stderr.

It is captured from the thread that runs the model, whatever other threads write at the same time; threads that the
model starts are not captured. Stdout is for the answers of commands, so both streams go to stderr, line by line.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from headwater.base import limits

Mask = Callable[[str], str]

_current: ContextVar[UserOutput | None] = ContextVar("user_output", default=None)
_lock = threading.Lock()
_routed = 0


class UserOutput:
    """The output of one execution. `mask` hides secrets in a line before it is kept or passed on."""

    def __init__(self, mask: Mask = lambda text: text):
        self._mask = mask
        self._pending = ""
        self._head: list[str] = []
        self._tail: deque[str] = deque()
        self._head_bytes = self._tail_bytes = self._left_out = 0
        self._passed_on: Any = None

    @contextmanager
    def captured(self) -> Iterator[None]:
        """Capture what this thread writes inside the block."""
        with _routing() as stderr:
            self._passed_on = stderr
            token = _current.set(self)
            try:
                yield
            finally:
                _current.reset(token)
                self._end_line()

    def write(self, text: str) -> None:
        lines = (self._pending + text).split("\n")
        self._pending = lines.pop()
        for line in lines:
            self._keep(line)
        if len(self._pending) > limits.OUTPUT_LINE_CHARACTERS:
            # Text that may be the beginning of a secret waits for its end.
            whole = self._mask(self._pending)
            self._keep(whole[: -limits.SECRET_CHARACTERS])
            self._pending = whole[-limits.SECRET_CHARACTERS :]

    def text(self) -> str:
        """The kept output: all of it, or its beginning and its end."""
        self._end_line()
        between = [f"... {self._left_out:,} bytes left out ...\n"] if self._left_out else []
        return "".join([*self._head, *between, *self._tail])

    def _end_line(self) -> None:
        if self._pending:
            self._keep(self._pending)
            self._pending = ""

    def _keep(self, line: str) -> None:
        text = self._mask(line) + "\n"
        if self._passed_on is not None:
            self._passed_on.write(text)
        half, size = limits.RUN_OUTPUT_BYTES // 2, len(text.encode(errors="replace"))
        if not self._tail and self._head_bytes + size <= half:
            self._head.append(text)
            self._head_bytes += size
            return
        self._tail.append(text)
        self._tail_bytes += size
        while self._tail_bytes > half:
            gone = len(self._tail.popleft().encode(errors="replace"))
            self._tail_bytes -= gone
            self._left_out += gone


class _Routed:
    """Passes what a capturing thread writes to its `UserOutput`, and everything else to the stream behind it."""

    def __init__(self, stream: Any):
        self.behind = stream

    def write(self, text: str) -> int:
        captured = _current.get()
        if captured is None:
            return int(self.behind.write(text))
        captured.write(text)
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.behind, name)


@contextmanager
def _routing() -> Iterator[Any]:
    """Route both streams while anything is captured; yields the stderr behind."""
    global _routed
    with _lock:
        if not _routed:
            sys.stdout, sys.stderr = _Routed(sys.stdout), _Routed(sys.stderr)
        _routed += 1
        stderr = sys.stderr.behind if isinstance(sys.stderr, _Routed) else sys.stderr
    try:
        yield stderr
    finally:
        with _lock:
            _routed -= 1
            if not _routed:
                sys.stdout, sys.stderr = _behind(sys.stdout), _behind(sys.stderr)


def _behind(stream: Any) -> Any:
    return stream.behind if isinstance(stream, _Routed) else stream
