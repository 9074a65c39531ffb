"""The one way to the bytes of a store: every file of it is read, written, copied and deleted here or in a module beside
this one. DuckDB and Spark get paths of files that are committed. An architecture test keeps other packages from opening
files of a store."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from headwater.base.blobs import cannot_write as cannot_write
from headwater.base.blobs import fsync_directory, write_whole
from headwater.base.blobs import make_directory as make_directory
from headwater.base.blobs import sha256_of as sha256_of
from headwater.base.crash import crash_point
from headwater.storage.layout import Layout

MANIFEST = "_manifest.json"


def read_text(path: Path) -> str | None:
    """The text of a file; None if there is no such file."""
    try:
        return path.read_text()
    except FileNotFoundError:
        return None


def write_text(path: Path, text: str, *, torn: str | None = None, durable: bool = True) -> None:
    """Replace a file whole. `torn` is a crash point."""
    write_whole(path, text.encode(), torn=torn, durable=durable)


def remove(*paths: Path) -> None:
    """Delete files; those that are not there are ignored."""
    for path in paths:
        path.unlink(missing_ok=True)


def copy(path: Path, to: Path) -> None:
    shutil.copyfile(path, to)


def rename(path: Path, to: Path, *, durable: bool = False) -> Path:
    """Put a file in the place of another, at once."""
    path.replace(to)
    if durable:
        fsync_directory(to.parent)
    return to


def files_in(directory: Path, pattern: str) -> list[Path]:
    return sorted(directory.glob(pattern)) if directory.is_dir() else []


def data_files(layout: Layout) -> Iterator[str]:
    """Every file under `tables/*/data`, as relative paths; attempt manifests count with their Parquet files."""
    for table in files_in(layout.tables, "*"):
        for directory, _, names in os.walk(table / "data"):
            relative = Path(directory).relative_to(layout.root).as_posix()
            for name in sorted(names):
                if name != MANIFEST:
                    yield f"{relative}/{name}"


def delete_data_files(root: Path, paths: list[str]) -> None:
    """Delete data files, and the directories that hold none any more."""
    crash_point("gc.before_delete")
    for count, path in enumerate(paths):
        remove(root / path)
        if count == 0:
            crash_point("gc.mid_delete")
    for directory in sorted({(root / path).parent for path in paths}, reverse=True):
        _remove_empty(directory, stop=root / "tables")


def last_attempt(layout: Layout, table: str, run_id: str, unit_id: str) -> int:
    """The highest number of an attempt at a slice that has a directory; 0 if none has."""
    runs = layout.tables / table / "data" / "runs" / run_id
    names = [path.name.removeprefix("attempt-") for path in runs.glob(f"*/chunk-{unit_id}/attempt-*")]
    return max([0, *(int(name) for name in names if name.isdigit())])


def remove_database(path: Path, *, journal_only: bool = False) -> None:
    """Delete a SQLite file with its journal, or the journal alone."""
    remove(*(Path(f"{path}{suffix}") for suffix in ("", "-wal", "-shm")[journal_only:]))


def _remove_empty(directory: Path, *, stop: Path) -> None:
    """Remove a directory that holds no data file any more (its manifest goes with it), and its empty parents."""
    while directory != stop and directory.is_dir():
        left = [entry.name for entry in directory.iterdir()]
        if left == [MANIFEST]:
            remove(directory / MANIFEST)
        elif left:
            return
        try:
            directory.rmdir()
        except OSError:
            return
        directory = directory.parent
