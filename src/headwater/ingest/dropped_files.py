"""A drop folder on this machine: `<folder>/<table>/...`, every file below a table's folder is for that table.

Names that begin with `.` or `_`, or end in `.tmp` or `.part`, are skipped: they are unfinished files and failed ones.
Only regular files are read, and no symbolic link is followed: a user who may drop files must not read other files
through them. Nothing is ever deleted. A file that cannot be landed is moved to `<folder>/<table>/_failed/`, under the
path that it had, with the reason beside it.

A file is read by the `files` connector, with the rules of a push for unknown columns. A small file is one batch. A large
one is read in parts by executors, first with the table's schema as it is. If a part has columns that the table lacks,
all parts are read again with the columns that the table gets; the rest is rescued.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from headwater.base import limits
from headwater.base.blobs import cannot_write, make_directory, write_whole
from headwater.base.clock import now_us, to_text
from headwater.base.errors import HeadwaterError, SourceFailed, UnusableColumn
from headwater.base.ids import RESCUED, TABLE_NAME_HINT, is_table_name
from headwater.base.printable import printable
from headwater.base.table_schema import TableSchema
from headwater.base.text_form import TextForm
from headwater.base.types import DYNAMIC, STRING, Type
from headwater.coerce.objects import line_pieces
from headwater.coerce.row_errors import BadRow
from headwater.connectors.files.bad_rows import BadRowList
from headwater.connectors.files.config import FORMAT_SUFFIXES, FileFormat, compression_of, format_of
from headwater.connectors.files.json_lines import add_bad_lines, chunks_of_piece
from headwater.connectors.files.read import ReadFiles, open_piece
from headwater.connectors.files.scan import FoundFile
from headwater.connectors.files.slices import cut_partitions, text_cuts
from headwater.connectors.files.streams import OpenFile, Piece, UnreadableFile, whole_file
from headwater.connectors.protocol import (
    ArrowRead,
    BadRows,
    ItemRead,
    Json,
    Observed,
    SliceGone,
    TransientError,
    UnknownColumns,
)
from headwater.ingest.decode import TooLarge
from headwater.ingest.prepare import Prepared, columns_left, joined, prepare, prepare_cells, refuse_rows

if TYPE_CHECKING:
    import pyarrow as pa

FAILED = "_failed"
UNFINISHED = (".tmp", ".part")
FORMATS = ("ndjson", "csv", "parquet")


class Stamp(NamedTuple):
    """A file counts as the same one while all of these stay the same. A program can set the mtime; only the system sets
    the ctime."""

    size: int
    mtime_ns: int
    inode: int
    ctime_ns: int


@dataclass(frozen=True, slots=True)
class Dropped:
    """A file as one scan saw it. `name` is its path below the folder of its table, with `/`."""

    table: str
    name: str
    stamp: Stamp

    @property
    def path(self) -> str:
        return f"{self.table}/{self.name}"


class DropFolder:
    """The folder `drop` of a project, which may be outside of it; `shown` is its name in messages."""

    def __init__(self, project: Path, drop: str):
        self.project, self.root, self.shown = project, project / drop, drop.rstrip("/")

    def scan(self) -> tuple[list[Dropped], dict[str, HeadwaterError]]:
        """Every file of every table, with one stat each, and why other files and folders cannot be taken, by their
        paths. A missing folder has no files."""
        files: list[Dropped] = []
        problems: dict[str, HeadwaterError] = {}
        folders = [""]
        while folders:
            prefix = folders.pop()
            for entry in self._entries(prefix, problems):
                path = prefix + entry.name
                if entry.name[0] in "._" or entry.name.lower().endswith(UNFINISHED):
                    continue
                if entry.is_dir(follow_symlinks=False) and (prefix or is_table_name(path)):
                    folders.append(f"{path}/")
                    continue
                with suppress(OSError):  # gone since it was listed
                    status = entry.stat(follow_symlinks=False)
                    if problem := self._problem(path, status):
                        message = f"`{self._printable(path)}` {problem[0]}"
                        problems[_printable(path)] = HeadwaterError("HW-I04", message, hint=problem[1])
                    else:
                        table, _, name = path.partition("/")
                        files.append(Dropped(table, name, _stamp(status)))
        return files, problems

    def shown_path(self, path: str) -> str:
        """The path of a file or folder in messages; the connector reads it under the same name."""
        return f"{self.shown}/{path}"

    def rows(self, file: Dropped, sha256: str, forms: Mapping[str, TextForm]) -> FileRows:
        """The rows of a file whose hash is known."""
        how = FileFormat(format_of(file.name) or "", forms=forms, takes_all=True, below=self.shown)
        return FileRows(self.project.absolute(), how, self._found(file), sha256, file.table)

    def hash_of(self, file: Dropped) -> str:
        """The sha256 of a file's bytes. Raises `SliceGone` if the file has changed since the scan, and HW-C03."""
        with file_errors(), OpenFile(self.project, whole_file(self._found(file)), below=self.shown) as opened:
            return str(opened.finish().version["sha256"])

    def put_away(self, file: Dropped, reason: dict[str, object]) -> str:
        """Move a file to the folder of failed files, with the reason beside it; returns its new path. The reason is
        written first: after a crash in between, the file fails once more. Raises `SliceGone` if it is no longer the
        file that failed, and HW-T05 if it cannot be moved."""
        source, target = self.root / file.path, self._free(self.root / file.table / FAILED / file.name)
        shown = target.relative_to(self.root)
        for folder in shown.parents[:-1]:
            if (self.root / folder).is_symlink():  # it may lead anywhere
                message = f"`{self._printable(folder)}` is a symbolic link, and nothing is moved through one"
                raise HeadwaterError("HW-T05", message, hint="remove it")
        beside = target.with_name(f"{target.name}.reason.json")
        try:
            make_directory(target.parent)
            body = json.dumps({"file": self.shown_path(file.path), "failed_at": to_text(now_us()), **reason}, indent=2)
            write_whole(beside, body.encode() + b"\n")
            if _stamp(source.lstat()) != file.stamp:
                raise FileNotFoundError(f"{source} is another file by now")
            source.rename(target)
        except OSError as error:
            if not os.path.lexists(target):  # else another process has put it away, with this reason beside it
                with suppress(OSError):
                    beside.unlink()
            if isinstance(error, FileNotFoundError):
                raise SliceGone(str(error)) from error
            raise cannot_write(self._printable(shown), error) from error
        return self.shown_path(shown.as_posix())

    def _free(self, wanted: Path) -> Path:
        """A name that no failed file has yet: those are kept too. Raises HW-T05 if there are too many."""
        name = wanted.name.encode()[-limits.DROP_NAME_BYTES :].decode(errors="ignore")
        first, dot, rest = name.partition(".")
        for number in range(1, limits.DROP_NAMES):
            tried = wanted.with_name(f"{first}-{number}{dot}{rest}" if number > 1 else name)
            if not os.path.lexists(tried):
                return tried
        message = f"{limits.DROP_NAMES - 1} files named `{_printable(name)}` have failed already"
        place = self._printable(wanted.parent.relative_to(self.root))
        raise HeadwaterError("HW-T05", message, hint=f"move them out of `{place}`")

    def _entries(self, prefix: str, problems: dict[str, HeadwaterError]) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self.root / prefix) as entries:
                return sorted(entries, key=lambda entry: entry.name)
        except FileNotFoundError:
            return []
        except OSError as error:
            hint = "let this user read it" if isinstance(error, PermissionError) else "it must be a folder"
            message = f"cannot list `{self._printable(prefix).rstrip('/')}`: {error.strerror or error}"
            problems[_printable(prefix).rstrip("/") or "."] = HeadwaterError("HW-I04", message, hint=hint)
            return []

    def _problem(self, path: str, status: os.stat_result) -> tuple[str, str] | None:
        """Why something cannot be taken, and what to do."""
        if "/" not in path:
            if stat.S_ISLNK(status.st_mode):
                return "is a symbolic link, and those are not followed", "put a folder there"
            if stat.S_ISDIR(status.st_mode):
                return "is a folder whose name no table can have", TABLE_NAME_HINT
            return "lies in no table's folder", f"move it to `{self.shown}/<table>/`"
        if not stat.S_ISREG(status.st_mode):
            return "is not a regular file", "drop the file itself: links, pipes and devices are not read"
        if os.fsencode(path).decode("utf-8", "replace") != path:
            return "has a name that is not UTF-8", "rename it"
        if format_of(path) not in FORMATS:
            known = ", ".join(suffix for suffix, format_ in FORMAT_SUFFIXES.items() if format_ in FORMATS)
            hint = f"rename it: {known}; all but Parquet may end in .gz or .zst too"
            return "has a name without a known format", hint
        if format_of(path) == "parquet" and compression_of(path) != "none":
            return "is a compressed Parquet file", "decompress it: a Parquet file is compressed inside"
        return None

    def _found(self, file: Dropped) -> FoundFile:
        return FoundFile(self.shown_path(file.path), file.stamp.size, file.stamp.mtime_ns)

    def _printable(self, path: str | Path) -> str:
        return _printable(self.shown_path(str(path)))


@dataclass(frozen=True)
class FileRows:
    """Reads the file with the hash `sha256` for the table `table`. Raises HW-I02 for bad rows, HW-I04 for a file that
    does not match its format, HW-C03 for one that cannot be read now, and `SliceGone` if it is no longer that file."""

    root: Path
    how: FileFormat
    file: FoundFile
    sha256: str
    table: str

    def __call__(self, schema: TableSchema, most_bad: int | None) -> Prepared:
        """All rows in one batch. Also raises `TooLarge`."""
        bad = BadRowList(room=most_bad or 0)
        found: list[Prepared] = []
        held = 0
        with file_errors(self.table), open_piece(self.root, self.how, whole_file(self.file)) as opened:
            for prepared in _prepared_rows(opened, ReadFiles(self.root, self.how), schema, bad, added=None):
                found.append(prepared)
                held += prepared.batch.nbytes
                if held > limits.MAX_BODY_BYTES:
                    raise TooLarge(limits.MAX_BODY_BYTES)
            self.check(opened.finish().version)
            bad.raise_if_over()
        return replace(joined(found), bad=tuple(bad.rows))

    def in_parts(self, most_bad: int, added: Sequence[str] | None) -> ArrowRead:
        """The same rows, read by executors. They report columns that the schema lacks. If `added` is given, it has the
        columns of the schema that were added for this file, and all other unknown columns are rescued."""
        with file_errors():
            if self.how.format == "parquet":
                from headwater.connectors.files.parquet import cuts_of, read_footer

                cuts = cuts_of(read_footer(self.root, self.file, self.how), self.file.size)
            else:
                cuts = text_cuts(self.file, self.how, time.time_ns())
        partitions = cut_partitions([self.file], lambda _: cuts)
        return ArrowRead(tuple(partitions), partial(read_part, self.root, self.how, most_bad, added))

    def check(self, version: Json) -> None:
        if version["sha256"] != self.sha256:
            raise SliceGone(f"{self.file.source_id} is another file by now")


def read_part(
    root: Path, how: FileFormat, most_bad: int, added: Sequence[str] | None, partition: Json, schema: TableSchema
) -> Iterator[pa.RecordBatch | ItemRead | BadRow]:
    """`ArrowRead.read` for a part of a large file. Raises `UnknownColumns` with all columns that the schema lacks."""
    bad = BadRowList(room=most_bad)
    lacking: dict[str, Type] = {}
    for piece in map(Piece.from_json, partition["pieces"]):
        with open_piece(root, how, piece) as opened:
            for prepared in _prepared_rows(opened, ReadFiles(root, how), schema, bad, added=added):
                lacking |= {name: STRING for name in prepared.added if schema.column(name) is None}
                if prepared.rescues and schema.column(RESCUED) is None:
                    lacking[RESCUED] = DYNAMIC
                if not lacking:
                    yield prepared.batch
            if piece.start == 0:
                yield opened.finish()
            else:
                opened.check_unchanged()
    bad.raise_if_over()
    if lacking:
        raise UnknownColumns(Observed(lacking))
    yield from bad.rows


def new_columns(schema: TableSchema, observed: Sequence[Observed]) -> tuple[list[str], bool]:
    """The columns that a table gets for the parts of a file, in their order, and whether anything is rescued."""
    names = list(dict.fromkeys(name for each in observed for name in each.columns if name != RESCUED))
    room = columns_left(schema)
    return names[:room], len(names) > room or any(RESCUED in each.columns for each in observed)


@contextmanager
def file_errors(table: str = "") -> Iterator[None]:
    """Translates the connector's errors about a file, and about its rows, into errors of a batch."""
    try:
        yield
    except BadRows as error:
        refuse_rows(error.errors, error.total, table)
    except (UnreadableFile, UnusableColumn) as error:
        raise HeadwaterError("HW-I04", error.message, hint="fix the file and drop it again") from error
    except SourceFailed as error:
        raise HeadwaterError("HW-C03", error.message, hint=error.hint, retryable=True) from error
    except TransientError as error:
        raise HeadwaterError("HW-C03", str(error), retryable=True) from error


def _prepared_rows(
    opened: OpenFile, read: ReadFiles, schema: TableSchema, bad: BadRowList, *, added: Sequence[str] | None
) -> Iterator[Prepared]:
    """The good rows of a piece of a file, in parts; its bad rows go to `bad`. Stops when there are too many of them."""
    schema = schema.formed(read.how.forms)
    known = replace(schema, columns=tuple(column for column in schema.columns if column.name not in (added or ())))
    if read.how.format == "ndjson":
        found = _lines(opened, known, bad, added)
    else:
        found = (prepare_cells(batch, known, added=added) for batch in read.batches(opened, known, bad))
    return (prepared for prepared in found if not bad.is_over and prepared.rows)


def _lines(opened: OpenFile, schema: TableSchema, bad: BadRowList, added: Sequence[str] | None) -> Iterator[Prepared]:
    line = 1 if opened.piece.start == 0 else 2  # only the first line of a file may begin with a byte order mark
    evolve, names = added is None, tuple(added or ())
    for lines in (part for chunk in chunks_of_piece(opened) for part in line_pieces(chunk, limits.PUSH_SMALL_BYTES)):
        prepared = prepare(lines, schema, table="", evolve=evolve, most_bad=None, first_line=line, added=names)
        names, line = prepared.added, line + lines.count(b"\n")
        kept = prepared.bad[: max(bad.room, limits.ERRORS_SHOWN)]
        add_bad_lines(bad, opened, kept, total=len(prepared.bad))
        yield prepared


def _stamp(status: os.stat_result) -> Stamp:
    return Stamp(status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns)


def _printable(name: str) -> str:
    """A name in a message. Bytes that are not UTF-8, and characters that control a terminal or a log, are escaped."""
    return printable(os.fsencode(name).decode("utf-8", "backslashreplace"))
