"""Claims, over HTTP on this machine, with a key on every batch and every answer durable: 8 clients that push 500 rows at
a time land 60,000 rows/s, in less than 400 MB of memory; 32 clients that push 50 rows land 10,000 rows/s, 99 of 100
answered within 185 ms; and both at least as fast as a small hand-written endpoint that is as durable.

Usage: python benchmarks/push.py [--seconds N] [--rounds N] [--looks N]
JSON goes to stdout, a table to stderr. The server is `headwater serve`; its clients are threads of this process, on the
same cores. The table has eight declared columns of scalar types. The plain way is `plain_push.py`. Both get the same
requests, in turns; the figures are those of the median round, the memory is the most that the server ever had.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from coerce import PLAIN, rows
from measure import Claim, arguments, headwater, machine, report

TABLE = "events"
START_SECONDS = 60.0
ANSWER_SECONDS = 60.0
LOADS = {"8 x 500": (8, 500), "32 x 50": (32, 50), "1 x 1,000": (1, 1_000)}
"""Clients, and the rows of each of their batches."""


@dataclass(frozen=True)
class Pushed:
    """What became of a load. Milliseconds are those of a request, from its first byte to the last of its answer;
    `server_ms` is the server's processor time for one."""

    rows_per_second: float
    p50_ms: float
    p99_ms: float
    server_ms: float
    pushes: int


class Server:
    """A server in a process of its own, as its clients and its operator see it."""

    def __init__(self, process: subprocess.Popen[str], port: int):
        self.process, self.port = process, port

    @property
    def peak_bytes(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024

    @property
    def processor_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Client:
    """One connection that stays open. It knows of HTTP what is needed here, so that it costs little."""

    def __init__(self, port: int):
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._port = port

    def post(self, path: str, body: bytes, *, kind: str, key: str | None = None) -> bytes:
        keyed = f"Idempotency-Key: {key}\r\n" if key is not None else ""
        head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(body)}\r\n{keyed}\r\n"
        )
        self._socket.sendall(head.encode() + body)
        return self._answer()

    def close(self) -> None:
        self._socket.close()

    def _answer(self) -> bytes:
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._more()
        head, _, body = data.partition(b"\r\n\r\n")
        found = re.search(rb"(?i)content-length: *(\d+)", head)
        assert found is not None and head.startswith(b"HTTP/1.1 200"), data
        while len(body) < int(found[1]):
            body += self._more()
        return body

    def _more(self) -> bytes:
        part = self._socket.recv(65_536)
        assert part, "the server hung up"
        return part


# --- servers


@contextmanager
def headwater_server(root: Path) -> Iterator[Server]:
    columns = ", ".join(f'{name} = "{type_}"' for name, type_ in PLAIN.items())
    root.mkdir()
    (root / "headwater.toml").write_text(
        f'[project]\nname = "bench"\n\n[[pipeline]]\nid = "{TABLE}"\nsource = {{ connector = "push" }}\n'
        f'[[pipeline.tables]]\nname = "{TABLE}"\ncolumns = {{ {columns} }}\n'
    )
    command = [headwater(), "--project", str(root), "serve", "--port", "0", "--quiet"]
    with server_of(command, root) as server:
        yield server


@contextmanager
def plain_server(root: Path) -> Iterator[Server]:
    root.mkdir()
    with server_of([sys.executable, str(Path(__file__).parent / "plain_push.py"), str(root)], root) as server:
        yield server


@contextmanager
def server_of(command: Sequence[str], root: Path) -> Iterator[Server]:
    """A server that says on stderr where it listens, until it is not needed any more."""
    log = root / "server.log"
    with open(log, "w") as said, subprocess.Popen(command, cwd=root, stdout=said, stderr=said, text=True) as process:
        try:
            deadline = time.monotonic() + START_SECONDS
            while (found := re.search(r"http://127\.0\.0\.1:(\d+)", log.read_text())) is None:
                assert process.poll() is None and time.monotonic() < deadline, log.read_text()
                time.sleep(0.05)
            yield Server(process, int(found[1]))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


# --- loads


def load(server: Server, name: str, seconds: float, *, round_: int) -> Pushed:
    """Clients that push one batch after the other, as soon as the one before is answered."""
    clients, size = LOADS[name]
    body = rows(size, PLAIN)
    took: list[list[float]] = [[] for _ in range(clients)]
    faults: list[BaseException] = []
    ready = threading.Barrier(clients + 1)
    ends = [0.0]

    def push(number: int) -> None:
        try:
            client = Client(server.port)
            ready.wait()
            while time.perf_counter() < ends[0]:
                began = time.perf_counter()
                key = f"{round_}-{name}-{number}-{len(took[number])}"
                answer = json.loads(client.post(f"/v1/ingest/{TABLE}", body, kind="application/x-ndjson", key=key))
                took[number].append(time.perf_counter() - began)
                assert (answer["rows_ingested"], answer["replayed"]) == (size, False), answer
            client.close()
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=push, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    began, used = time.perf_counter(), server.processor_seconds
    ends[0] = began + seconds
    ready.wait()
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0]
    passed, used = time.perf_counter() - began, server.processor_seconds - used
    times = sorted(1000 * each for client in took for each in client)
    return Pushed(
        rows_per_second=round(len(times) * size / passed),
        p50_ms=round(statistics.median(times), 1),
        p99_ms=round(times[int(len(times) * 0.99)], 1),
        server_ms=round(1000 * used / len(times), 2),
        pushes=len(times),
    )


def middle(found: Sequence[Pushed]) -> Pushed:
    return sorted(found, key=lambda each: each.rows_per_second)[len(found) // 2]


def visible_ms(server: Server, looks: int) -> list[float]:
    """From the answer to a push to the answer of a query that shows its row. It is asked once: the first must."""
    client, found = Client(server.port), []
    for number in range(looks):
        row = json.dumps({"id": -number - 1, "name": "look"}).encode() + b"\n"
        client.post(f"/v1/ingest/{TABLE}", row, kind="application/x-ndjson", key=f"look-{number}")
        began = time.perf_counter()
        asked = json.dumps({"sql": f"SELECT name FROM {TABLE} WHERE id = {-number - 1}"}).encode()
        answer = json.loads(client.post("/v1/query", asked, kind="application/json"))
        found.append(1000 * (time.perf_counter() - began))
        assert len(answer["rows"]) == 1, answer
    client.close()
    return sorted(found)


def measure(root: Path, asked: Any) -> tuple[dict[str, dict[str, Pushed]], dict[str, Any]]:
    ways: dict[str, dict[str, list[Pushed]]] = {"headwater": {}, "plain": {}}
    with headwater_server(root / "headwater") as server, plain_server(root / "plain") as plain:
        for name in LOADS:  # the first batches make the table, and warm both up
            for each in (server, plain):
                load(each, name, 0.5, round_=-1)
        for round_ in range(asked.rounds):
            for name in LOADS:
                for way, each in (("headwater", server), ("plain", plain)):
                    ways[way].setdefault(name, []).append(load(each, name, asked.seconds, round_=round_))
        peaks = {"headwater": server.peak_bytes, "plain": plain.peak_bytes}
        seen = visible_ms(server, asked.looks)
    visible = {
        "looks": len(seen),
        "p50_ms": round(statistics.median(seen), 1),
        "p99_ms": round(seen[int(len(seen) * 0.99)], 1),
    }
    medians = {way: {name: middle(each) for name, each in found.items()} for way, found in ways.items()}
    return medians, {"peak_mb": {way: round(peak / 1e6) for way, peak in peaks.items()}, "visible": visible}


def main() -> int:
    asked = arguments(__doc__, seconds=5, rounds=5, looks=200)
    here = machine()
    with tempfile.TemporaryDirectory(prefix="headwater-bench-", ignore_cleanup_errors=True) as scratch:
        found, rest = measure(Path(scratch), asked)
    ours, plain = found["headwater"], found["plain"]
    many, small, peak = ours["8 x 500"], ours["32 x 50"], rest["peak_mb"]["headwater"]
    claims = [
        Claim("8 clients push 500 rows at a time", many.rows_per_second, 60_000, False, " rows/s"),
        Claim("8 clients push 500 rows at a time: peak memory of the server", peak, 400, unit=" MB"),
        Claim("32 clients push 50 rows at a time", small.rows_per_second, 10_000, False, " rows/s"),
        Claim("32 clients push 50 rows at a time: p99", small.p99_ms, 185, unit=" ms"),
    ]
    for name in ("8 x 500", "32 x 50"):
        ratio = ours[name].rows_per_second / plain[name].rows_per_second
        claims.append(Claim(f"pushes, {name} rows: rows/s of a small durable endpoint", ratio, 1, False))
    table = [["clients x rows", "rows/s", "p50 ms", "p99 ms", "server ms/push", "pushes"]]
    for way, loads in found.items():
        table += [[f"{name}, {way}", *(f"{value:,}" for value in asdict(one).values())] for name, one in loads.items()]
    visible = rest["visible"]
    table.append(["answer to row in query", "", f"{visible['p50_ms']:,}", f"{visible['p99_ms']:,}", "", ""])
    table.append([f"peak memory: {peak} MB, plain {rest['peak_mb']['plain']} MB", "", "", "", "", ""])
    loads_json = {way: {name: asdict(one) for name, one in loads.items()} for way, loads in found.items()}
    return report("push", claims, {"machine": here, "loads": loads_json, **rest}, table)


if __name__ == "__main__":
    raise SystemExit(main())
