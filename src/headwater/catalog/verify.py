"""`context verify`: is every committed file there, byte for byte, and is the log whole? Changes nothing, unless it is
asked to repair the log: the catalog has the text of every record."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from sqlalchemy import select

from headwater.base.blobs import sha256_of
from headwater.base.errors import HeadwaterError
from headwater.catalog import sql_tables as t
from headwater.catalog.commit import Store
from headwater.catalog.gc import data_files
from headwater.catalog.log import read_log_record, write_log
from headwater.catalog.lookup import named_paths


@dataclass(frozen=True)
class StoreProblem:
    """`kind`: missing, wrong_size, wrong_hash, missing_log, damaged_log."""

    kind: str
    path: str
    table: str | None = None


@dataclass(frozen=True)
class Verification:
    """`extra` are files that no committed row names: leftovers of losing attempts, for gc."""

    files_checked: int
    bytes_checked: int
    log_records_checked: int
    problems: tuple[StoreProblem, ...]
    extra: tuple[str, ...]
    repaired: tuple[StoreProblem, ...] = ()
    """What was wrong with the log and was made right."""


def verify(
    store: Store, *, repair: bool = False, progress: Callable[[int], None] = lambda _bytes: None
) -> Verification:
    """Read every file that a committed row names and compare its hash; look at every log record. With `repair`, records
    that are missing or damaged are written again from the catalog, with the bytes that they had."""
    with store.catalog.snapshot() as connection:
        files = connection.execute(
            select(t.file.c.path, t.file.c.table_name, t.file.c.bytes, t.file.c.sha256)
            .distinct()
            .order_by(t.file.c.path)
        ).all()
        commits = [seq for (seq,) in connection.execute(select(t.commit.c.seq).order_by(t.commit.c.seq))]
        named = named_paths(connection)
    problems = []
    checked = 0
    for path, table, size, digest in files:
        problem = _check_file(store, path, size=size, digest=digest)
        if problem is not None:
            problems.append(StoreProblem(problem, path, table))
        checked += size
        progress(size)
    damaged = _check_log(store, commits)
    if repair:
        _repair_log(store, damaged)
    else:
        problems += damaged.values()
    extra = tuple(sorted(path for path in data_files(store.layout) if path not in named))
    repaired = tuple(damaged.values()) if repair else ()
    return Verification(len(files), checked, len(commits), tuple(problems), extra, repaired)


def _check_file(store: Store, path: str, *, size: int, digest: str | None) -> str | None:
    full = store.root / path
    if not full.is_file():
        return "missing"
    if full.stat().st_size != size:
        return "wrong_size"
    if digest is not None and sha256_of(full) != digest:
        return "wrong_hash"
    return None


def _check_log(store: Store, commits: list[int]) -> dict[int, StoreProblem]:
    """What is wrong with the log, by sequence."""
    problems = {}
    for seq in commits:
        path = store.layout.log_record(seq)
        if not path.is_file():
            problems[seq] = StoreProblem("missing_log", f"log/{path.name}")
            continue
        try:
            whole = read_log_record(path).seq == seq
        except HeadwaterError:
            whole = False
        if not whole:
            problems[seq] = StoreProblem("damaged_log", f"log/{path.name}")
    return problems


def _repair_log(store: Store, seqs: Collection[int]) -> None:
    for seq in seqs:
        with store.catalog.snapshot() as connection:
            text: str = connection.execute(select(t.commit.c.record).where(t.commit.c.seq == seq)).scalar_one()
        write_log(store.layout, seq, text.encode())
