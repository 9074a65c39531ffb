"""How a table is cut into slices, and what its cursor holds.

A cursor's value is a JSON object:

- `column`: the incremental column, or null for a table that is read whole;
- `at`: the largest value of that column when the run began, but never in the future: one row with the date 2999 must
  not hide everything that is written before 2999;
- `from`: `at` less the overlap: where the next read begins, inclusive;
- `mark`: a number over the row versions from `from` on (over all rows, for a table that is read whole). The server
  computes it. It stays equal exactly as long as no row there was inserted, changed or deleted and no column changed: an
  equal mark means that there is nothing to read;
- `load`: only while a first load is under way: how far it has come.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from headwater.base import clock, limits
from headwater.connectors.postgres.catalog import Relation, ask, blocks, estimate, histogram
from headwater.connectors.postgres.config import PostgresConfig
from headwater.connectors.postgres.pg_types import CURSOR_TYPES, INTEGER_TYPES, literal, quoted
from headwater.connectors.protocol import Json, TableAsk

if TYPE_CHECKING:
    import psycopg

KEY_TYPES = frozenset({*INTEGER_TYPES, "numeric", "text", "varchar", "uuid", "date", "timestamp", "timestamptz"})
"""Types of a key's first column for which a table can be cut by ranges of it."""


@dataclass(frozen=True)
class Range:
    """A part of a table: all of it (`by` is `all`), blocks (`ctid`), or values of a column (`key`, `cursor`) from
    `low` up to, not including, `high`; None is open. Bounds are texts of the server."""

    by: str
    column: str = ""
    type: str = ""
    low: str | None = None
    high: str | None = None

    @property
    def where(self) -> str:
        if self.by == "all":
            return "true"
        name = "ctid" if self.by == "ctid" else quoted(self.column)
        conditions = []
        if self.low is not None:
            conditions.append(f"{name} >= {literal(self.low)}::{self.type}")
        if self.high is not None:
            conditions.append(f"{name} < {literal(self.high)}::{self.type}")
        return " and ".join(conditions) or "true"

    def as_json(self) -> dict[str, Json]:
        return asdict(self)


WHOLE = Range("all")


@dataclass(frozen=True)
class Incremental:
    """The column that shows what is new, the type its values are compared in, and how far late commits may lag."""

    column: str
    base: str
    overlap_seconds: int
    overlap_ids: int

    @property
    def type(self) -> str:
        return CURSOR_TYPES[self.base]

    @property
    def is_id(self) -> bool:
        return self.type == "int8"

    @property
    def newest_sql(self) -> str:
        """The largest value, but no later than now."""
        if self.is_id:
            return f"max({quoted(self.column)})::int8"
        largest = f"max({quoted(self.column)})"
        return f"case when {largest} is not null then least({largest}, now()::{self.type}) end"

    def before_sql(self, value: str) -> str:
        """An expression less the overlap."""
        if self.is_id:
            return f"greatest({value}::numeric - {self.overlap_ids}, {-(2**63)})::int8"
        return f"({value} - interval '{self.overlap_seconds} seconds')::{self.type}"

    def since(self, low: str | None, high: str | None = None) -> Range:
        return Range("cursor", self.column, self.type, low, high)

    def as_filter(self, low: str | None) -> Json:
        """A bound as the store's files have it: a number, a time in nanoseconds, an ISO date; None if there is none, or
        if it is outside the years 1 to 9999."""
        if low is None:
            return None
        if self.is_id:
            return int(low)
        try:
            moment = datetime.fromisoformat(low)
        except ValueError:
            return None
        return low if self.type == "date" else clock.from_text(moment.isoformat()) * 1000


@dataclass(frozen=True)
class TableScan:
    """A table in one short transaction, and what is asked of it."""

    connection: psycopg.Connection[Any]
    relation: Relation
    ask: TableAsk
    incremental: Incremental | None
    config: PostgresConfig
    snapshot_id: str

    @property
    def load_key(self) -> str | None:
        """The column by whose ranges the table is loaded. An append table is cut by its cursor, so that it is known
        what has landed."""
        if self.ask.mode == "append":
            return self.ask.incremental
        key = self.relation.primary_key or self.ask.primary_key
        return key[0] if key else None

    @property
    def range_rows(self) -> int:
        return min(limits.PG_PARTITION_ROWS, self.config.range_rows)

    @property
    def ranges_per_slice(self) -> int:
        return self.config.range_rows // self.range_rows


def read_bound(look: TableScan) -> Json:
    """`at`, `from` and `mark` of a run that sees the table as it is in the current transaction."""
    at, since, where, incremental = None, None, "true", look.incremental
    if incremental is not None:
        newest = f"select {incremental.newest_sql} as at from {look.relation.sql}"
        before = incremental.before_sql("at")
        ((at, since),) = ask(look.connection, f"select at::text, {before}::text from ({newest}) newest")
        where = incremental.since(since).where
    return {"at": at, "from": since, "mark": read_mark(look, where)}


def read_mark(look: TableScan, where: str) -> str:
    """The count of the rows that fulfil a condition, a sum over their versions, and the columns' fingerprint.

    Every insert and update makes a row version with the number of its transaction (`xmin`), which no other transaction
    has: an equal count and equal `xmin`s mean the same rows. That costs one scan of the rows but reads none of their
    values. Views and foreign tables have no `xmin`: there the text of each row counts."""
    relation = look.relation
    row = "hashint8extended(t.xmin::text::int8, 0)" if relation.has_row_versions else "hashtextextended(t::text, 0)"
    ((count, total),) = ask(
        look.connection, f"select count(*), coalesce(sum({row}::numeric), 0)::text from {relation.sql} t where {where}"
    )
    return f"{count}:{total}:{relation.fingerprint}"


def mark_rows(mark: str) -> int:
    """The count of rows in a mark."""
    return int(mark.partition(":")[0])


def window_ranges(look: TableScan, incremental: Incremental, since: str) -> tuple[list[Range], dict[str, str]]:
    """The changes since a value in ranges of about equal size, and for each inner bound that bound less the
    overlap."""
    window = incremental.since(since)
    rows, _ = estimate(look.connection, look.relation, window.where)
    parts = min(-(-rows // look.range_rows), limits.PG_RANGES)
    if parts < 2:
        return [window], {}
    fractions = ", ".join(str(place / parts) for place in range(1, parts))
    name = quoted(incremental.column)
    cut = f"select percentile_disc(array[{fractions}]) within group (order by {name}) from {look.relation.sql} where {window.where}"
    found = ask(
        look.connection,
        f"select c.at::text, {incremental.before_sql('c.at')}::text from (select distinct unnest(({cut})) as at) c "
        f"where c.at > {literal(since)}::{incremental.type} order by c.at",
    )
    cuts = [at for at, _ in found]
    return between(window, cuts), dict(found)


def load_ranges(look: TableScan, after: Range | None = None) -> list[Range]:
    """The whole table, or what lies after a range of an earlier load, in ranges of about `range_rows` rows.

    The ranges are of the key's first column, if the server's statistics or the integers between its ends show how to
    cut it; else of blocks; else there is one range."""
    relation = look.relation
    rows, _ = estimate(look.connection, relation)
    parts = min(max(-(-rows // look.range_rows), 1), limits.PG_RANGES)
    column = relation.column(look.load_key) if look.load_key is not None else None
    if column is not None and column.base in KEY_TYPES and column.dimensions == 0:
        whole = Range("key", column.name, column.base, after.high if after is not None else None)
        cuts = _key_cuts(look, whole, parts)
        if cuts or parts == 1 or after is not None or not relation.has_blocks:
            return between(whole, cuts)
    if not relation.has_blocks or parts == 1:
        return [WHOLE]
    size = blocks(look.connection, relation)
    return between(Range("ctid", type="tid"), [f"({size * place // parts},0)" for place in range(1, parts)])


def between(whole: Range, cuts: Iterable[str]) -> list[Range]:
    """A range cut at inner bounds, which are in order."""
    edges = [whole.low, *dict.fromkeys(cuts), whole.high]
    return [Range(whole.by, whole.column, whole.type, low, high) for low, high in pairwise(edges)]


def grouped(ranges: Sequence[Range], per_slice: int) -> Iterator[list[Range]]:
    for start in range(0, len(ranges), per_slice):
        yield list(ranges[start : start + per_slice])


def inner_cuts(bounds: Sequence[str], parts: int, *, integers: bool) -> list[str]:
    """The values that cut the range from the first to the last bound into `parts`, given bounds with about equally many
    rows between them. Only integers can be cut finer than the bounds."""
    bins = len(bounds) - 1
    if bins < 1:
        return []
    if not integers:
        count = min(parts, bins)
        return [bounds[bins * place // count] for place in range(1, count)]
    found: list[str] = []
    for place in range(1, parts):
        whole, rest = divmod(bins * place, parts)
        low = int(bounds[whole])
        high = int(bounds[min(whole + 1, bins)])
        found.append(str(low + (high - low) * rest // parts))
    return found


def _key_cuts(look: TableScan, whole: Range, parts: int) -> list[str]:
    if parts == 1:
        return []
    bounds = histogram(look.connection, look.relation, whole.column)
    integers = whole.type in INTEGER_TYPES
    if len(bounds) < 2 and integers:
        name = quoted(whole.column)
        ((low, high),) = ask(look.connection, f"select min({name})::text, max({name})::text from {look.relation.sql}")
        bounds = [low, high] if low is not None else []
    cuts = inner_cuts(bounds, parts, integers=integers)
    if not cuts:
        return []
    # The server sorts, because texts have collations; and what was read before is left out.
    values = ", ".join(literal(cut) for cut in cuts)
    beyond = f"where c.cut > {literal(whole.low)}::{whole.type}" if whole.low is not None else ""
    rows = ask(
        look.connection,
        f"select c.cut::text from (select distinct unnest(array[{values}]::{whole.type}[]) as cut) c {beyond} order by c.cut",
    )
    return [cut for (cut,) in rows]
