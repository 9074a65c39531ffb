"""JSON as the catalog keeps it: text, so that both databases hold the same bytes."""

from __future__ import annotations

from typing import Any

import msgspec


def json_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()
