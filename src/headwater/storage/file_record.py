"""What is known of one immutable Parquet file: as a commit names it, and as a reader of a table at a cut sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from headwater.storage.system_columns import COMMIT_SEQ

BOUND_BYTES = 64
"""A text bound longer than this is not kept."""


class ColumnStats(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Zone map of one column of one file. Times are integers (ns, or days for a date); a long text has no bound."""

    nulls: int = 0
    min: bool | int | float | str | None = None
    max: bool | int | float | str | None = None
    micros: bool = False
    """Of times: every one of them is whole microseconds."""


class FileRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One immutable Parquet file. `path` is relative to the store, with `/`. `ordinal` is its place among the
    files of its commit: later files win over earlier ones. `stats` is keyed by column id (as text)."""

    path: str
    rows: int
    bytes: int
    ordinal: int
    sha256: str | None = None
    stats: dict[str, ColumnStats] | None = None
    sources: dict[str, int] = {}
    """Rows per `_source_id`, where rows have one; empty if there are more ids than a record lists."""
    source_count: int = 0
    """The number of source ids, where they are not listed."""
    positions: bool = False
    """True if the file stores `_source_pos`."""
    first_key: str | None = None
    last_key: str | None = None
    """Of a keyed table: the first and the last whole key as ordered text (`storage.key_text`), where it is known."""
    merged: bool = False
    """True if the file stores `_commit_seq` per row, because its rows come from several commits."""
    content_sum: str | None = None
    """The sum modulo 2^128 of the rows' content hashes, as hex: equal for equal rows in any order."""
    partition: str | None = None
    sort_order: tuple[str, ...] = ()
    key_version: int | None = None
    index_ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class LiveFile:
    """One file of a table at a cut. Later rows win in the order of (added_seq, ordinal, row in file), except in
    `merged` files, whose rows carry their own `_commit_seq`. `unique_keys`: no primary key occurs twice among all
    files with this added_seq. `level`: 1 for a base, whose files hold each key once and whose rows are older than those
    of the same key elsewhere; 0 for all others (`catalog.levels`)."""

    path: str
    schema_id: int
    added_seq: int
    ordinal: int
    rows: int
    bytes: int
    run_id: str
    unique_keys: bool = False
    merged: bool = False
    level: int = 0
    key_range: tuple[str, str] | None = None
    sha256: str | None = None
    stats: Mapping[str, ColumnStats] = field(default_factory=dict)
    sources: Mapping[str, int] = field(default_factory=dict)
    source_count: int = 0
    positions: bool = False
    content_sum: str | None = None

    @property
    def row_seqs(self) -> tuple[int, int]:
        """The first and the last commit that rows come from: merged files hold older rows than their own commit."""
        if not self.merged:
            return self.added_seq, self.added_seq
        stats = self.stats.get(str(COMMIT_SEQ.id))
        low, high = (stats.min, stats.max) if stats else (None, None)
        return (low if isinstance(low, int) else 0), (high if isinstance(high, int) else self.added_seq)
