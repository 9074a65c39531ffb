"""Stores for contract tests: one on each database, and short words for what commits say."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.base.blobs import sha256_of
from headwater.base.holder import new_holder
from headwater.base.ids import RunId, uuid7
from headwater.base.table_schema import TableSchema
from headwater.catalog import records as r
from headwater.catalog.commit import Store, open_existing, open_store
from headwater.catalog.database import Catalog
from headwater.catalog.engine_records import JobEnd
from headwater.catalog.queue import claim_job, release_job, take_over
from headwater.catalog.slice_jobs import SliceLease, queue_slices, slice_lease
from headwater.storage.file_record import FileRecord
from headwater.storage.layout import attempt_directory
from schemas import schema_of

ACTOR = "operator:ada"
PROJECT = "shop"
DAY_US = 24 * 3600 * 1_000_000


@contextmanager
def quick_directory() -> Iterator[Path]:
    """A directory that is gone as soon as the block ends."""
    with tempfile.TemporaryDirectory(prefix="headwater-test-") as directory:
        yield Path(directory)


@dataclass(frozen=True)
class Place:
    """Where a store is. `open` may be called as often as a test likes: each is one more process's view of it."""

    root: Path
    url: str

    @property
    def is_sqlite(self) -> bool:
        return self.url == "sqlite"

    def open(self) -> Store:
        return open_store(self.root, project=PROJECT, catalog_url=self.url)

    def existing(self) -> Store | None:
        return open_existing(self.root, project=PROJECT, catalog_url=self.url)


def commit(store: Store, *changes: r.Change, requires: Sequence[r.Requirement] = ()) -> int:
    return store.commit(r.Commit(changes=changes, requires=tuple(requires), actor=ACTOR))


def create_table(
    store: Store,
    name: str = "orders",
    *,
    mode: str = "append",
    schema: TableSchema | None = None,
    pipeline: str = PROJECT,
) -> int:
    body = (schema or schema_of({"id": "long", "amount": "real"})).as_json()
    return commit(
        store,
        r.TableCreated(table=name, pipeline=pipeline, mode=mode),
        r.SchemaSet(table=name, schema_id=1, schema=body, events=(r.SchemaEvent(kind="created", after=body),)),
    )


def begin_run(
    store: Store, units: int = 3, *, table: str = "orders", serial: bool = False, pipeline: str = PROJECT
) -> RunId:
    """A run whose slices end at 10, 20, 30 ..."""
    run_id = RunId(uuid7())
    specs = tuple(
        r.UnitSpec(
            unit_id=uuid7(),
            table=table,
            ordinal=i,
            serial=serial,
            payload={"slice": {"start": i * 10, "end": i * 10 + 10}},
        )
        for i in range(units)
    )
    commit(
        store,
        r.RunStarted(
            run_id=run_id,
            pipeline=pipeline,
            freshness_us=1,
            trigger="apply",
            connector="files@1",
            definition="sha256:1",
        ),
        r.UnitsPlanned(run_id=run_id, pipeline=pipeline, units=specs),
    )
    queue_run(store, run_id)
    return run_id


def queue_run(store: Store, run_id: str) -> None:
    """What the end of the job that planned a run does in the plan's commit."""
    with store.catalog.transaction() as connection:
        queue_slices(connection, run_id)


def claim(catalog: Catalog, run_id: str, *, holder: str, takes_over: bool = True) -> SliceLease | None:
    """The next slice of a run, as a worker of this process gets it; what it gets of others it gives back. A `holder`
    without a slash is a name in this process."""
    if takes_over:
        take_over(catalog)
    holder = holder if "/" in holder else f"{new_holder().rpartition('/')[0]}/{holder}"
    others, found = [], None
    while (job := claim_job(catalog, holder=holder)) is not None:
        if job.landed_run_id == run_id:
            with catalog.snapshot() as connection:
                found = slice_lease(connection, job)
            break
        others.append(job)
    for job in others:
        release_job(catalog, job)
    return found


def written(store: Store, path: str, *, content: bytes = b"PAR1", ordinal: int = 0, **more: Any) -> FileRecord:
    """A file on disk and its record."""
    full = store.root / path
    full.parent.mkdir(parents=True, exist_ok=True)
    full.write_bytes(content)
    return FileRecord(path=path, rows=10, bytes=len(content), ordinal=ordinal, sha256=sha256_of(full), **more)


def attempt_path(lease: SliceLease, name: str = "part-00000-0.parquet") -> str:
    directory = attempt_directory(
        lease.table, run_id=lease.run_id, node="node-1", unit_id=lease.unit_id, attempt=lease.attempt
    )
    return f"{directory}/{name}"


def landed(lease: SliceLease, *files: FileRecord, schema_id: int = 1) -> r.Commit:
    """What landing a slice commits."""
    added = r.FilesAdded(table=lease.table, schema_id=schema_id, run_id=lease.run_id, files=files)
    return r.Commit(
        changes=(*((added,) if files else ()), *done(lease)),
        requires=(lease.fence,),
        actor=ACTOR,
        ends=JobEnd(held=lease.fence, state="done", rows=10, bytes=4, landed_run_id=lease.run_id),
    )


def done(lease: SliceLease, **more: Any) -> tuple[r.Change, ...]:
    return (
        r.UnitDone(unit_id=lease.unit_id, rows=10, bytes=4, **more),
        r.CursorAdvanced(
            run_id=lease.run_id, pipeline=lease.pipeline, table=lease.table, kind="monotonic", source_identity="s"
        ),
        r.RunSettled(run_id=lease.run_id),
    )


def tree(root: Path) -> dict[str, tuple[int, bytes]]:
    """Every file with its time and bytes: equal if and only if nothing was written."""
    return {
        path.relative_to(root).as_posix(): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }
