"""Errors of a long-running process itself: they are reported, and do not end it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from headwater.base import limits
from headwater.base.errors import HeadwaterError, as_headwater


class ServiceErrors:
    """Reports errors; a repeated one, while a catalog is unreachable, once a minute. Any thread may call it."""

    def __init__(self, tell: Callable[[HeadwaterError], None]):
        self._tell = tell
        self._lock = threading.Lock()
        self._said_at: dict[str, float] = {}

    def __call__(self, error: BaseException) -> bool:
        """Report the error. True if the calling thread should go on."""
        told = as_headwater(error)
        with self._lock:
            now = time.monotonic()
            is_new = told.message not in self._said_at or now >= self._said_at[told.message] + limits.SWEEP_SECONDS
            if is_new:
                self._said_at = {text: at for text, at in self._said_at.items() if at + limits.SWEEP_SECONDS > now}
                self._said_at[told.message] = now
        if is_new:
            self._tell(told)
        return isinstance(error, Exception)
