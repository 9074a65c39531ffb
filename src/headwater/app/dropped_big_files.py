"""A big dropped file: written by Spark, in as many parts as it has, and landed in one commit with its key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.app.ingest import Ingestor
from headwater.app.workspace import Workspace
from headwater.base.clock import now_us
from headwater.base.table_schema import TableSchema
from headwater.catalog.landing import Landing
from headwater.connectors.files.scan import FoundFile
from headwater.connectors.protocol import BadRows, Observed, TransientError
from headwater.duck.unique_keys import keys_are_unique
from headwater.ingest.drop.big import big_read, wider
from headwater.ingest.drop.folder import Changed
from headwater.ingest.drop.rows import translated_errors
from headwater.ingest.group_commit import Base, Files, WrittenRows
from headwater.ingest.prepare import refuse_rows
from headwater.ingest.push_records import Accepted, Push

if TYPE_CHECKING:
    from headwater.spark.write_frame import Written


KEY = "filedrop:"
"""A file's key is this and the hash of its bytes: another file of the same bytes is the same batch."""


def hash_in(push: Push) -> str:
    """The hash in the key of a file."""
    assert push.key is not None
    return push.key.removeprefix(KEY)


def land_big(workspace: Workspace, ingestor: Ingestor, push: Push, file: FoundFile) -> Accepted:
    """Lands the file, or finds that it has landed. Raises what `Acceptor.accept` raises, `Changed`, and HW-J03 if Spark
    cannot do it."""
    store = workspace.store()

    def write(base: Base, files: Files, landing: Landing) -> WrittenRows:
        run_id, directory, number = files.next(push.target.table)
        schema = base.schema
        most_bad = push.target.max_bad_rows if push.on_bad_row == "dead_letter" else 0
        with translated_errors():
            written = _write(workspace, push, file, schema, f"{directory}/big-{number}", run_id, most_bad, evolve=True)
            landing.files += written.files
            if written.unknown:
                schema = wider(schema, _observe(workspace, push, file, schema))
                place = f"{directory}/big-{number}-wider"
                written = _write(workspace, push, file, schema, place, run_id, most_bad, evolve=False)
                landing.files += written.files
        _check(written, push, file, most_bad)
        unique = base.mode == "upsert" and keys_are_unique(store.root, written.files, schema)
        return WrittenRows(run_id, schema, tuple(written.files), tuple(written.bad), unique)

    return ingestor.ingest_written(workspace, push, write)


def _write(
    workspace: Workspace,
    push: Push,
    file: FoundFile,
    schema: TableSchema,
    directory: str,
    run_id: str,
    most_bad: int,
    *,
    evolve: bool,
) -> Written:
    from headwater.spark.write_frame import WriteTarget, write_read

    store = workspace.store()
    root, forms = workspace.project.root.absolute(), push.target.forms
    read = big_read(root, file, schema, forms, most_bad=most_bad, evolve=evolve)
    target = WriteTarget(root=store.root, directory=directory, schema=schema, run_id=run_id, ingested_at_us=now_us())
    return write_read(workspace.spark(), read, target)


def _observe(workspace: Workspace, push: Push, file: FoundFile, schema: TableSchema) -> list[Observed]:
    from headwater.spark.write_frame import observe_read

    root, forms = workspace.project.root.absolute(), push.target.forms
    read = big_read(root, file, schema, forms, most_bad=0, evolve=True)
    return observe_read(workspace.spark(), read)


def _check(written: Written, push: Push, file: FoundFile, most_bad: int) -> None:
    """Raises what keeps the batch from being committed."""
    from headwater.spark.write_frame import raise_bad

    if written.gone is not None:
        raise Changed
    with translated_errors():
        if written.transient is not None:
            raise TransientError(written.transient)
        try:
            raise_bad(written, max_bad_rows=most_bad)
        except BadRows as error:
            refuse_rows(error.errors, error.total, push.target.table)
    if written.items[file.source_id]["sha256"] != hash_in(push):
        raise Changed
