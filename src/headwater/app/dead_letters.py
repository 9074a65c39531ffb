"""deadletters: bad rows that were kept, looked at, coerced again, or dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy import Connection

from headwater.app.ingesting import PUSH, target_of
from headwater.app.refreshing import refresh
from headwater.app.workspace import Workspace
from headwater.app.workspace import actor as this_actor
from headwater.base import limits
from headwater.base.clock import to_text
from headwater.base.errors import HeadwaterError
from headwater.ingest.again import coerce_again
from headwater.ingest.landing import Base, Files, base_of, changes_of, write
from headwater.ingest.push import PushTable
from headwater.runtime.model import MadeTable, project_tables
from headwater.store.commit import Store
from headwater.store.dead_letters import TABLE as LETTERS
from headwater.store.evolution import Evolution, refusal
from headwater.store.kept_letters import KeptLetter, Letters, letters_of, read_letters, take_out
from headwater.store.reading import table_entry
from headwater.store.records import Commit, FileRecord
from headwater.store.write import discard_files
from headwater.store.writers import end_writer, new_writer

T = TypeVar("T")

UPSERT_WARNING = "a row that landed now is newer than rows with its key that came since it was read"


@dataclass(frozen=True)
class LetterView:
    """A bad row that was kept: where it stood, the first thing that is wrong with it, and the row if it was asked for."""

    place: str
    line: int
    column: str | None
    reason: str
    value_type: str | None
    detail: str
    kept_at: str
    run_id: str
    row: str | None = None


@dataclass(frozen=True)
class LetterList:
    """The newest letters of a table, the oldest of them first, and how many there are."""

    table: str
    letters: tuple[LetterView, ...]
    total: int


@dataclass(frozen=True)
class Retried:
    """How many letters are rows of the table now, how many still do not fit, and the commit that landed the last of
    them."""

    table: str
    landed: int
    still_bad: int
    snapshot_id: str | None = None
    warnings: tuple[str, ...] = ()


def list_letters(
    workspace: Workspace,
    table: str,
    *,
    place: str | None = None,
    limit: int = limits.LETTERS_SHOWN,
    rows: bool = False,
) -> LetterList:
    """The letters of a table, or those from one place. The rows themselves only where they are asked for."""
    _, kept = _kept(workspace.landed_store(), table, place)
    return LetterList(table, tuple(_view(each, rows=rows) for each in kept[-limit:]), len(kept))


def retry(workspace: Workspace, table: str, *, place: str | None = None) -> Retried:
    """Coerce letters again. Those that fit the table as it is now land in it, and are letters no more, in one commit;
    the others stay. Of two at once one lands a row."""
    with _hands(workspace) as (store, files):
        return _patiently(lambda: _retry(workspace, store, files, table, place))


def drop(workspace: Workspace, table: str, *, place: str | None = None) -> int:
    """Forget letters knowingly. How many there were."""
    with _hands(workspace) as (store, files):
        return _patiently(lambda: _drop(store, files, table, place))


def _retry(workspace: Workspace, store: Store, files: Files, table: str, place: str | None) -> Retried:
    letters, kept = _kept(store, table, place)
    if letters is None or not kept:
        return Retried(table, 0, 0)
    made = project_tables(workspace.project.pipelines).get(table)
    pushed = made is None or (made.pipeline.spec.source is not None and made.pipeline.spec.source.connector == PUSH)
    with store.catalog.snapshot() as connection:
        target, base = _base(connection, workspace, table, made) if pushed else _pulled(connection, table)
    if base.evolution.refused:
        raise refusal(table, base.evolution.refused, target.declared)
    if base.mode == "replace":
        raise HeadwaterError(
            "HW-I03",
            f"`{table}` is replaced by every run of `{target.pipeline}`: a row that landed now would be gone with the next",
            hint="mend the rows at the source, and run the pipeline",
        )
    found = coerce_again([each.letter for each in kept], base.schema, pushed=pushed)
    still_bad = len(kept) - len(found.fits)
    if not found.fits:
        return Retried(table, 0, still_bad)
    written = write(store, files, table, base, found.batches)
    gone = {(kept[position].path, kept[position].row) for position in found.fits}
    out = take_out(store.root, letters, gone, directory=_directory(files))
    changes, needed = changes_of(target, base, written, (), ttl_seconds=0)
    commit = Commit(
        changes=(*changes, *out.changes), requires=(files.writer, *needed, *out.requires), actor=this_actor()
    )
    seq = _commit(store, commit, (*written.files, *out.files))
    warnings = (UPSERT_WARNING,) if base.mode == "upsert" else ()
    return Retried(table, len(found.fits), still_bad, str(seq), warnings)


def _drop(store: Store, files: Files, table: str, place: str | None) -> int:
    letters, kept = _kept(store, table, place)
    if letters is None or not kept:
        return 0
    gone = {(each.path, each.row) for each in kept}
    out = take_out(store.root, letters, gone, directory=_directory(files))
    commit = Commit(changes=out.changes, requires=(files.writer, *out.requires), actor=this_actor())
    _commit(store, commit, out.files)
    return len(kept)


def _base(connection: Connection, workspace: Workspace, table: str, made: MadeTable | None) -> tuple[PushTable, Base]:
    target = target_of(workspace.project, table, made)
    return target, base_of(connection, target)


def _pulled(connection: Connection, table: str) -> tuple[PushTable, Base]:
    """A table that a pipeline fills by itself, as it is: the rows were the pipeline's own."""
    entry = table_entry(connection, table)
    return PushTable(table, entry.pipeline, mode=entry.mode), Base(entry, entry.mode, Evolution(entry.schema))


def _kept(store: Store, table: str, place: str | None) -> tuple[Letters | None, list[KeptLetter]]:
    """The letters of a table, or those from one place. Raises HW-T07 if there is neither a letter nor a table."""
    with store.catalog.snapshot() as connection:
        letters = letters_of(connection, table)
        if letters is None:
            table_entry(connection, table)
            return None, []
    found = [each for each in read_letters(store.root, letters) if place in (None, each.letter.place)]
    if len(found) > limits.LETTERS_AT_ONCE:
        raise HeadwaterError(
            "HW-U01",
            f"`{table}` has {len(found)} dead letters",
            hint="take those of one file at a time: `--place FILE`",
        )
    return letters, found


@contextmanager
def _hands(workspace: Workspace) -> Iterator[tuple[Store, Files]]:
    """The store, a name to write files under, and views that are right afterwards."""
    store = workspace.landed_store(writable=True)
    files = Files(new_writer(store.catalog))
    try:
        yield store, files
        refresh(store)
    finally:
        end_writer(store.catalog, files.writer)


def _patiently(work: Callable[[], T]) -> T:
    """Do it from the new state if something moved meanwhile."""
    for _ in range(limits.PUSH_TRIES - 1):
        try:
            return work()
        except HeadwaterError as error:
            if error.code != "HW-T02":
                raise
    return work()


def _commit(store: Store, commit: Commit, files: Sequence[FileRecord]) -> int:
    try:
        return store.commit(commit)
    except HeadwaterError as error:
        if error.code == "HW-T02":
            discard_files(store.root, files)
        raise


def _directory(files: Files) -> str:
    """Where letters are written again that stay."""
    _, directory, number = files.next(LETTERS)
    return f"{directory}/{number}"


def _view(kept: KeptLetter, *, rows: bool) -> LetterView:
    letter = kept.letter
    return LetterView(
        place=letter.place,
        line=letter.line,
        column=letter.column_name,
        reason=letter.reason,
        value_type=letter.value_type,
        detail=letter.detail,
        kept_at=to_text(kept.at_us),
        run_id=kept.run_id,
        row=letter.source.decode(errors="replace") if rows else None,
    )
