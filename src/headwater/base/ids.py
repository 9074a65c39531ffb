"""Ids: UUIDv7 for what happens (runs, commits, jobs), checked names for what users name."""

from __future__ import annotations

import os
import re
import threading
import time
from typing import NewType

from headwater.base import limits

RunId = NewType("RunId", str)
UnitId = NewType("UnitId", str)
NodeId = NewType("NodeId", str)

TABLE_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
TABLE_NAME_HINT = "small letters, digits and `_`, at most 63 of them, and no digit first"
PIPELINE_ID = re.compile(r"[a-z_][a-z0-9_-]{0,62}")
TRIGGER_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,62}")
"""The name that a user gives to a trigger."""
RESCUED = "_rescued"
RESERVED_COLUMNS = frozenset(
    {"_run_id", "_ingested_at", "_commit_seq", "_content_hash", "_source_id", "_source_pos", RESCUED}
)
RESERVED_PREFIX = "_hw_"
RESERVED_TABLES = frozenset({"_dead_letters"})
"""Names that no pipeline or table of a user can have."""

_lock = threading.Lock()
_last_ms = 0
_counter = 0


def uuid7() -> str:
    """A UUIDv7 (RFC 9562). Ids sort by the time they were made, also within one millisecond of one process."""
    global _last_ms, _counter
    with _lock:
        now_ms = time.time_ns() // 1_000_000
        if now_ms > _last_ms:
            _last_ms, _counter = now_ms, int.from_bytes(os.urandom(2), "big") & 0x7FF
        else:
            _counter += 1
            if _counter > 0xFFF:
                _last_ms, _counter = _last_ms + 1, 0
        ms, counter = _last_ms, _counter
    tail = int.from_bytes(os.urandom(8), "big") & ((1 << 62) - 1)
    value = (ms << 80) | (0x7 << 76) | (counter << 64) | (0b10 << 62) | tail
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def is_table_name(name: str) -> bool:
    return TABLE_NAME.fullmatch(name) is not None


def is_pipeline_id(name: str) -> bool:
    return PIPELINE_ID.fullmatch(name) is not None


def is_trigger_id(name: str) -> bool:
    return TRIGGER_ID.fullmatch(name) is not None


def is_reserved_column(name: str) -> bool:
    return name in RESERVED_COLUMNS or name.startswith(RESERVED_PREFIX)


def is_column_name(name: str) -> bool:
    """Column names come from the source: anything printable that is not reserved; generated SQL quotes them."""
    return 0 < len(name.encode()) <= 255 and name.isprintable() and not is_reserved_column(name)


assert limits.NAME_BYTES == limits.TRIGGER_ID_BYTES == 63, "the patterns above say 63"
