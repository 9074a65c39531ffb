"""The value at a place inside JSON, as a column of a type: what a promoted column shows of a `dynamic` one.

A scalar becomes what it would become if it were pushed into the column by itself; what is refused there is null here.
So are objects and arrays, whose source text DuckDB does not keep, and everything in a text that is not JSON. Of a key
that stands twice in an object the first one counts, as it does for DuckDB's `->`.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from headwater.base.json_path import Steps
from headwater.base.types import Type
from headwater.coerce.errors import Refused
from headwater.coerce.values import Value, coerce_value

PROMOTABLE = ("bool", "int", "long", "real", "string", "timestamp", "date")
"""The kinds of types for which DuckDB's SQL gives the same values."""

_any = msgspec.json.Decoder().decode
_items = msgspec.json.Decoder(list[Raw]).decode
_members = msgspec.json.Decoder(dict[str, Raw]).decode
