"""Projects that are killed and must come out right, and the processes that do both: forks that share the Spark of the
test (`Resident`), and real ones where Spark's own processes matter (`Project.start`).

A `Project` is a small shop: an append table of several files, an upsert table, a replace table, and a table of three
slices that land side by side. `batch(1)` and `batch(2)` are what its sources hold; the second one adds files and a
column, changes a file (its old rows leave the append table by copy-on-write) and replaces a table. Whatever happens
on the way from one batch to the next, `must_be_settled` says what must be true at the end.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
from sqlalchemy import select as select_rows

from catalog_rows import dump
from headwater.base.ids import uuid7
from headwater.catalog import sql_tables as t
from headwater.catalog.commit import Store, open_existing
from headwater.catalog.lookup import catalog_view, table_states
from headwater.catalog.verify import verify
from headwater.duck.view_files import view_file_text
from headwater.interfaces.cli.main import main
from serve.serving import Child, Warm

WAIT_SECONDS = 180
"""How long anything may take that must come; a test fails after that."""
LOOK_SECONDS = 0.02
ACTOR = "operator:test"

Rows = list[dict[str, Any]]
Answers = dict[str, Rows]
"""The rows of each table, in an order of their own: equal for tables that hold the same."""

MANIFEST = """\
[project]
name = "shop"

[context]
catalog = "{catalog}"

[[pipeline]]
id = "orders"
source = {{ connector = "files", config = {{ path = "data/orders/*.ndjson" }} }}
tables = ["orders"]

[[pipeline]]
id = "customers"
source = {{ connector = "files", config = {{ path = "data/customers/*.ndjson" }} }}
[[pipeline.tables]]
name = "customers"
primary_key = ["id"]

[[pipeline]]
id = "rates"
source = {{ connector = "files", config = {{ path = "data/rates/*.ndjson" }} }}
[[pipeline.tables]]
name = "rates"
mode = "replace"

[[pipeline]]
id = "ticks"
source = {{ connector = "flaky", config = {{ rows = {ticks}, slices = 3 }} }}
[[pipeline.tables]]
name = "rows"
as = "ticks"
primary_key = ["id"]
"""
TABLES = ("orders", "customers", "rates", "ticks")
PLANNED = len(TABLES)
"""The commits that store the work of an apply, one a pipeline, come before the first that lands any."""


def _orders(ids: range, **more: object) -> Rows:
    return [{"id": i, "item": f"item {i}", "amount": i / 4, **more} for i in ids]


FILES: dict[int, dict[str, Rows]] = {
    1: {
        "data/orders/a.ndjson": _orders(range(10)),
        "data/orders/b.ndjson": _orders(range(10, 18)),
        "data/orders/c.ndjson": _orders(range(20, 25)),
        "data/customers/1.ndjson": [{"id": i, "name": f"customer {i}"} for i in range(8)],
        "data/customers/2.ndjson": [{"id": i, "name": f"customer {i}, once more"} for i in range(6, 12)],
        "data/rates/eur.ndjson": [{"day": d, "rate": 1.0 + d / 100} for d in range(5)],
        "data/rates/usd.ndjson": [{"day": d, "rate": 2.0 + d / 100} for d in range(5)],
    },
    2: {
        "data/orders/b.ndjson": _orders(range(10, 15), item="changed"),
        "data/orders/d.ndjson": _orders(range(30, 37), coupon="SPRING"),
        "data/customers/3.ndjson": [{"id": i, "name": f"customer {i}, moved", "city": "Łódź"} for i in range(4, 15)],
        "data/rates/usd.ndjson": [{"day": d, "rate": 3.0 + d / 100} for d in range(6)],
    },
    3: {
        "data/orders/e.ndjson": _orders(range(40, 44), coupon="LATE", gift=True),
        "data/customers/4.ndjson": [{"id": i, "name": f"customer {i}, again"} for i in range(3)],
        "data/rates/eur.ndjson": [{"day": d, "rate": 4.0 + d / 100} for d in range(4)],
    },
}
TICKS = {1: 30, 2: 60, 3: 90}


def _text(rows: Rows) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


ROWS_OF_VERSION = {
    (path, len(_text(rows).encode())): len(rows) for files in FILES.values() for path, rows in files.items()
}
"""How many rows a file holds, by its path and size: each version has another size."""


@dataclass(frozen=True)
class Ran:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def answer(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found

    def ended(self, code: int = 0) -> Ran:
        assert self.code == code, f"ended with {self.code}, not {code}\n{self.out}\n{self.err}"
        return self


class Resident:
    """Runs commands on the Spark that is there: in this process, or in forks of their own (`serve.zygote`)."""

    def __init__(self, warm: Warm):
        self._warm = warm

    def run(self, project: Project, *arguments: str) -> Ran:
        """In this process, to its end."""
        out, err = io.StringIO(), io.StringIO()
        with _surroundings(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(["--project", str(project.root), *arguments])
        return Ran(code, out.getvalue(), err.getvalue())

    def start(self, project: Project, *arguments: str, **environment: str) -> Fork:
        """In a process, and a process group, of its own."""
        out, err = (project.root.parent / f"{uuid7()}.{kind}" for kind in ("out", "err"))
        child = self._warm.start(
            ["--project", str(project.root), *arguments],
            out=out,
            err=err,
            environment={"HEADWATER_ACTOR": ACTOR, **environment},
        )
        return Fork(child, out, err)

    def killed_at(self, project: Project, point: str, *arguments: str) -> None:
        """Run a command that dies at a crash point. Fails if it does not get there."""
        _must_be_killed(self.start(project, *arguments, HEADWATER_CRASH_AT=point).finished(), point)


@dataclass(frozen=True, repr=False)
class Fork:
    """A command that goes on by itself."""

    child: Child
    out: Path
    err: Path

    @property
    def pid(self) -> int:
        return self.child.pid

    def poll(self) -> int | None:
        return self.child.poll()

    def finished(self) -> Ran:
        wait_until(lambda: self.poll() is not None, "the command ends")
        code = self.poll()
        assert code is not None
        return Ran(code, self.out.read_text(), self.err.read_text())


@dataclass(frozen=True)
class Project:
    root: Path
    catalog: str = "sqlite"

    @property
    def store_root(self) -> Path:
        return self.root / ".headwater" / "context" / "shop"

    def batch(self, number: int) -> Project:
        """Have the sources hold this batch too."""
        for path, rows in FILES[number].items():
            full = self.root / path
            full.parent.mkdir(parents=True, exist_ok=True)
            full.write_text(_text(rows))
        (self.root / "headwater.toml").write_text(MANIFEST.format(catalog=self.catalog, ticks=TICKS[number]))
        return self

    def copied(self, root: Path) -> Project:
        shutil.copytree(self.root, root)
        return Project(root, self.catalog)

    def start(
        self, *arguments: str, before_start: Callable[[], None] | None = None, **environment: str
    ) -> subprocess.Popen[str]:
        """A command in a process, and a process group, of its own; `before_start` is called in it first."""
        return subprocess.Popen(
            [sys.executable, "-c", "from headwater.interfaces.cli.main import run; run()", *arguments],
            cwd=self.root,
            env=_environment(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=before_start,
        )

    def run(self, *arguments: str, **environment: str) -> Ran:
        return finished(self.start(*arguments, **environment))

    def killed_at(self, point: str, *arguments: str) -> None:
        """The same as `Resident.killed_at`, in a real process."""
        _must_be_killed(self.run(*arguments, HEADWATER_CRASH_AT=point), point)

    @contextmanager
    def store(self) -> Iterator[Store]:
        store = open_existing(self.store_root, project="shop", catalog_url=self.catalog)
        assert store is not None
        try:
            yield store
        finally:
            store.close()

    def rows(self) -> Answers:
        """All rows as the files on disk show them to a plain DuckDB. Who landed a row, and when, is left out."""
        with duckdb.connect(str(self.store_root / "duck.db"), read_only=True) as connection:
            connection.execute("set timezone = 'UTC'")
            return {table: _rows(connection, table) for table in TABLES}

    def tree(self) -> dict[str, tuple[int, bytes]]:
        """Every file of the store with its time and bytes: equal if and only if nothing was written. The catalog is
        compared by `catalog_rows`: opening it may note how far the log is known to be whole."""
        return {
            path.relative_to(self.store_root).as_posix(): (path.stat().st_mtime_ns, path.read_bytes())
            for path in sorted(self.store_root.rglob("*"))
            if path.is_file() and not path.name.startswith("meta.sqlite")
        }

    def catalog_rows(self) -> dict[str, list[dict[str, Any]]]:
        with self.store() as store:
            return dump(store.catalog)


def _must_be_killed(ran: Ran, point: str) -> None:
    assert ran.code == -signal.SIGKILL, f"`{point}` was not reached: {ran}"


def finished(child: subprocess.Popen[str]) -> Ran:
    try:
        out, err = child.communicate(timeout=WAIT_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        raise
    return Ran(child.returncode, out, err)


def wait_until(fact: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not fact():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(LOOK_SECONDS)


def state_of(pid: int) -> str:
    """The state of a process as the kernel names it (R, S, T for stopped, ...); empty if it is gone or a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
    return "" if state == "Z" else state


def descendants(pid: int) -> set[int]:
    """The processes that a process started, and those that these did: its JVM and the Python workers of that."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(stat.parent.name))
    found: set[int] = set()
    left = [pid]
    while left:
        below = children.get(left.pop(), [])
        found.update(below)
        left += below
    return found


def must_be_honest(project: Project) -> None:
    """What must be true at any moment, also right after a crash: whatever is said to have landed has."""
    with project.store() as store:
        with store.catalog.snapshot() as connection:
            view = catalog_view(connection)
            states = {state.name: state for state in table_states(connection)}
        for (_, table), items in view.items.items():
            for source_id, version in items.items():
                promised = ROWS_OF_VERSION[source_id, version["size"]]
                there = sum(file.sources.get(source_id, 0) for file in states[table].files)
                # A changed file of an upsert table leaves its old rows where they are: its new ones win.
                assert there == promised or (there > promised and states[table].mode == "upsert"), (table, source_id)
        for (_, table), cursor in view.cursors.items():
            if table == "ticks":
                files = [store.root / file.path for file in states[table].files]
                ids = [i for file in files for i in pq.read_table(file, columns=["id"]).column(0).to_pylist()]
                assert set(range(cursor.value)) <= set(ids)
                assert len(ids) == len(set(ids))
        damaged = [problem for problem in verify(store).problems if problem.table is not None]
        assert not damaged


def must_be_settled(project: Project, resident: Resident, expected: Answers) -> None:
    """What must be true once an apply has ended well, whatever happened before it."""
    assert project.rows() == expected
    must_be_honest(project)
    must_be_whole(project, resident)
    with project.store() as store, store.catalog.snapshot() as connection:
        views = {f"{state.name}.sql": view_file_text(state) for state in table_states(connection)}
        states = {row.state for row in connection.execute(select_rows(t.run.c.state))}
        left = connection.execute(select_rows(t.unit.c.unit_id).where(t.unit.c.state == "pending")).all()
    assert {name: (project.store_root / "views" / name).read_text() for name in views} == views
    assert states <= {"success", "superseded"}
    assert not left
    before, known = project.tree(), project.catalog_rows()
    assert "nothing to do" in resident.run(project, "apply").ended().err
    assert project.tree() == before
    assert project.catalog_rows() == known
    resident.run(project, "context", "rebuild-catalog").ended()
    assert project.catalog_rows() == known


def must_be_whole(project: Project, resident: Resident) -> None:
    found = resident.run(project, "context", "verify", "--json")
    assert (found.code, found.answer["verification"]["problems"]) == (0, [])


def _rows(connection: duckdb.DuckDBPyConnection, table: str) -> Rows:
    relation = connection.sql(f'from meta."{table}"')
    kept = [name for name in relation.columns if name not in ("_run_id", "_ingested_at", "_commit_seq")]
    rows = relation.select(*(duckdb.ColumnExpression(name) for name in kept)).fetchall()
    return sorted((dict(zip(kept, row)) for row in rows), key=repr)


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("HEADWATER_")}
    return {**kept, "HEADWATER_ACTOR": ACTOR, **more}


@contextmanager
def _surroundings() -> Iterator[None]:
    """The environment of a command that runs in this process."""
    before = dict(os.environ)
    os.environ["HEADWATER_ACTOR"] = ACTOR
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
