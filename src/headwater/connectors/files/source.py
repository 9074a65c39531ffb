"""The `files` connector: folders of NDJSON, JSON, CSV and Parquet, each file landed once.

There is no real cursor: what has landed is recorded file by file, and a scan finds what is new, changed or gone. So
files may arrive in any order and under any name. `scan` finds them, `changes` compares them with what has landed,
`slices` groups them, `read` reads them in executors. Scanning imports neither pyarrow nor `coerce`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from headwater.base import limits
from headwater.base.printable import quoted
from headwater.connectors.files.changes import Changes, compare
from headwater.connectors.files.config import FileFormat, format_of, parse_config
from headwater.connectors.files.scan import FoundFile, scan
from headwater.connectors.files.slices import cut_partitions, files_of, plan_slices, text_cuts, without_files
from headwater.connectors.files.streams import OpenFile, content_hash, whole_file
from headwater.connectors.protocol import (
    ArrowRead,
    BackfillHint,
    Cursor,
    Json,
    Observed,
    Slice,
    SliceGone,
    SlicePlan,
    SourceTable,
    TableAsk,
    config_error,
)

VERSION = "1"


def open_source(
    config: Mapping[str, object], *, root: Path, resolve: Callable[[str], str], pipeline: str
) -> FilesSource:
    """The files that a config names, relative to the project `root`. `resolve` is not used: files need no secret."""
    return FilesSource(parse_config(config), root=root.absolute(), table=pipeline.replace("-", "_"))


class FilesSource:
    """One set of files. It offers one table, which has no name of its own."""

    connector = "files"
    version = VERSION

    def __init__(self, config: FileFormat, *, root: Path, table: str):
        self.config, self.root, self.table = config, root, table

    def discover(self) -> tuple[SourceTable, ...]:
        return (SourceTable(self.table),)

    def backfill_hint(self) -> BackfillHint:
        return BackfillHint()

    def identity(self, ask: TableAsk) -> str:
        """Always the same: what has landed is known file by file, so the project may move and the patterns may
        change, and still no file lands twice."""
        return self.connector

    def bound(self, ask: TableAsk) -> Json:
        """The time of the scan, by the clock of file times (so not by the clock that tests move)."""
        return {"scanned_at_ns": time.time_ns()}

    def slices(self, ask: TableAsk, cursor: Cursor | None, bound: Json, landed: Mapping[str, Json]) -> SlicePlan:
        """What is new or changed since `landed`. A file is hashed only if its size and mtime prove nothing."""
        found = scan(self.root, self.config.patterns)
        changes = compare(
            found, landed, scanned_at_ns=bound["scanned_at_ns"], content_hash=partial(content_hash, self.root)
        )
        format_ = self._format(found)
        if format_ == "csv":
            self._check_header(ask)
        slices = plan_slices(
            ask.mode,
            changes,
            found,
            format_=format_,
            start=cursor.value if cursor else None,
            end=bound,
            estimate_rows=lambda files: self._estimate_rows(files, format_),
        )
        is_worth_noting = sum(item.version["size"] for item in changes.touched) >= limits.NOTED_BYTES
        touched = changes.touched if is_worth_noting else ()
        return SlicePlan(tuple(slices), self._warnings(ask, changes, found, landed), touched)

    def read(self, ask: TableAsk, slice_: Slice) -> ArrowRead:
        """The partitions of a slice, in the order (file, place in file). Raises SliceGone if a Parquet file is no
        longer as planned; the executors check other files."""
        from headwater.connectors.files.read import ObserveFiles, ReadFiles

        files = files_of(slice_.spec)
        how = self._file_format(ask, slice_)
        observed: Observed | None = None
        if how.format == "parquet":
            from headwater.connectors.files.parquet import cuts_of, merge_footers
            from headwater.connectors.files.read import read_footers

            footers, bad_files = read_footers(self.root, files, how)
            observed = merge_footers(list(footers.values()), ask.declared, bad_files=bad_files)
            readable = [file for file in files if file.source_id in footers]
            partitions = cut_partitions(readable, lambda file: cuts_of(footers[file.source_id], file.size))
        else:
            now_ns = time.time_ns()
            partitions = cut_partitions(files, lambda file: text_cuts(file, how, now_ns))
        if slice_.spec["gone"]:
            partitions = partitions or [{"pieces": []}]
            partitions[-1]["gone"] = slice_.spec["gone"]
        return ArrowRead(
            partitions=tuple(partitions),
            read=ReadFiles(self.root, how, ask.max_bad_rows),
            observe=ObserveFiles(self.root, how),
            observed=observed,
            format=how.format,
            without=without_files,
        )

    def preview(self, ask: TableAsk, slice_: Slice) -> Observed | None:
        from headwater.connectors.files.sample import preview_slice

        return preview_slice(self.root, files_of(slice_.spec), self._file_format(ask, slice_))

    def close(self) -> None:
        """Nothing is held between calls."""

    def _estimate_rows(self, files: Sequence[FoundFile], format_: str | None) -> int | None:
        """The estimated number of rows: the bytes of all files divided by the average line at the beginning of the
        first file that is not empty. None where lines do not show it (JSON, Parquet, compressed files) or the file is
        gone."""
        filled = [file for file in files if file.size]
        if not filled:
            return 0
        if format_ not in ("ndjson", "csv") or any(
            self.config.compression_of(file.source_id) != "none" for file in files
        ):
            return None
        first = filled[0]
        try:
            with OpenFile(self.root, whole_file(first)) as opened:
                head = opened.read(limits.ESTIMATE_BYTES)
        except SliceGone:
            return None
        lines = head.count(b"\n") + (len(head) == first.size and not head.endswith(b"\n"))
        if not lines:
            return None
        headers = len(filled) if format_ == "csv" else 0
        return max(0, round(sum(file.size for file in filled) * lines / len(head)) - headers)

    def _file_format(self, ask: TableAsk, slice_: Slice) -> FileFormat:
        if slice_.spec["format"] == "csv":
            self._check_header(ask)
        return replace(
            self.config,
            format=slice_.spec["format"],
            declared=dict(ask.declared),
            exclude=frozenset(ask.exclude),
            forms=dict(ask.forms),
            primary_key=ask.primary_key,
        )

    def _format(self, found: Sequence[FoundFile]) -> str | None:
        """The one format of all files. Raises HW-C01 if a name says none, or two files have two formats."""
        format_, first = self.config.format or None, ""
        for file in found if format_ is None else ():
            own = format_of(file.source_id)
            if own is None:
                raise config_error(
                    f"the name of {quoted(file.source_id)} tells no format",
                    "set `format`, or leave the file out of `path` (names that begin with `_` or `.` are skipped)",
                )
            if format_ not in (None, own):
                raise config_error(
                    f"{quoted(first)} is {format_} and {quoted(file.source_id)} is {own}: the files of one source have one format",
                    "set `format`, or make one pipeline for each format",
                )
            format_, first = own, first or file.source_id
        for file in found if format_ == "parquet" else ():
            if self.config.compression_of(file.source_id) != "none":
                raise config_error(
                    f"{quoted(file.source_id)} is a compressed Parquet file",
                    "decompress it: a Parquet file is compressed inside, and read from its end",
                )
        return format_

    def _check_header(self, ask: TableAsk) -> None:
        if not self.config.csv.header and not ask.declared:
            raise config_error(
                f"the CSV files of table `{ask.name}` have no header, and the table declares no columns",
                'declare the columns in the order of the files: columns = { id = "long", ... }',
            )

    def _warnings(
        self, ask: TableAsk, changes: Changes, found: Sequence[FoundFile], landed: Mapping[str, Json]
    ) -> tuple[str, ...]:
        if not found and not landed:
            return (f"no file matches {' or '.join(f'`{pattern}`' for pattern in self.config.patterns)}",)
        if not changes.vanished:
            return ()
        shown = ", ".join(quoted(source_id) for source_id in changes.vanished[: limits.ERRORS_SHOWN])
        more = len(changes.vanished) - limits.ERRORS_SHOWN
        names = f"{shown} and {more} more" if more > 0 else shown
        rows = "their rows leave the table" if ask.mode == "replace" and found else "their rows stay in the table"
        return (f"{len(changes.vanished)} landed files are gone ({rows}): {names}",)
