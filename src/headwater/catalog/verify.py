"""`context verify`: is every committed file there, byte for byte, and is the log whole? Changes nothing, unless it is
asked to repair the log: the catalog has the text of its records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import select

from headwater.catalog import sql_tables as t
from headwater.catalog.checkpoint import Checkpoint, make_checkpoint, read_checkpoint
from headwater.catalog.commit import Store
from headwater.catalog.log import LogText, decode_record, follows, has_hash, is_whole, stored_texts
from headwater.catalog.lookup import named_paths
from headwater.storage import log_files
from headwater.storage.store_files import data_files, remove, sha256_of


@dataclass(frozen=True)
class StoreProblem:
    """`kind`: missing, wrong_size, wrong_hash, missing_log, damaged_log, damaged_stats, missing_checkpoint,
    damaged_checkpoint."""

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


def verify(store: Store, *, repair: bool = False) -> Verification:
    """Read every file that a committed row names and compare its hash; look at every log record and checkpoint. With
    `repair`, records that are missing or damaged are written again from the catalog, with the bytes that they had, and
    so are cell values that are damaged; those that were deleted are not missed."""
    problems = []
    checked = 0
    with store.catalog.snapshot() as connection:
        files = connection.execute(
            select(t.file.c.path, t.file.c.table_name, t.file.c.bytes, t.file.c.sha256)
            .distinct()
            .order_by(t.file.c.path)
        ).all()
        named = named_paths(connection)
        records, damaged = _check_log(store, stored_texts(connection))
    for path, table, size, digest in files:
        problem = _check_file(store, path, size=size, digest=digest)
        if problem is not None:
            problems.append(StoreProblem(problem, path, table))
        checked += size
    repaired = tuple(problem for problem, text in damaged if repair and _repair_log(store, problem, text))
    problems += [problem for problem, _ in damaged if problem not in repaired]
    extra = tuple(sorted(path for path in data_files(store.layout) if path not in named))
    return Verification(len(files), checked, records, tuple(problems), extra, repaired)


def _check_file(store: Store, path: str, *, size: int, digest: str | None) -> str | None:
    full = store.root / path
    if not full.is_file():
        return "missing"
    if full.stat().st_size != size:
        return "wrong_size"
    if digest is not None and sha256_of(full) != digest:
        return "wrong_hash"
    return None


def _check_log(store: Store, texts: Iterable[LogText]) -> tuple[int, list[tuple[StoreProblem, LogText | None]]]:
    """How many records the log must have, and what is wrong with it: with checkpoints, and with records that the catalog
    knows, which follow the newest checkpoint or the beginning."""
    found: list[tuple[StoreProblem, LogText | None]] = []
    newest: Checkpoint | None = None
    for seq in log_files.checkpoints(store.layout):
        checkpoint = read_checkpoint(store.layout, seq)
        if checkpoint is None:
            found.append((StoreProblem("damaged_checkpoint", f"log/{store.layout.checkpoint(seq).name}"), None))
        elif newest is None and checkpoint.is_usable:
            newest = checkpoint
    count, heads = 0, {newest.seq: newest.head} if newest is not None else {}
    for count, text in enumerate(texts, start=1):
        if count == 1 and text.seq > 1 + (newest.seq if newest is not None else 0):
            found.append((StoreProblem("missing_checkpoint", "log"), None))
        record = decode_record(text.body)
        follows_last = follows(record, heads.get(text.seq - 1)) and heads.setdefault(text.seq, text.hash) == text.hash
        heads.pop(text.seq - 1, None)
        values = log_files.read_values(store.layout, text.seq)
        if not store.layout.log_record(text.seq).is_file():
            found.append((StoreProblem("missing_log", f"log/{text.seq:012d}.json"), text))
        elif not follows_last or not is_whole(store.layout, text):
            found.append((StoreProblem("damaged_log", f"log/{text.seq:012d}.json"), text))
        if values is not None and not has_hash(values, record):
            found.append((StoreProblem("damaged_stats", f"stats/{text.seq:012d}.json"), text))
    return count, found


def _repair_log(store: Store, problem: StoreProblem, text: LogText | None) -> bool:
    """Whether the catalog has what it takes."""
    if text is None:
        if problem.kind == "damaged_checkpoint":
            remove(store.root / problem.path)
        make_checkpoint(store.catalog, store.layout)
    elif problem.kind != "damaged_stats":
        log_files.write_record(store.layout, text.seq, text.body)
    elif text.values is not None:
        log_files.write_values(store.layout, text.seq, text.values, durable=True)
    else:
        return False
    return True
