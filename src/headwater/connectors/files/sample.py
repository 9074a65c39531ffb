"""What `plan` shows of the columns of files before they are read: from their first bytes, in this process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path

from headwater.base import limits
from headwater.coerce.infer import Inferred, infer_lines, merge_inferred
from headwater.connectors.files.config import FileFormat
from headwater.connectors.files.hints import Texts, exclude_hints, null_hints
from headwater.connectors.files.json_lines import infer_whole_document
from headwater.connectors.files.read import open_piece
from headwater.connectors.files.scan import FoundFile
from headwater.connectors.files.streams import OpenFile, Piece, UnreadableFile, refuse_foreign
from headwater.connectors.protocol import BadItem, Observed, SliceGone, TransientError


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
