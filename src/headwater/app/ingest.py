"""ingest and ledger: pushed rows, and the keys that keep them from landing twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from headwater.app.demand import notify_delivered
from headwater.app.refresh_views import refresh, refresh_landed
from headwater.app.workspace import Workspace
from headwater.app.workspace import actor as this_actor
from headwater.base import limits
from headwater.base.clock import now_us, to_text
from headwater.base.errors import HeadwaterError
from headwater.catalog.commit import Store
from headwater.catalog.evolution import DeclaredColumn
from headwater.catalog.ledger import ledger_keys
from headwater.connectors.files.config import compression_of
from headwater.duck.view_mark import view_pause
from headwater.ingest.accept import Acceptor
from headwater.ingest.decode import Encoding, TooLarge, decoded
from headwater.ingest.ledger_rules import clear_keys
from headwater.ingest.prepare import Prepared
from headwater.ingest.push_records import Accepted, OnBadRow, Push, PushTable
from headwater.ingest.tail import Tails
from headwater.manifest.durations import duration_us
from headwater.manifest.load import Project
from headwater.manifest.spec import TableSpec
from headwater.observe.counters import COUNTERS, Counters
from headwater.runtime.model import MadeTable, project_tables
from headwater.runtime.ripple_fingerprint import declared_columns

__all__ = ["Accepted", "DeclaredColumn", "Encoding", "TooLarge", "decoded"]


@dataclass(frozen=True)
class KeyView:
    """A key of a table's ledger. `snapshot_id` is the commit that holds its rows."""

    table: str
    key: str
    snapshot_id: str
    rows: int
    taken_at: str
    expires_at: str | None
    expired: bool


class Ingestor:
    """Lands pushed rows for a project, for the lifetime of its process. Any thread may call it."""

    def __init__(self, counters: Counters = COUNTERS) -> None:
        self._counters = counters
        self.on_landed: Callable[[str], None] = lambda _pipeline: None
        """Called with each pipeline of the manifest to which rows were pushed."""
        self._lock = threading.Lock()
        self._acceptor: tuple[Store, Acceptor, Workspace] | None = None
        self._tails: Tails | None = None
        self._tables: tuple[Project, Mapping[str, MadeTable]] | None = None
        self._showing: threading.Timer | None = None
        self._timers: list[threading.Timer] = []
        self._pause_seconds = limits.VIEW_REFRESH_SECONDS
        self._is_closed = False

    def ingest(
        self,
        workspace: Workspace,
        table: str,
        body: bytes,
        *,
        key: str | None = None,
        evolve: bool = True,
        auto_create: bool = True,
        actor: str | None = None,
        on_bad_row: OnBadRow = "refuse",
        source: str | None = None,
        columns: Mapping[str, DeclaredColumn] | None = None,
    ) -> Accepted:
        """Land one batch of NDJSON; returns when it is durable. `on_bad_row` applies where the manifest sets nothing. A
        new table has these `columns` where the manifest names none; without them it has the usual four."""
        target = self.target(workspace, table, auto_create=auto_create, columns=columns)
        push = Push(
            target=target,
            body=body,
            actor=actor or this_actor(),
            key=key,
            evolve=evolve,
            on_bad_row=target.on_bad_row or on_bad_row,
            source=source,
        )
        return self._accepting(workspace).accept(push)

    def ingest_together(self, workspace: Workspace, pushes: Iterable[Push]) -> list[Accepted | Exception]:
        """Land batches of one table in their order, in as few commits as possible: an answer or an error for each."""
        return self._accepting(workspace).accept_together(pushes)

    def target(
        self,
        workspace: Workspace,
        table: str,
        *,
        auto_create: bool = True,
        columns: Mapping[str, DeclaredColumn] | None = None,
    ) -> PushTable:
        """The table as the project declares it now, as the target of a push. Raises HW-I03."""
        project = workspace.project
        return target_of(project, table, self._made(project).get(table), auto_create=auto_create, columns=columns)

    def show_soon(self, workspace: Workspace) -> None:
        """Refresh the views, at most once a second. A query through Headwater need not wait: it reads the catalog."""
        with self._lock:
            if self._showing is None and not self._is_closed:
                self._showing = threading.Timer(self._pause_seconds, self._show, [workspace])
                self._showing.daemon = True
                self._timers.append(self._showing)
                self._showing.start()

    def close(self) -> None:
        """Accept no more pushes. Raises nothing: what was answered is durable, and views are made again later."""
        with self._lock:
            tails, self._tails = self._tails, None
        if tails is not None:
            tails.close()
        with self._lock:
            self._is_closed = True
            found, self._acceptor = self._acceptor, None
            waiting, self._showing = self._showing, None
            timers = list(self._timers)
        for timer in timers:  # a timer that has fired still needs the store
            timer.cancel()
            timer.join()
        with suppress(HeadwaterError):
            if found is not None:
                if waiting is not None:
                    refresh(found[0], found[2].project)
                found[1].close()

    def _show(self, workspace: Workspace) -> None:
        with self._lock:
            mine, self._showing = self._showing, None
        began = time.monotonic()
        with suppress(HeadwaterError):  # the next query makes them again, and reports what is wrong
            refresh(workspace.store(), workspace.project)
        with self._lock:
            self._pause_seconds = view_pause(time.monotonic() - began)
            self._timers = [timer for timer in self._timers if timer is not mine]

    def _accepting(self, workspace: Workspace) -> Acceptor:
        store = workspace.store()
        with self._lock:
            if self._acceptor is None or self._acceptor[0] is not store:
                ttl_seconds = duration_us(workspace.project.spec.context.ledger_ttl) / 1e6
                acceptor = Acceptor(store, ttl_seconds=ttl_seconds, on_landed=self._landed)
                self._acceptor = (store, acceptor, workspace)
                if self._tails is not None:
                    self._tails.stop()
                self._tails = Tails(store, actor=this_actor(), on_merged=lambda: self.show_soon(workspace))
            return self._acceptor[1]

    def _made(self, project: Project) -> Mapping[str, MadeTable]:
        """The tables of the current manifest, cached so that a large project is not searched for each batch."""
        with self._lock:
            if self._tables is None or self._tables[0] is not project:
                self._tables = (project, project_tables(project.pipelines))
            return self._tables[1]

    def _landed(self, push: Push, prepared: Prepared) -> None:
        table = push.target.table
        self._counters.add("rows_pushed", table, times=prepared.rows)
        if prepared.rows_rescued:
            self._counters.add("rows_rescued", table, times=prepared.rows_rescued)
        if prepared.bad and push.on_bad_row == "dead_letter":
            self._counters.add("rows_dead_lettered", table, times=len(prepared.bad))
        tails = self._tails
        if tails is not None:
            tails.landed(table)
        if push.target.in_manifest and prepared.rows:
            self.on_landed(push.target.pipeline)


class CommandIngestor(Ingestor):
    """Lands the rows of one command."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__()
        self._workspace = workspace
        self._delivered: set[str] = set()
        self.on_landed = self._delivered.add
        self._has_landed = False
        self.warning: HeadwaterError | None = None
        """After `close`: why the views do not show the landed rows yet."""

    def push(self, table: str, body: bytes, *, key: str | None, evolve: bool, auto_create: bool) -> Accepted:
        """Land one batch of NDJSON; returns when it is durable."""
        found = self.ingest(self._workspace, table, body, key=key, evolve=evolve, auto_create=auto_create)
        self._has_landed = True
        return found

    def close(self) -> None:
        """Wakes the engine that runs elsewhere, and refreshes the views. Raises nothing: the rows have landed."""
        super().close()
        if self._has_landed:
            with suppress(HeadwaterError):  # without it, the next poll of the pushed pipeline finds the rows
                notify_delivered(self._workspace.store(), sorted(self._delivered))
            self.warning = refresh_landed(self._workspace.store(), self._workspace.project)


def target_of(
    project: Project,
    table: str,
    made: MadeTable | None,
    *,
    auto_create: bool = True,
    columns: Mapping[str, DeclaredColumn] | None = None,
) -> PushTable:
    """The target of a push to a table, as the manifest declares it (None: it does not). It has `columns` where the
    manifest names none. Raises HW-I03 for a table that a pipeline fills in another way."""
    if made is None:
        namesake = next((p for p in project.pipelines if p.spec.id == table), None)
        if namesake is not None:
            raise HeadwaterError(
                "HW-I03",
                f"`{table}` is the name of a pipeline that does not make a table `{table}`",
                hint="push to a table of another name",
                places=(namesake.position,),
            )
        return PushTable(table, table, declared=columns or {}, may_create=auto_create)
    spec = made.pipeline.spec
    if not spec.is_pushed:
        raise HeadwaterError(
            "HW-I03",
            f"table `{table}` is filled by pipeline `{spec.id}`, not by pushes",
            hint="push to a table of another name",
            detail={"table": table, "pipeline": spec.id},
            places=(made.pipeline.position,),
        )
    project.refuse_unsupported([spec.id])
    assert isinstance(made.settings, TableSpec)
    return PushTable(
        table,
        spec.id,
        mode=made.settings.effective_mode,
        primary_key=tuple(made.settings.primary_key),
        declared=declared_columns(made.settings) or columns or {},
        in_manifest=True,
        on_bad_row=spec.on_bad_row,
        max_bad_rows=spec.max_bad_rows or limits.MAX_BAD_ROWS,
    )


def decode_file(name: str, data: bytes) -> bytes:
    """A batch that was read from a file, decompressed as the file's name requires. Raises HW-I04."""
    return decoded(data, compression_of(name))


def list_keys(workspace: Workspace, table: str | None = None, *, limit: int = limits.KEYS_SHOWN) -> list[KeyView]:
    """The newest keys, of a table or of all."""
    now = now_us()
    found = workspace.read(partial(ledger_keys, table=table, limit=limit)) or []
    return [
        KeyView(
            table=each.table,
            key=each.key,
            snapshot_id=str(each.seq),
            rows=each.rows,
            taken_at=to_text(each.at_us),
            expires_at=to_text(each.expires_us) if each.expires_us is not None else None,
            expired=each.expires_us is not None and each.expires_us <= now,
        )
        for each in found
    ]


def clear(workspace: Workspace, table: str, keys: Sequence[str] | None = None) -> int:
    """Delete keys of a table, or all: batches sent with them land again. Returns how many there were."""
    return clear_keys(workspace.landed_store(writable=True), table, keys, actor=this_actor())
