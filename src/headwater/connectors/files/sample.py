"""What `plan` shows of the columns of files before they are read: from their first bytes, in this process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from headwater.base import limits
from headwater.coerce.infer import Inferred, merge_inferred
from headwater.connectors.files.config import FileFormat
from headwater.connectors.files.hints import Texts, exclude_hints, null_hints
from headwater.connectors.files.read import infer_columns, open_piece, read_footers
from headwater.connectors.files.scan import FoundFile
from headwater.connectors.files.streams import UnreadableFile, refuse_foreign, whole_file
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
    from headwater.connectors.files.parquet import merge_footers

    looked_at = files[: limits.PREVIEW_FOOTERS]
    footers, bad = read_footers(root, looked_at, how, is_sample=True)
    observed = merge_footers(list(footers.values()), how.declared, bad_files=bad)
    names = {name for footer in footers.values() for name in footer.names}
    is_complete = observed.complete and len(looked_at) == len(files)
    return replace(observed, complete=is_complete, hints=exclude_hints(names, how))


def _preview_text(root: Path, files: Sequence[FoundFile], how: FileFormat) -> Observed | None:
    found, texts = Inferred(), Texts()
    bad: list[BadItem] = []
    left = limits.PREVIEW_BYTES
    for file in files:
        try:
            with open_piece(root, how, whole_file(file)) as opened:
                head, is_whole = opened.keep_head(left)
                refuse_foreign(head, source_id=file.source_id, format_=how.format.upper())
                if how.format == "json" and not is_whole:  # a part of a document does not show its columns
                    return None if not bad else Observed({}, bad_items=tuple(bad))
                own = infer_columns(opened, how, texts)
        except UnreadableFile as error:
            bad.append(error.as_bad_item(file.source_id))
            left -= 1
            continue
        left -= max(len(head), 1)
        texts.names.update(own.columns)
        found = merge_inferred(found, own)
        if left <= 0:
            break
    hints = {**null_hints(texts, how), **exclude_hints(texts.names, how)}
    return replace(how.observed(found), bad_items=tuple(bad), hints=hints)
