"""Answers as JSON: one form for the command line and for HTTP."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from headwater.base.json_form import plain

SCHEMA_VERSION = 1
BATCH = ("snapshot_id", "rows_ingested", "rows_refused", "bytes_written", "replayed")


def batch_json(accepted: object) -> dict[str, Any]:
    """The answer for a pushed batch."""
    return {name: getattr(accepted, name) for name in BATCH}


def answer_text(value: Mapping[str, Any], *, indent: int | None = 2) -> str:
    """One JSON object with the version of its form."""
    return json.dumps({"schema_version": SCHEMA_VERSION, **value}, indent=indent, default=plain, ensure_ascii=False)
