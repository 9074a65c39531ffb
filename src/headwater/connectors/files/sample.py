"""What `plan` shows of files before they are read: estimates and columns, from their first bytes, in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.base import limits
from headwater.connectors.files.config import FileFormat
from headwater.connectors.files.hints import Texts, exclude_hints, null_hints
from headwater.connectors.files.read import open_piece
from headwater.connectors.files.scan import FoundFile
from headwater.connectors.files.streams import OpenFile, Piece, UnreadableFile, refuse_foreign
from headwater.connectors.protocol import BadItem, Observed, SliceGone, TransientError

if TYPE_CHECKING:
    from headwater.coerce.infer import Inferred


def estimate_rows(
    root: Path, files: Sequence[FoundFile], format_: str | None, compression_of: Callable[[str], str]
) -> int | None:
    """The estimated number of rows: the bytes of all files divided by the average line at the beginning of the first
    file that is not empty. None where lines do not show it (JSON, Parquet, compressed files) or the file is gone."""
    first = next((file for file in files if file.size), None)
    if first is None:
        return 0
    if format_ not in ("ndjson", "csv") or any(compression_of(file.source_id) != "none" for file in files):
        return None
    try:
        with OpenFile(root, Piece(first, 0, first.size, whole=True)) as opened:
            head = opened.read(limits.ESTIMATE_BYTES)
    except SliceGone:
        return None
    lines = head.count(b"\n") + (len(head) == first.size and not head.endswith(b"\n"))
    if not lines:
        return None
    headers = sum(1 for file in files if file.size) if format_ == "csv" else 0
    return max(0, round(sum(file.size for file in files) * lines / len(head)) - headers)


def preview_slice(root: Path, files: Sequence[FoundFile], how: FileFormat) -> Observed | None:
    """The probable columns, and the files of the sample that cannot be read; None if the sample does not show them.
    Raises what reading would raise for files that disagree."""
    try:
        if how.format == "parquet":
            return _preview_footers(root, files, how)
        return _preview_text(root, files, how)
    except (SliceGone, TransientError):
        return None


def _preview_footers(root: Path, files: Sequence[FoundFile], how: FileFormat) -> Observed:
    from headwater.connectors.files.parquet import Footer, merge_footers, read_footer

    looked_at = files[: limits.PREVIEW_FOOTERS]
    footers: list[Footer] = []
    bad: list[BadItem] = []
    for file in looked_at:
        try:
            footers.append(read_footer(root, file, how))
        except UnreadableFile as error:
            bad.append(_sampled(file, error))
    observed = merge_footers(footers, how.declared, bad_files=tuple(bad))
    names = {name for footer in footers for name in footer.names}
    is_complete = observed.complete and len(looked_at) == len(files)
    return replace(observed, complete=is_complete, hints=exclude_hints(names, how))


def _preview_text(root: Path, files: Sequence[FoundFile], how: FileFormat) -> Observed | None:
    from headwater.coerce.infer import Inferred, merge_inferred

    found, texts = Inferred(), Texts()
    bad: list[BadItem] = []
    left = limits.PREVIEW_BYTES
    for file in files:
        own: Inferred | None = Inferred()
        try:
            with open_piece(root, how, Piece(file, 0, file.size, whole=True)) as opened:
                head, is_whole = _head(opened, left)
            own = _infer_head(head, how, texts, source_id=file.source_id, is_whole=is_whole)
            left -= max(len(head), 1)
        except UnreadableFile as error:
            bad.append(_sampled(file, error))
            left -= 1
            continue
        if own is None:
            return None if not bad else Observed({}, bad_items=tuple(bad))
        texts.names.update(own.columns)
        found = merge_inferred(found, own)
        if left <= 0:
            break
    hints = {**null_hints(texts, how), **exclude_hints(texts.names, how)}
    return replace(how.observed(found), bad_items=tuple(bad), hints=hints)


def _sampled(file: FoundFile, error: UnreadableFile) -> BadItem:
    return BadItem(file.source_id, None, error.as_row_error(file.source_id), error.hint)


def _head(opened: OpenFile, size: int) -> tuple[bytes, bool]:
    """The first bytes of a file's content, and whether they are all of it."""
    parts: list[bytes] = []
    while size and (part := opened.read(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts), size > 0


def _infer_head(head: bytes, how: FileFormat, texts: Texts, *, source_id: str, is_whole: bool) -> Inferred | None:
    """The columns of the beginning of a file; None if a part of the file does not show them. Columns of CSV are added
    to `texts`."""
    from headwater.coerce.infer import infer_lines
    from headwater.connectors.files.json_lines import infer_whole_document

    refuse_foreign(head, source_id=source_id, format_=how.format.upper())
    lines = head if is_whole else head[: head.rfind(b"\n") + 1]
    match how.format:
        case "ndjson":
            return infer_lines(lines)
        case "csv":
            from headwater.connectors.files.csv import infer_rows

            return infer_rows(BytesIO(lines).read, how, source_id=source_id, texts=texts)
        case "json":
            return infer_whole_document(head, how, source_id) if is_whole else None
        case format_:
            raise AssertionError(format_)
