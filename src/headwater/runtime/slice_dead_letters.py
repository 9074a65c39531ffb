"""What the commit of a slice changes in dead letters: its own bad rows are kept, and older dead letters that they
replace are removed.

Dead letters belong to what is in the table: when a file is read again its older dead letters are removed, and when a
table is replaced those of the previous run are, in the same commit.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from headwater.base.ids import RunId
from headwater.catalog import dead_letters as d
from headwater.catalog.commit import Store
from headwater.catalog.dead_letters import dead_letter_files, read_dead_letters, take_out, take_out_all
from headwater.catalog.landing import Landing
from headwater.coerce.row_errors import BadRow
from headwater.connectors.protocol import BadItem
from headwater.storage.file_record import FileRecord
from headwater.storage.layout import parse_attempt


def write_bad_rows(
    store: Store,
    rows: Sequence[BadRow],
    items: Sequence[BadItem],
    *,
    table: str,
    pipeline: str,
    format_: str,
    directory: str,
    run_id: RunId,
) -> tuple[FileRecord, ...]:
    """The file of a slice's bad rows and items; None if there are none."""
    letters = [
        d.dead_letter_of(row, table=table, pipeline=pipeline, place=row.error.place, format_=format_) for row in rows
    ]
    for item in items:
        whole = BadRow(item.error, b"")
        letters.append(
            d.dead_letter_of(whole, table=table, pipeline=pipeline, place=item.source_id, format_=d.WHOLE_FILE)
        )
    return d.write_dead_letters(store.root, directory, letters, run_id=run_id, number=0) if letters else ()


def take_out_older(
    landing: Landing, table: str, *, places: Collection[str] | None, items: Collection[str] = (), directory: str
) -> None:
    """Remove a table's dead letters from these places, or all (None); of `items` only those for the whole file."""
    with landing.store.catalog.snapshot() as connection:
        letters = dead_letter_files(connection, table)
    if letters is None:
        return
    if places is None:
        take_out_all(landing, letters)
        return
    gone = {
        (kept.path, kept.row)
        for kept in read_dead_letters(landing.store.root, letters)
        if kept.letter.place in places or (kept.letter.format == d.WHOLE_FILE and kept.letter.place in items)
    }
    take_out(landing, letters, gone, directory=directory)


def is_dead_letters(file: FileRecord) -> bool:
    """Whether a file that waits for the end of its run holds dead letters, not rows of the table."""
    attempt = parse_attempt(file.path)
    return attempt is not None and attempt.table == d.TABLE
