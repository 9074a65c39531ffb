"""Time: UTC only, in microseconds since the epoch. It is read in one place so that tests can shift it."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def now_us() -> int:
    """Microseconds since the epoch. `HEADWATER_CLOCK_OFFSET_US` shifts it, for tests of leases and retention."""
    return time.time_ns() // 1000 + int(os.environ.get("HEADWATER_CLOCK_OFFSET_US", "0"))


def to_text(us: int) -> str:
    """RFC 3339 in UTC with microseconds, the form of every time that Headwater writes as text."""
    return (_EPOCH + timedelta(microseconds=us)).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def from_text(text: str) -> int:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1)
