"""Names that DuckDB reads as columns only in double quotes. A test compares the list with DuckDB."""

from __future__ import annotations

import re

_WORDS = """
all analyse analyze and anti any array as asc asof asymmetric at authorization binary both by case cast
check collate collation column concurrently constraint create cross default deferrable desc describe
distinct do else end except false fetch for foreign freeze from full glob group having ilike in initially
inner intersect into is isnull join lambda lateral leading left like limit natural not notnull null offset
on only or order outer overlaps pivot pivot_longer pivot_wider placing positional primary qualify references
returning right select semi show similar some summarize symmetric table tablesample then to trailing true
union unique unpack unpivot using variadic verbose when where window with
"""
KEYWORDS = frozenset(_WORDS.split())
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def needs_quotes(name: str) -> bool:
    return _PLAIN.fullmatch(name) is None or name.lower() in KEYWORDS
