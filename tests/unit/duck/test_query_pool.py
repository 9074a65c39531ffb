"""The processes that run clients' queries: real ones, few of them, for they take a while to start."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forked import context
from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.duck.query_pool import Answer, Query, QueryPool, QueryProcess
from headwater.duck.query_wire import Channel, Columns, End, Failure, Message, Parsed, Rows
from headwater.duck.sandbox import Resources, SessionDefinitions

ENDLESS = "explain analyze select count(*) from range(10000000000) a, range(1000000) b"
NOTHING = SessionDefinitions(tables=(), views=(), listing="SELECT 1", files=())
CHECKS, CHECK_SECONDS = 500, 0.02


@pytest.fixture(scope="module")
def pool() -> Iterator[QueryPool]:
    found = QueryPool(2, 1)
    yield found
    found.close()


def ask(
    pool: QueryPool, sql: str, *, seconds: float = 60, rows: int = 10, wait: float = 60, query: Query | None = None
) -> Answer:
    with pool.process(wait, query) as process:
        process.parse(sql, seconds=seconds)
        spill = Resources(memory_bytes=limits.QUERY_MEMORY_BYTES, temp_directory=process.temp_directory)
        return process.run(NOTHING, root=Path("/"), resources=spill, rows=rows, seconds=seconds)


def failed(pool: QueryPool, sql: str, **more: Any) -> str:
    with pytest.raises(HeadwaterError) as raised:
        ask(pool, sql, **more)
    return raised.value.code


def test_a_place_is_free_again_after_a_query_was_stopped(pool: QueryPool) -> None:
    threads = [threading.Thread(target=failed, args=(pool, ENDLESS), kwargs={"seconds": 0.2}) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ask(pool, "select 1 as a").rows == (b'{"a": 1}',)


def test_a_query_that_finds_no_process_or_no_place_is_refused(pool: QueryPool) -> None:
    with pool.process(60), pool.process(60):
        assert failed(pool, "select 1", wait=0.01) == "HW-H05"
    with pool.reserve(), pool.reserve(), pool.reserve(), pytest.raises(HeadwaterError) as raised, pool.reserve():
        pass
    assert (raised.value.code, raised.value.retryable) == ("HW-H05", True)


def test_a_cancelled_query_ends_with_its_process(pool: QueryPool) -> None:
    cancelling = threading.Thread(target=cancel_once_busy, args=(pool, query := Query()))
    cancelling.start()
    with pytest.raises(HeadwaterError) as raised:
        ask(pool, ENDLESS, query=query)
    cancelling.join()
    assert (raised.value.code, "the client has left" in raised.value.message) == ("HW-Q02", True)
    assert ask(pool, "select 1 as a").columns == ("a",)


def cancel_once_busy(pool: QueryPool, query: Query) -> None:
    eventually(lambda: query.process is not None)
    assert query.process is not None
    pid = pid_of(query.process)
    begun = ticks(pid)
    eventually(lambda: ticks(pid) > begun + 5)
    pool.cancel(query)


def test_a_query_that_is_cancelled_early_takes_no_process_and_one_that_has_ended_loses_none(pool: QueryPool) -> None:
    with pool.reserve() as early:
        pool.cancel(early)
        assert failed(pool, "select 1", query=early) == "HW-Q02"
    with pool.process(60, late := Query()) as process:
        process.parse("select 1", seconds=60)
    pool.cancel(late)
    assert process.is_usable()


def test_an_error_of_a_query_leaves_its_process(pool: QueryPool) -> None:
    with pool.process(60) as process:
        for sql in ("selec", "select * from read_csv('/etc/passwd')"):
            with pytest.raises(HeadwaterError):
                process.parse(sql, seconds=60)
        assert process.is_usable()


def test_a_process_that_dies_costs_one_query(pool: QueryPool) -> None:
    with pytest.raises(HeadwaterError) as raised, pool.process(60) as process:
        os.kill(pid_of(process), signal.SIGKILL)
        process.parse("select 1", seconds=60)
    assert raised.value.code == "HW-Q01"
    assert ask(pool, "select 1 as a").columns == ("a",)


def test_a_process_is_replaced_after_many_queries(pool: QueryPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "QUERY_WORKER_QUERIES", 1)
    with pool.process(60) as process:
        process.parse("select 1", seconds=60)
    eventually(lambda: not exists(pid_of(process)))


def test_a_process_that_keeps_much_memory_is_replaced(pool: QueryPool) -> None:
    sort = "select max(y) from (select repeat('y', 1000) || x y from range(300000) t(x) order by hash(x) limit 1000000)"
    with pool.process(60) as process:
        pid = pid_of(process)
        process.parse("select 1", seconds=60)
        process.run(NOTHING, root=Path("/"), resources=Resources(), rows=1, seconds=60)
        assert process.is_usable()
        process.parse(sort, seconds=60)
        process.run(NOTHING, root=Path("/"), resources=Resources(), rows=1, seconds=60)
        assert not process.is_usable()
    eventually(lambda: not exists(pid))


def test_a_process_has_nothing_of_the_server(pool: QueryPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_TOKEN", "a secret")
    with socket.socket() as listening, pool.process(60) as process:
        listening.listen()
        proc = Path(f"/proc/{pid_of(process)}")
        environment = {entry.split(b"=")[0] for entry in (proc / "environ").read_bytes().split(b"\0") if entry}
        assert environment <= {b"PATH", b"LANG", b"PYTHONPATH", b"LD_LIBRARY_PATH"}
        opened = [str(fd.readlink()) for fd in (proc / "fd").iterdir()]
        assert sum(name.startswith("socket:") for name in opened) == 1
        assert {name for name in opened if name.startswith("/")} <= {"/dev/null"}


def test_what_a_killed_query_put_on_the_disk_is_removed(pool: QueryPool) -> None:
    with pytest.raises(HeadwaterError), pool.process(60) as process:
        assert process.temp_directory is not None
        spilled = Path(process.temp_directory)
        spilled.mkdir()
        (spilled / "duckdb_temp_storage.tmp").write_bytes(b"x")
        process.parse(ENDLESS, seconds=1)
        process.run(NOTHING, root=Path("/"), resources=Resources(), rows=1, seconds=1)
    assert not spilled.exists()


def test_the_processes_end_with_their_server() -> None:
    forking = context()
    here, there = forking.Pipe()
    server = forking.Process(target=_serve_for_ever, args=(there,), daemon=True)
    server.start()
    pids = here.recv()
    os.kill(server.pid or 0, signal.SIGKILL)
    server.join()
    for pid in pids:
        eventually(lambda pid=pid: not exists(pid))


def _serve_for_ever(pipe: Any) -> None:
    pool = QueryPool(2, 0)
    with pool.process(60) as idle, pool.process(60) as busy:
        busy.parse(ENDLESS, seconds=600)
        begun = ticks(pid_of(busy))
        run = {"root": Path("/"), "resources": Resources(), "rows": 1, "seconds": 600}
        threading.Thread(target=busy.run, args=(NOTHING,), kwargs=run, daemon=True).start()
        eventually(lambda: ticks(pid_of(busy)) > begun + 5)
        pipe.send([pid_of(idle), pid_of(busy)])
        threading.Event().wait()


def ticks(pid: int) -> int:
    """The processor time that it has used."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11])


@pytest.mark.parametrize(
    "sent",
    [
        [End(False)],
        [Parsed((), False), Parsed((), False)],
        [Parsed((), False), Columns(("a",), ("x",)), Rows(b"[1, 2, 3]")],
        [Parsed((), False), Columns(("a",), ("x",)), Rows(b"[1, 2"), End(False)],
        [Parsed((), False), Columns(("a",), ("x",)), Rows(b"[" * 100_000), End(False)],
        [Failure("HW-Z99", "no such code")],
        [b"\xff\xff\xff\xffr"],
        [b"\x00\x00\x00\x02z{}"],
        [b"\x00\x00\x00\x02p{}"],
    ],
    ids=range(9),
)
def test_what_a_process_sends_is_not_trusted(sent: list[Message | bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that a query has taken over sends what it likes; this one is played."""
    ours, theirs = socket.socketpair()
    played = Channel(theirs)
    for message in sent:
        if isinstance(message, bytes):
            theirs.sendall(message)
        else:
            played.send(message)
    process = QueryProcess.__new__(QueryProcess)
    killed = Played()
    process.__dict__.update(
        _spill=None,
        _queries=0,
        _failed=False,
        _stopped=None,
        _process=killed,
        _channel=Channel(ours, most_bytes=1 << 20),
    )
    with pytest.raises(HeadwaterError) as raised:
        process.parse("select 1", seconds=60)
        process.run(NOTHING, root=Path("/"), resources=Resources(), rows=2, seconds=60)
    assert raised.value.code == "HW-Q01"
    assert killed.was_killed and not process.is_usable()
    ours.close()
    theirs.close()


class Played:
    """In place of a `Popen`."""

    def __init__(self) -> None:
        self.was_killed = False

    def kill(self) -> None:
        self.was_killed = True

    def wait(self) -> int:
        return -9

    def poll(self) -> int | None:
        return -9 if self.was_killed else None


def pid_of(process: QueryProcess) -> int:
    found: int = process._process.pid
    return found


def exists(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def eventually(is_so: Any) -> None:
    for _ in range(CHECKS):
        if is_so():
            return
        time.sleep(CHECK_SECONDS)
    raise AssertionError("it did not happen")
