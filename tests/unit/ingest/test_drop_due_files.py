"""Which dropped files are due: tables of looks, with the time as an argument."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from headwater.base import limits
from headwater.ingest.dropped_files import Dropped, Stamp
from headwater.ingest.due_files import Memory

NOW_NS = 1_800_000_000_000_000_000
YOUNG = NOW_NS - 1_000_000
OLD = NOW_NS - limits.DROP_SETTLED_NS


def new_memory() -> Memory:
    return Memory(Path("nowhere/drop.json"))


def file(name: str = "a.csv", *, table: str = "t", size: int = 1, mtime_ns: int = OLD, inode: int = 7) -> Dropped:
    return Dropped(table, name, Stamp(size, mtime_ns, inode, mtime_ns))


def due(memory: Memory, *files: Dropped, now: float = 0.0) -> list[str]:
    tables, left = memory.due(files, now=now, now_ns=NOW_NS)
    assert left == sum(not memory._files[f.path].is_done for f in files) - sum(map(len, tables.values()))
    return [each.path for files in tables.values() for each in files]


def test_a_file_that_is_old_is_due_at_once() -> None:
    assert due(new_memory(), file()) == ["t/a.csv"]


def test_a_young_file_is_due_when_two_looks_a_scan_apart_saw_the_same() -> None:
    memory, young = new_memory(), file(mtime_ns=YOUNG)
    assert due(memory, young, now=0.0) == []
    assert due(memory, young, now=0.5) == []
    grown = replace(young, stamp=Stamp(2, *young.stamp[1:]))
    assert due(memory, grown, now=1.0) == []
    assert due(memory, grown, now=1.9) == []
    assert due(memory, grown, now=2.0) == ["t/a.csv"]


def test_a_file_of_the_future_is_looked_at_twice_like_any_other() -> None:
    memory, late = new_memory(), file(mtime_ns=NOW_NS + 10**12)
    assert due(memory, late, now=0.0) == []
    assert due(memory, late, now=1.0) == ["t/a.csv"]


def test_the_files_of_a_table_come_in_the_order_of_their_times_and_names() -> None:
    files = [file("b"), file("a"), file("c", mtime_ns=OLD - 1), file("z", table="s")]
    assert due(new_memory(), *files) == ["s/z", "t/c", "t/a", "t/b"]


def test_what_is_done_with_stays_so_until_it_changes() -> None:
    memory = new_memory()
    due(memory, file())
    memory.done(file())
    assert due(memory, file()) == []
    assert due(memory, file(inode=8)) == ["t/a.csv"]
    assert due(memory, file(size=2)) == ["t/a.csv"]


def test_a_file_that_was_young_when_it_was_read_is_read_again() -> None:
    """It may have changed within one tick of the clock of its mtime."""
    memory, young = new_memory(), file(mtime_ns=YOUNG)
    due(memory, young, now=0.0)
    assert due(memory, young, now=1.0) == ["t/a.csv"]
    assert memory.due([young], now=1.5, now_ns=YOUNG + limits.MTIME_TRUST_NS - 1)[1] == 0
    memory.done(young)
    assert memory.due([young], now=2.0, now_ns=YOUNG + limits.MTIME_TRUST_NS) == ({"t": [young]}, 0)
    memory.done(young)
    assert due(memory, young, now=3.0) == []


def test_a_file_that_failed_waits_longer_each_time_and_not_for_ever() -> None:
    memory = new_memory()
    assert memory.failed(file(), now=0.0)
    assert due(memory, file(), now=0.9) == []
    assert due(memory, file(), now=1.0) == ["t/a.csv"]
    assert memory.failed(file(), now=1.0)
    assert due(memory, file(), now=2.9) == []
    assert due(memory, file(), now=3.0) == ["t/a.csv"]
    assert not memory.failed(file(), now=3.0), "these were all tries"


def test_a_file_that_changed_has_all_its_tries_again() -> None:
    memory = new_memory()
    for _ in range(limits.DROP_TRIES - 1):
        assert memory.failed(file(), now=0.0)
    assert memory.failed(file(size=2), now=0.0)


def test_a_table_that_does_not_work_waits_and_pauses_have_a_bound() -> None:
    memory = new_memory()
    for _ in range(2_000):
        memory.table_failed("t", now=0.0)
    assert memory.table_waits("t", now=limits.DROP_PAUSE_SECONDS - 1)
    assert not memory.table_waits("t", now=limits.DROP_PAUSE_SECONDS)
    memory.table_works("t")
    assert not memory.table_waits("t", now=0.0)


def test_a_cleared_ledger_makes_the_files_of_its_table_new() -> None:
    memory = new_memory()
    due(memory, file(), file(table="t2"))
    for each in (file(), file(table="t2")):
        memory.done(each)
    memory.forget({"t"})
    assert due(memory, file(), file(table="t2")) == ["t/a.csv"]


def test_what_is_gone_is_forgotten() -> None:
    memory = new_memory()
    due(memory, file())
    memory.done(file())
    memory.failed(file("b"), now=0.0)
    due(memory)
    assert memory._files == {}
