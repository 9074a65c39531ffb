"""Projects that are served by a process of their own, and what a test wants to see of them.

A `Server` is `headwater serve`: forked off the zygote (`Warm`), or a real process that starts its own JVM. Nothing here
limits how long something may take, but for a bound that ends a hang.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import httpx

from headwater.app.demand import is_served
from headwater.catalog.commit import Store, open_existing
from headwater.catalog.engine_records import RunState
from headwater.catalog.engine_state import load_engine
from headwater.catalog.history import PondRun, pond_runs
from headwater.catalog.inbox import take
from headwater.catalog.queue import OPEN, Job, jobs
from headwater.interfaces.cli.main import main

WAIT_SECONDS = 180
"""How long anything may take that must come; a test fails after that."""
LOOK_SECONDS = 0.02
HEADWATER = "from headwater.interfaces.cli.main import run; run()"
TESTS = Path(__file__).parents[1]
OLD_NS = 1_700_000_000_000_000_000
ENDED: tuple[RunState, ...] = ("success", "failed", "superseded", "cancelled")

Rows = list[list[Any]]


@dataclass(frozen=True)
class Answer:
    """What a command said and how it ended."""

    exit: int
    out: str
    err: str

    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found

    def ended(self, code: int = 0) -> Answer:
        assert self.exit == code, f"ended with {self.exit}, not {code}\n{self.out}\n{self.err}"
        return self


class Child(Protocol):
    """A process that a test has started."""

    pid: int

    def poll(self) -> int | None: ...


class Starter(Protocol):
    """Starts `headwater` with these arguments; its output goes to the files."""

    def start(
        self, arguments: Sequence[str], *, out: Path, err: Path, environment: Mapping[str, str], spark: bool = True
    ) -> Child: ...


class Cold:
    """Real processes, as a user starts them."""

    def start(
        self, arguments: Sequence[str], *, out: Path, err: Path, environment: Mapping[str, str], spark: bool = True
    ) -> Child:
        with open(out, "wb") as to_out, open(err, "wb") as to_err:
            return subprocess.Popen(
                [sys.executable, "-c", HEADWATER, *arguments],
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=to_out,
                stderr=to_err,
                start_new_session=True,
            )


@dataclass(repr=False)
class _Forked:
    pid: int
    warm: Warm
    code: int | None = None

    def poll(self) -> int | None:
        if self.code is None:
            self.code = self.warm.ask({"poll": self.pid})
        return self.code


class Warm:
    """Processes that cost milliseconds: see `zygote`. Their Spark is the session of this process, which must be there
    when one is started with it."""

    def __init__(self) -> None:
        self._zygote = subprocess.Popen(
            [sys.executable, "-c", "from serve.zygote import main; main()"],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent / "src"), str(TESTS / "plugins")]),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(
        self,
        arguments: Sequence[str],
        *,
        out: Path,
        err: Path,
        environment: Mapping[str, str],
        spark: bool = True,
        call: str = "headwater.interfaces.cli.main:main",
    ) -> Child:
        """`call` is the function that gets the arguments."""
        asked = {"argv": list(arguments), "environment": dict(environment), "out": str(out), "err": str(err)}
        found = gateway_of_this_process() if spark else None
        return _Forked(int(self.ask({**asked, "call": call, "spark": found})), self)

    def ask(self, asked: Mapping[str, Any]) -> Any:
        assert self._zygote.stdin is not None
        self._zygote.stdin.write(json.dumps(asked) + "\n")
        self._zygote.stdin.flush()
        return json.loads(_line(self._zygote))

    def close(self) -> None:
        assert self._zygote.stdin is not None and self._zygote.stdout is not None
        self._zygote.stdin.close()
        self._zygote.wait(WAIT_SECONDS)
        self._zygote.stdout.close()


def gateway_of_this_process() -> tuple[int, str]:
    """The port and the secret of the JVM that this process has started."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    assert gateway is not None, "the test asks for no Spark session"
    return gateway.gateway_parameters.port, gateway.gateway_parameters.auth_token


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "the process of the test helper has ended"
    return line


@dataclass(repr=False)
class Server:
    """A process under a project: `serve` or `worker`."""

    child: Child
    err: Path

    @property
    def said(self) -> str:
        return self.err.read_text(errors="replace")

    @property
    def alive(self) -> bool:
        return self.child.poll() is None

    @property
    def address(self) -> str:
        return next(word for word in self.said.split() if word.startswith("http://"))

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.child.pid, number)

    def ended(self) -> int:
        wait_until(lambda: not self.alive, f"the process ends: {self.said}")
        code = self.child.poll()
        assert code is not None
        return code


@dataclass(repr=False)
class Project:
    """A project in a directory. Files are written whole, with times that are old and grow: nobody sees half of one,
    and size and time are proof enough that one is as it was."""

    root: Path
    starter: Starter
    catalog: str = "sqlite"
    server: Server | None = None
    environment: dict[str, str] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)
    """What `{name}` stands for in the manifest."""
    written: int = 0
    _store: Store | None = None

    def __post_init__(self) -> None:
        (self.root / "out").mkdir(parents=True, exist_ok=True)

    def manifest(self, text: str | Sequence[str]) -> None:
        """Each is a change of the file, also for one who looks at its size and time."""
        body = text if isinstance(text, str) else "\n".join(text) + "\n"
        for name, value in self.values.items():
            body = body.replace("{" + name + "}", value)
        head = f'[project]\nname = "served"\n[context]\ncatalog = "{self.catalog}"\n'
        self._replace(self.root / "headwater.toml", head + body)

    def write(self, files: Mapping[str, str | Sequence[Any]]) -> None:
        """Lists are lines; those of NDJSON may be objects."""
        for path, content in files.items():
            text = content if isinstance(content, str) else "".join(_line_of(line) for line in content)
            self._replace(self.root / path, text)

    def _replace(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.written += 1
        new = self.root / "out" / "new"
        new.write_text(text)
        os.utime(new, ns=(OLD_NS + self.written * 10**10,) * 2)
        new.replace(path)

    def serve(self, *arguments: str, crash_at: str | None = None, **environment: str) -> Server:
        """Returns when it serves; with `crash_at` it may have died before that."""
        assert self.server is None or not self.server.alive
        crash = {"HEADWATER_CRASH_AT": crash_at} if crash_at is not None else {}
        server = self.start("serve", "--port", "0", *arguments, **crash, **environment)
        wait_until(lambda: "serving" in server.said or not server.alive, "it serves")
        assert server.alive or crash_at is not None, server.said
        if (
            crash_at is None and "HEADWATER_CLOCK_OFFSET_US" not in environment
        ):  # its lease would be one of another time
            assert self.is_served(), "it says that it serves before it runs the engine"
        self.server = server
        return server

    def start(self, *arguments: str, spark: bool = True, **environment: str) -> Server:
        """A command that goes on by itself."""
        self.written += 1
        out, err = (self.root / "out" / f"{self.written}.{kind}" for kind in ("out", "err"))
        err.touch()
        child = self.starter.start(
            ["--project", str(self.root), *arguments],
            out=out,
            err=err,
            environment={**self.environment, **environment},
            spark=spark,
        )
        return Server(child, err)

    def run(self, *arguments: str, spark: bool = True, **environment: str) -> Answer:
        """A command in a process of its own, to its end."""
        started = self.start(*arguments, spark=spark, **environment)
        return answer_of(started)

    def command(self, *arguments: str) -> Answer:
        """A command in this process: for those that start no Spark."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(["--project", str(self.root), *arguments])
        return Answer(code, out.getvalue(), err.getvalue())

    def http(self, method: str, path: str, body: object = None) -> httpx.Response:
        assert self.server is not None
        return httpx.request(method, self.server.address + path, json=body, timeout=WAIT_SECONDS)

    def stop(self) -> None:
        """As Ctrl-C does."""
        if self.server is not None and self.server.alive:
            self.server.signal(signal.SIGTERM)
            assert self.server.ended() == 0, self.server.said

    def kill(self) -> None:
        assert self.server is not None
        if self.server.alive:
            self.server.signal(signal.SIGKILL)
            self.server.ended()

    @contextmanager
    def store(self) -> Iterator[Store]:
        """Open for good: a look every few milliseconds must not cost more than the look."""
        if self._store is None:
            root = self.root / ".headwater" / "context" / "served"
            self._store = open_existing(root, project="served", catalog_url=self.catalog)
            assert self._store is not None
        yield self._store

    def close(self) -> None:
        if self.server is not None and self.server.alive:
            self.server.signal(signal.SIGKILL)
            self.server.ended()
        if self._store is not None:
            self._store.close()

    def rows(self, sql: str) -> Rows:
        answer = self.command("query", sql, "--json").ended()
        return [list(row.values()) for row in answer.json()["rows"]]

    def runs(self, pond: str | None = None) -> list[PondRun]:
        """All runs that are kept, the oldest first."""
        with self.store() as store, store.catalog.snapshot() as connection:
            return pond_runs(connection, pond=pond, limit=None)[::-1]

    def run_counts(self) -> dict[str, dict[str, int]]:
        """How many runs of each pipeline ended how. One that is under way is none yet."""
        found: dict[str, Counter[str]] = {}
        for run in self.runs():
            if run.state in ENDED:
                found.setdefault(run.pond, Counter())[run.state] += 1
        return {pond: dict(counts) for pond, counts in found.items()}

    def jobs(self, pond: str | None = None) -> list[Job]:
        with self.store() as store, store.catalog.snapshot() as connection:
            return jobs(connection, pond=pond, limit=None)[::-1]

    def executions(self) -> dict[str, int]:
        """How many jobs each pipeline had, those that nobody wanted any more left out."""
        return dict(Counter(job.pond for job in self.jobs() if job.state != "cancelled"))

    def states(self) -> dict[str, str]:
        answer = self.command("status", "--json").ended()
        return {found["pipeline"]: found["state"] for found in answer.json()["pipelines"]}

    def is_served(self) -> bool:
        with self.store() as store:
            return is_served(store)

    def is_settled(self) -> bool:
        """Nothing waits, nothing runs, nothing is asked for, but by what has failed or is blocked."""
        with self.store() as store, store.catalog.snapshot() as connection:
            if take(connection, 1) or jobs(connection, states=OPEN, limit=1):
                return False
            ponds = load_engine(connection).ponds.values()
        return not any((p["pull"] or p["targets"]) and not (p["failed"] or p["blocked"]) for p in ponds)

    def until(self, fact: Callable[[], object], what: str) -> None:
        """Waits for something that the server is to bring about; one that died will not."""

        def holds() -> bool:
            assert self.server is None or self.server.alive, f"the server has ended:\n{self.server.said}"
            return bool(fact())

        wait_until(holds, lambda: f"{what}\n{self._report()}")

    def until_settled(self) -> None:
        self.until(self.is_settled, "all has settled")

    def verify(self) -> None:
        self.command("context", "verify", "--json").ended()

    def _report(self) -> str:
        said = self.server.said if self.server is not None else ""
        return "\n".join([said, self.command("status").out, self.command("runs").out])


def answer_of(started: Server) -> Answer:
    code = started.ended()
    return Answer(code, started.err.with_suffix(".out").read_text(), started.said)


def wait_until(fact: Callable[[], object], what: str | Callable[[], str]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    looked = time.monotonic()
    while not fact():
        now = time.monotonic()
        if now >= deadline:
            raise AssertionError(f"waited in vain: {what if isinstance(what, str) else what()}")
        # Who looks all the time keeps the server from what is waited for: a look gets a third of the time at most.
        time.sleep(max(LOOK_SECONDS, 2 * (now - looked)))
        looked = time.monotonic()


def _line_of(line: object) -> str:
    return (line if isinstance(line, str) else json.dumps(line)) + "\n"
