"""deadletters: list, retry or drop bad rows that were kept. There may be more of them than fit in memory: they are
listed one by one, and retried in parts."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection

from headwater.app.ingest import target_of
from headwater.app.refresh_views import refresh
from headwater.app.workspace import Workspace
from headwater.app.workspace import actor as this_actor
from headwater.base import limits
from headwater.base.clock import to_text
from headwater.base.errors import HeadwaterError, NotPushed
from headwater.base.text_form import TextForm
from headwater.catalog.commit import Store
from headwater.catalog.dead_letters import TABLE as LETTERS
from headwater.catalog.dead_letters import (
    WHOLE_FILE,
    DeadLetterFiles,
    StoredDeadLetter,
    dead_letter_files,
    read_dead_letters,
    take_out,
    take_out_all,
)
from headwater.catalog.evolution import Evolution
from headwater.catalog.landing import Landing, until_landed
from headwater.catalog.lookup import table_entry
from headwater.catalog.records import ItemsLanded
from headwater.connectors.files.changes import unread_version
from headwater.ingest.group_commit import Base, Files, PushWriter, base_of, check_base, land_batches
from headwater.ingest.push_records import PushTable
from headwater.ingest.retry_dead_letters import retry_coercion
from headwater.manifest.spec import TableSpec
from headwater.runtime.model import MadeTable, project_tables
from headwater.runtime.ripple_fingerprint import declared_columns
from headwater.storage.file_record import LiveFile

UPSERT_WARNING = "a row that landed now is newer than rows with its key that came since it was read"


@dataclass(frozen=True)
class DeadLetterView:
    """A bad row that was kept: where it was, the first error in it, and the row itself if it was asked for."""

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
class DeadLetterList:
    """The newest dead letters of a table, oldest first, and the number of all of them."""

    letters: tuple[DeadLetterView, ...]
    total: int


@dataclass(frozen=True)
class Retried:
    """How many dead letters have become rows of the table, how many still do not fit, the last commit that landed some,
    and how many files the next run of the pipeline will read again."""

    table: str
    landed: int
    still_bad: int
    snapshot_id: str | None = None
    warnings: tuple[str, ...] = ()
    files_to_read: int = 0


def list_dead_letters(
    workspace: Workspace,
    table: str,
    *,
    place: str | None = None,
    limit: int = limits.LETTERS_SHOWN,
    rows: bool = False,
) -> DeadLetterList:
    """The dead letters of a table, or those from one place. The rows themselves are included only if asked for."""
    store = workspace.landed_store()
    newest: list[tuple[int, int, DeadLetterView]] = []
    total = 0
    for total, kept in enumerate(_from(store, _letters(store, table), place), 1):
        heapq.heappush(newest, (kept.at_us, total, _view(kept, rows=rows)))
        if total > limit:
            heapq.heappop(newest)
    return DeadLetterList(tuple(view for _, _, view in sorted(newest)), total)


def retry(workspace: Workspace, table: str, *, place: str | None = None) -> Retried:
    """Coerce dead letters again. Those that fit the table as it is now land in it and are dead letters no more, in one
    commit (in a few, if there are very many); the others stay. If two retries run at once, one of them lands a row. A
    file that could not be read is marked as unread instead: the next run of its pipeline reads it."""
    parts: list[Retried] = []
    seen: set[str] = set()

    def part(store: Store, files: Files) -> bool:
        """Retry one part; False if there is no further one."""
        standing = _letters(store, table, must_exist=not parts)
        letters = _unseen(standing, seen)
        if standing is None or letters is None:
            return False
        done, stay = _retry(workspace, store, files, letters, place)
        parts.append(done)
        seen.update([*(file.path for file in letters.files), *stay])
        # Where dead letters of files were taken out, those of rows beside them are in a new file now.
        return done.files_to_read > 0 or any(file.path not in seen for file in standing.files)

    with _writing(workspace) as (store, files):
        while until_landed(table, lambda _number: part(store, files)):
            pass
    return Retried(
        table,
        sum(done.landed for done in parts),
        sum(done.still_bad for done in parts),
        next((done.snapshot_id for done in reversed(parts) if done.snapshot_id is not None), None),
        next((done.warnings for done in parts if done.warnings), ()),
        sum(done.files_to_read for done in parts),
    )


def drop(workspace: Workspace, table: str, *, place: str | None = None) -> int:
    """Delete dead letters on a user's explicit request. Returns how many there were."""
    with _writing(workspace) as (store, files):
        return until_landed(table, lambda _number: _drop(store, files, table, place))


def _retry(
    workspace: Workspace, store: Store, files: Files, letters: DeadLetterFiles, place: str | None
) -> tuple[Retried, Sequence[str]]:
    """One commit. Also returns the dead letter files that had to be rewritten."""
    table = letters.table
    kept = list(_from(store, letters, place))
    if any(each.letter.format == WHOLE_FILE for each in kept):
        return _read_again(store, files, letters, [each for each in kept if each.letter.format == WHOLE_FILE])
    if not kept:
        return Retried(table, 0, 0), ()
    made = project_tables(workspace.project.pipelines).get(table)
    pushed = made is None or made.pipeline.spec.is_pushed
    with store.catalog.snapshot() as connection:
        target, base = _base(connection, workspace, table, made) if pushed else _pulled(connection, table)
    check_base(store, target, base, actor=this_actor())
    if base.mode == "replace":
        raise HeadwaterError(
            "HW-I03",
            f"`{table}` is replaced by every run of `{target.pipeline}`: a row that lands now would be removed by the next",
            hint="fix the rows at the source, and run the pipeline",
        )
    forms, exclude = _text_settings(made)
    schema = base.schema.formed(forms)
    found = retry_coercion([each.letter for each in kept], schema, pushed=pushed, exclude=exclude)
    still_bad = len(kept) - len(found.fits)
    if not found.fits:
        return Retried(table, 0, still_bad), ()
    gone = {(kept[position].path, kept[position].row) for position in found.fits}
    with Landing(store, this_actor()) as landing:
        land_batches(landing, files, target, base, found.batches)
        stay = take_out(landing, letters, gone, directory=_directory(files))
        seq = landing.commit(requires=(files.writer,))
    warnings = (UPSERT_WARNING,) if base.mode == "upsert" else ()
    return Retried(table, len(found.fits), still_bad, str(seq), warnings), stay


def _read_again(
    store: Store, files: Files, letters: DeadLetterFiles, kept: Sequence[StoredDeadLetter]
) -> tuple[Retried, Sequence[str]]:
    """Mark files as unread and remove their dead letters, in one commit. Only a run can read a file."""
    gone = {(each.path, each.row) for each in kept}
    unread: dict[str, dict[str, Any]] = {}
    for each in kept:
        unread.setdefault(each.letter.pipeline, {})[each.letter.place] = unread_version()
    items = [ItemsLanded(pipeline=name, table=letters.table, items=places) for name, places in unread.items()]
    with Landing(store, this_actor()) as landing:
        take_out(landing, letters, gone, directory=_directory(files))
        landing.commit(changes=items, requires=(files.writer,))
    return Retried(letters.table, 0, 0, files_to_read=len(gone)), ()


def _drop(store: Store, files: Files, table: str, place: str | None) -> int:
    letters = _letters(store, table)
    if letters is None:
        return 0
    with Landing(store, this_actor()) as landing:
        if place is None:
            dropped = sum(file.rows for file in letters.files)
            take_out_all(landing, letters)
        else:
            gone = {(kept.path, kept.row) for kept in _from(store, letters, place)}
            dropped = len(gone)
            take_out(landing, letters, gone, directory=_directory(files))
        if dropped:
            landing.commit(requires=(files.writer,))
    return dropped


def _base(connection: Connection, workspace: Workspace, table: str, made: MadeTable | None) -> tuple[PushTable, Base]:
    try:
        target = target_of(workspace.project, table, made)
        return target, base_of(connection, target)
    except NotPushed as error:
        error.hint = "declare the table and its pipeline in the manifest again, or drop the dead letters"
        raise


def _pulled(connection: Connection, table: str) -> tuple[PushTable, Base]:
    """A table that a pipeline fills itself, as it is now: the dead letters came from that pipeline."""
    entry = table_entry(connection, table)
    return PushTable(table, entry.pipeline, mode=entry.mode), Base(entry, entry.mode, Evolution(entry.schema))


def _text_settings(made: MadeTable | None) -> tuple[Mapping[str, TextForm | None], tuple[str, ...]]:
    """How the manifest says that a table's texts are written, and which columns are left out."""
    if made is None:
        return {}, ()
    forms = {name: column.form for name, column in declared_columns(made.settings).items()}
    return forms, made.settings.exclude if isinstance(made.settings, TableSpec) else ()


def _letters(store: Store, table: str, *, must_exist: bool = True) -> DeadLetterFiles | None:
    """The dead letters of a table, if any. Raises HW-T07 if there are none and a table that must exist does not."""
    with store.catalog.snapshot() as connection:
        letters = dead_letter_files(connection, table)
        if letters is None and must_exist:
            table_entry(connection, table)
        return letters


def _from(store: Store, letters: DeadLetterFiles | None, place: str | None) -> Iterator[StoredDeadLetter]:
    """Dead letters one by one: all of them, or those from one place."""
    if letters is not None:
        yield from (kept for kept in read_dead_letters(store.root, letters) if place in (None, kept.letter.place))


def _unseen(letters: DeadLetterFiles | None, seen: Collection[str]) -> DeadLetterFiles | None:
    """The first files that were not seen, as many as can be held at once; None if there is none."""
    files: list[LiveFile] = []
    rows = size = 0
    for file in letters.files if letters is not None else ():
        if file.path in seen:
            continue
        rows, size = rows + file.rows, size + file.bytes
        if files and (rows > limits.LETTERS_AT_ONCE or size > limits.LETTERS_AT_ONCE_BYTES):
            break
        files.append(file)
    return replace(letters, files=tuple(files)) if letters is not None and files else None


@contextmanager
def _writing(workspace: Workspace) -> Iterator[tuple[Store, Files]]:
    """The store and a directory name for new files. Views are refreshed afterwards."""
    store = workspace.landed_store(writable=True)
    with closing(PushWriter(store.catalog)) as writer:
        yield store, writer.files()
        refresh(store, workspace.project)


def _directory(files: Files) -> str:
    """The directory for dead letters that stay and are rewritten."""
    _, directory, number = files.next(LETTERS)
    return f"{directory}/{number}"


def _view(kept: StoredDeadLetter, *, rows: bool) -> DeadLetterView:
    letter = kept.letter
    return DeadLetterView(
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
