"""Windows of an Inlet: when it may poll its source, and until when what it reads counts as fresh.

Between `start` (inclusive) and `end` (exclusive) of a window the Inlet may run once; its freshness is the window's
end, its delay D the window's length. The caller that makes the iterator handles calendars and time zones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator


class Windows:
    """Windows in ascending order, read from an iterator as far as needed; it may be endless.

    Engine time never goes back, so windows that have ended are forgotten.
    """

    __slots__ = ("_ahead", "_rest")

    def __init__(self, windows: Iterable[tuple[int, int]]) -> None:
        self._rest: Iterator[tuple[int, int]] = iter(windows)
        self._ahead: deque[tuple[int, int]] = deque()

    def current(self, now: int) -> tuple[int, int] | None:
        """The window with start <= now < end."""
        while self._ahead or self._read():
            start, end = self._ahead[0]
            if end > now:
                return (start, end) if start <= now else None
            self._ahead.popleft()
        return None

    def next_start(self, now: int, until_at_least: int) -> int | None:
        """When the next window after now opens whose end is `until_at_least` or later."""
        self.current(now)  # forgets the windows that have ended
        index = 0
        while index < len(self._ahead) or self._read():
            start, end = self._ahead[index]
            if start > now and end >= until_at_least:
                return start
            index += 1
        return None

    def _read(self) -> bool:
        window = next(self._rest, None)
        if window is None:
            return False
        start, end = window
        if start >= end or (self._ahead and start < self._ahead[-1][1]):
            raise ValueError(f"window {window} is empty or overlaps the one before it")
        self._ahead.append(window)
        return True
