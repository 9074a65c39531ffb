"""Makes `4.sqlite.tar.xz` and `4.postgresql.tar.xz`: a project whose store has format 4, with a run that was interrupted.

It was run once, with the code of commit 29bde7e, the last one before slices became jobs:

    git worktree add --detach ../old 29bde7e
    PYTHONPATH=../old/src:tests python tests/contract/formats/make_store.py

An archive holds the project and its store, without what is made again (`views/`, `duck.db`), and the catalog as SQL in
`catalog.sql`. What the sources hold is in the archive too: tests compute from it which rows they expect.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path

from postgres_server import PostgresServer, postgres_server

HERE = Path(__file__).parent
FIRST_SECONDS = 1_767_600_000
"""Sources are as old as this: a version of a file is its size and its time."""
ENVIRONMENT = {"HEADWATER_NODE": "fixture", "HEADWATER_ACTOR": "operator:fixture"}
MANIFEST = """\
[project]
name = "shop"

[serve]
threads = 1

[[pipeline]]
id = "orders"
source = { connector = "files", config = { path = "data/orders/*.ndjson" } }
[[pipeline.tables]]
name = "orders"
columns = { id = "long", amount = "decimal(8,2)", customer = "string", note = "long" }

[[pipeline]]
id = "customers"
source = { connector = "files", config = { path = "data/customers/*.ndjson" } }
[[pipeline.tables]]
name = "customers"
primary_key = ["name"]
columns = { name = "string", country = "string" }

[[pipeline]]
id = "payments"
source = { connector = "push" }
on_bad_row = "dead_letter"
[[pipeline.tables]]
name = "payments"
primary_key = ["id"]
columns = { id = "long", amount = "decimal(8,2)" }

[[pipeline]]
id = "revenue"
sources = ["orders", "customers"]

[[pipeline.ripples]]
name = "by_country"
sql = "select c.country, sum(o.amount) as revenue from orders o join customers c on o.customer = c.name group by 1"

[[pipeline.ripples]]
name = "seen"
python = "models/seen.py:seen"
mode = "append"

[[pipeline.ripples]]
name = "big_orders"
sql = "select id, amount from orders where amount > 5"
materialize = "view"

[[pipeline.triggers]]
kind = "tide"
max_staleness = "15m"
"""
MODEL = """\
def seen(orders, context):
    return context.changed_rows("orders").select("id")
"""


def lines(rows: Iterable[object]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def orders(first: int, *more: dict[str, object], name: str = "ada") -> str:
    return lines([{"id": i, "amount": f"{i}.50", "customer": name} for i in range(first, first + 3)] + list(more))


class Project:
    """A project under a directory, and commands of the old version in it."""

    def __init__(self, root: Path, catalog: str):
        self.root, self.catalog = root, catalog
        self.seconds = FIRST_SECONDS

    def write(self, path: str, text: str) -> None:
        full = self.root / path
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_text(text)
        self.seconds += 60
        os.utime(full, ns=(self.seconds * 10**9, self.seconds * 10**9))

    def run(self, *arguments: str, crash_at: str | None = None) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HEADWATER_")}
        environment = {**kept, **ENVIRONMENT, "HEADWATER_CONTEXT__CATALOG": self.catalog}
        if crash_at is not None:
            environment["HEADWATER_CRASH_AT"] = crash_at
        command = [sys.executable, "-c", "from headwater.faces.cli.main import run; run()", *arguments]
        done = subprocess.run(command, cwd=self.root, env=environment, capture_output=True, text=True)
        assert done.returncode == (0 if crash_at is None else -signal.SIGKILL), (arguments, done)

    def push(self, table: str, number: int, rows: Iterable[object], crash_at: str | None = None) -> None:
        path = f"pushed/{table}/{number:02}.ndjson"
        self.write(path, lines(rows))
        self.run("ingest", table, path, "--key", f"batch-{number}", crash_at=crash_at)


def fill(project: Project) -> None:
    """First a store that is settled, then changes of its sources and a run over them that is killed."""
    project.write("headwater.toml", MANIFEST)
    project.write("models/seen.py", MODEL)
    for month, first in (("01", 1), ("02", 11), ("03", 21)):
        project.write(f"data/orders/2026-{month}.ndjson", orders(first, name="bob" if month == "02" else "ada"))
    project.write("data/orders/2026-04.ndjson", orders(31, {"id": 39, "amount": "a lot"}, {"id": 38, "note": "gift"}))
    project.write(
        "data/customers/1.ndjson", lines([{"name": "ada", "country": "DE"}, {"name": "bob", "country": "FR"}])
    )
    project.write("drop/payments/monday.csv", "id,amount\n101,1.00\n102,lots\n103,3.00\n")
    project.write("drop/events/monday.ndjson", lines({"label": "dropped", "body": str(i)} for i in range(3)))
    project.run("apply")
    for number in range(11):
        project.push("events", number, [{"label": "pushed", "body": f"{number}.{i}"} for i in range(2)])
    for number in range(3):
        rows = [{"id": i, "amount": f"{number}.{i}0"} for i in range(number, 5)]
        project.push("payments", number, [*rows, {"id": 50 + number, "amount": "none"}])
    project.run("wave", "revenue", "--name", "launch")
    project.run("tide", "orders", "--max-staleness", "10m", "--name", "ten")
    # A new file and three changed ones are four slices; of them one lands and one is written when the process dies.
    for month, first in (("01", 1), ("02", 11), ("03", 21)):
        changed = {"id": first + 5, "amount": "5.25", "customer": "eve"}
        project.write(f"data/orders/2026-{month}.ndjson", orders(first, changed))
    project.write("data/orders/2026-05.ndjson", orders(41, {"id": 49, "amount": "a lot"}))
    project.write(
        "data/customers/2.ndjson", lines([{"name": "bob", "country": "IT"}, {"name": "eve", "country": "ES"}])
    )
    project.write("drop/payments/tuesday.csv", "id,amount\n101,1.75\n104,4.00\n")
    project.run("apply", crash_at="commit.before@6")
    project.push("events", 11, [{"label": "pushed", "body": "11.0"}], crash_at="commit.after")


def sqlite_dump(store: Path) -> str:
    with sqlite3.connect(store / "meta.sqlite") as connection:
        text = "\n".join(connection.iterdump())
    connection.close()
    return text + "\n"


def postgres_dump(server: PostgresServer, url: str) -> str:
    command = [server._bin / "pg_dump", "--no-owner", "--no-privileges", "--inserts", "--dbname", url]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    # Comments name the version of the program; psql's own commands are none of SQL.
    kept = [
        line
        for line in text.splitlines()
        if line and not line.startswith(("--", "\\", "SET ", "SELECT pg_catalog.set_config"))
    ]
    return "\n".join(kept) + "\n"


def check(store: Path) -> None:
    """The run must be interrupted where it is meant to be: one slice has landed, one is written, two are not begun."""
    records = [json.loads(path.read_text())["record"]["changes"] for path in store.glob("log/[0-9]*.json")]
    done = {change["unit_id"] for changes in records for change in changes if change["do"] == "unit_done"}
    planned = [change for changes in records for change in changes if change["do"] == "units_planned"]
    (units,) = [each["units"] for each in planned if len(each["units"]) == 4]
    landed = [unit["unit_id"] in done for unit in units]
    assert landed == [True, False, False, False], landed
    assert list(store.glob(f"tables/orders/data/runs/*/*/chunk-{units[1]['unit_id']}/**/*.parquet"))


def pack(project: Project, dump: str, archive: Path) -> None:
    store = project.root / ".headwater" / "context" / "shop"
    check(store)
    for name in ("views", "duck.db"):
        path = store / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    for path in (*store.glob("meta.sqlite*"), *(project.root / ".headwater").glob("*")):
        if path.is_file():
            path.unlink()
    (project.root / "catalog.sql").write_text(dump)

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mtime = int(member.mtime)
        return member

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz") as tar:
        for path in sorted(project.root.iterdir()):
            tar.add(path, path.name, filter=plain)
    archive.write_bytes(packed.getvalue())


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        project = Project(Path(directory) / "sqlite", "sqlite")
        fill(project)
        store = project.root / ".headwater" / "context" / "shop"
        pack(project, sqlite_dump(store), HERE / "4.sqlite.tar.xz")
        with postgres_server() as server:
            url = server.create_database()
            project = Project(Path(directory) / "postgresql", url)
            fill(project)
            pack(project, postgres_dump(server, url), HERE / "4.postgresql.tar.xz")


if __name__ == "__main__":
    main()
