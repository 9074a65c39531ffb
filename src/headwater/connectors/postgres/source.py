"""Tables of a PostgreSQL database.

**What is read.** With `incremental` (a column of times, dates or integers) a run reads what is new since the last run;
without it, the whole table whenever anything in it changed. These combinations are allowed:

| mode    | incremental                | because                                                                       |
|---------|----------------------------|-------------------------------------------------------------------------------|
| upsert  | any, or none               | a row that is read twice lands once                                            |
| append  | an integer, unique, no null | a changed row gets a new time: appended, it would be there twice               |
| replace | none                       | the newest run is the table                                                    |

Only `replace` sees deleted rows. Only the first load sees a row without a value in the incremental column. A row that
changes at the source without a new value in that column is never seen. An append table keeps what it has read: a row
that changes while it is still within the overlap is there in both forms.

**First load.** One exported snapshot fixes the upper bound and shows every range of the load the same moment. A later
process that goes on with the load after a crash cannot return to that moment: it reads the ranges that are left in a
new snapshot. That is correct, because ranges are of the table's key: every row is in one range in every snapshot, and a
row that changed since is read as it is now. A row that changed in a range that was read before has a value above the
cursor's (the *first* snapshot's bound less the overlap), where the next read begins. It would not be correct for ranges
of blocks (a changed row moves to another block) or for a table that is read whole into `replace` (half of one moment
and half of another): there SliceGone is raised and the run plans again.

**Late commits.** A transaction may commit rows with values below a cursor that is already set: `now()` is the time
when it began, and a sequence hands out numbers before they are visible. So every later read begins at the cursor
less `overlap`, and the caller drops rows that the table already holds with equal content. A plan warns of
transactions that have been open for longer than that.

**Nothing to do.** The cursor holds a mark over the row versions of the overlap (`slices.py`), so that a poll of an
unchanged table plans no slice. The poll costs one scan of the overlap by the index of the incremental column; without
`incremental`, or without such an index, one scan of the table, though of no values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.base import limits
from headwater.base.errors import did_you_mean
from headwater.base.ids import uuid7
from headwater.connectors.postgres import catalog
from headwater.connectors.postgres.ask import check_ask, missing_declared
from headwater.connectors.postgres.catalog import Relation
from headwater.connectors.postgres.config import PostgresConfig, parse_config, url_problem
from headwater.connectors.postgres.plan_slices import plan_slices
from headwater.connectors.postgres.read import ReadPostgres
from headwater.connectors.postgres.server_session import Snapshot, connect, conninfo, looking, translated
from headwater.connectors.postgres.slices import TableScan, read_bound
from headwater.connectors.protocol import (
    ArrowRead,
    BackfillHint,
    Cursor,
    CursorKind,
    Json,
    Observed,
    Slice,
    SliceGone,
    SlicePlan,
    SourceTable,
    TableAsk,
    TransientError,
    config_error,
)

if TYPE_CHECKING:
    import psycopg

VERSION = "1"


def open_source(
    config: Mapping[str, object], *, root: Path, resolve: Callable[[str], str], pipeline: str
) -> PostgresSource:
    """The configured source. It connects at the first call that needs the server."""
    parsed = parse_config(config)
    url = resolve(parsed.url).strip()
    wrong = url_problem(url)
    if wrong is not None:
        raise config_error(f"the value behind `url` of pipeline `{pipeline}` {wrong}", "it is not shown here")
    return PostgresSource(parsed, conninfo(url))


class PostgresSource:
    """One database and schema, for one run. Owns two sessions: one keeps the run's snapshot, the other reads the
    catalog; executors open their own."""

    connector = "postgres"
    version = VERSION

    def __init__(self, config: PostgresConfig, info: str):
        self._config = config
        self._info = info
        self._connection: psycopg.Connection[Any] | None = None
        self._snapshot: Snapshot | None = None
        self._snapshot_id = ""
        self._bounded: set[str] = set()

    def discover(self) -> tuple[SourceTable, ...]:
        with self._looking("") as connection:
            found = catalog.relations(connection, self._config.schema)
        return tuple(SourceTable(relation.name, relation.observed()) for relation in found)

    def backfill_hint(self) -> BackfillHint:
        return BackfillHint(cursor_kind=CursorKind.MONOTONIC)

    def identity(self, ask: TableAsk) -> str:
        """The numbers of the server, the database and the table. A copy or a recreated table has other numbers; a
        renamed one has the same."""
        with self._table(ask) as (connection, relation):
            return f"postgres:{catalog.system_identity(connection)}/{relation.oid}"

    def bound(self, ask: TableAsk) -> Json:
        """Tables of one run share a snapshot; a table that asks again gets a new one."""
        if ask.name in self._bounded:
            self._end_snapshot()
        with self._scan(ask) as look:
            found = read_bound(look)
        self._bounded.add(ask.name)
        return found

    def slices(self, ask: TableAsk, cursor: Cursor | None, bound: Json, landed: Mapping[str, Json]) -> SlicePlan:
        with self._scan(ask) as look:
            plan = plan_slices(look, cursor.value if cursor is not None else None, bound)
        return SlicePlan(plan.slices, (*missing_declared(ask, look.relation), *plan.warnings))

    def read(self, ask: TableAsk, slice_: Slice) -> ArrowRead:
        """The read of a slice, at the snapshot it was planned with or, where that is equally correct, at a new one."""
        spec = slice_.spec
        if self._snapshot is not None and not self._snapshot.is_alive():
            self._end_snapshot()
        with self._table(ask) as (_, relation):
            assert self._snapshot is not None
            if spec["snapshot"] != self._snapshot_id and not spec["resumable"]:
                raise SliceGone(f"the snapshot in which table `{ask.source_name}` was to be read has ended")
            if relation.oid != spec["oid"] or relation.fingerprint != spec["columns"]:
                raise SliceGone(f"table `{ask.source_name}` has changed since the slice was planned")
            read = ReadPostgres(
                info=self._info,
                snapshot=self._snapshot.name,
                schema=relation.schema,
                table=relation.name,
                oid=relation.oid,
                columns=relation.columns,
                fetch_rows=self._config.fetch_rows,
            )
        return ArrowRead(
            partitions=tuple(spec["ranges"]),
            read=read,
            observed=relation.observed(),
            key_filter_column=spec["filter_column"],
            key_filter_from=spec["filter_from"],
            source_keys=spec.get("source_keys") if spec["snapshot"] == self._snapshot_id else None,
        )

    def preview(self, ask: TableAsk, slice_: Slice) -> Observed:
        with self._table(ask) as (_, relation):
            return relation.observed()

    def close(self) -> None:
        self._end_snapshot()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @contextmanager
    def _looking(self, table: str) -> Iterator[psycopg.Connection[Any]]:
        """A short transaction at the run's snapshot. The first one makes the snapshot."""
        import psycopg

        try:
            if self._connection is None or self._connection.closed:
                self._connection = connect(self._info)
            if self._snapshot is None:
                self._snapshot = Snapshot(self._info)
                self._snapshot_id = uuid7()
        except psycopg.Error as error:
            raise translated(error, info=self._info) from error
        try:
            with looking(self._connection, self._snapshot, info=self._info, table=table):
                yield self._connection
        except TransientError:
            self.close()
            raise

    @contextmanager
    def _scan(self, ask: TableAsk) -> Iterator[TableScan]:
        with self._table(ask) as (connection, relation):
            incremental = check_ask(ask, relation, self._config)
            yield TableScan(connection, relation, ask, incremental, self._config, self._snapshot_id)

    @contextmanager
    def _table(self, ask: TableAsk) -> Iterator[tuple[psycopg.Connection[Any], Relation]]:
        """The table that is asked for, locked, at a snapshot that shows all of its rows."""
        for _ in range(limits.PG_SNAPSHOT_TRIES):
            with self._looking(ask.source_name) as connection:
                relation = self._find(connection, ask.source_name)
                connection.execute(f"select 1 from {relation.sql} limit 0".encode())
                if catalog.ask(connection, catalog.intact_sql(relation.sql, relation.oid)) == [(True,)]:
                    yield connection, relation
                    return
            self._end_snapshot()
        raise TransientError(f"table `{ask.source_name}` is being rewritten again and again")

    def _find(self, connection: psycopg.Connection[Any], name: str) -> Relation:
        schema = self._config.schema
        found = catalog.relations(connection, schema, name)
        if found:
            return found[0]
        schemas = [row[0] for row in catalog.ask(connection, "select nspname::text from pg_namespace")]
        if schema not in schemas:
            raise config_error(f"the database has no schema `{schema}`", did_you_mean(schema, schemas))
        tables = [relation.name for relation in catalog.relations(connection, schema)]
        hint = did_you_mean(name, tables, f"schema `{schema}` has {len(tables)} tables that can be read")
        raise config_error(f"there is no table `{name}` in schema `{schema}`", hint)

    def _end_snapshot(self) -> None:
        self._bounded.clear()
        if self._snapshot is not None:
            self._snapshot.close()
            self._snapshot = None
