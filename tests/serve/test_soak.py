"""A served project under random demand, random data, random changes and random kills ends with the tables that a fresh
project makes from the same files.

An ordinary run is a fixed number of steps on forked servers. `HEADWATER_SOAK_SECONDS=300` goes on for that long with
real processes, each with its own JVM; `HEADWATER_SOAK_SEED` repeats a run.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from serve.conftest import MakeProject
from serve.serving import Cold, Project, Rows, Warm

SECONDS = float(os.environ.get("HEADWATER_SOAK_SECONDS", "0"))
SEED = int(os.environ.get("HEADWATER_SOAK_SEED", "0")) or random.randrange(1, 1_000_000)
STEPS = 60
MANIFEST = """\
[[pipeline]]
id = "orders"
poll = "100ms"
source = {{ connector = "files", config = {{ path = "data/orders*.ndjson" }} }}
[[pipeline.tables]]
name = "orders"
columns = {{ id = "long", customer = "string", amount = "long" }}

[[pipeline]]
id = "customers"
poll = "100ms"
source = {{ connector = "files", config = {{ path = "data/customers*.ndjson" }} }}
[[pipeline.tables]]
name = "customers"
primary_key = ["name"]
columns = {{ name = "string", country = "string", version = "long" }}

[[pipeline]]
id = "revenue"
sources = ["orders"]
[[pipeline.ripples]]
name = "by_customer"
sql = "select customer, {revenue}(amount) as revenue, count(*) as orders from orders group by 1"

[[pipeline]]
id = "countries"
sources = ["revenue", {{ pipeline = "customers", required = false }}]
[[pipeline.ripples]]
name = "by_country"
sql = "select coalesce(c.country, '?') as country, sum(r.orders) as orders from by_customer r left join customers c on r.customer = c.name group by 1"
[[pipeline.ripples]]
name = "best"
python = "models/best.py:best"

[[pipeline]]
id = "report"
sources = ["countries", "customers"]
[[pipeline.ripples]]
name = "report"
primary_key = ["name"]
mode = "upsert"
sql = "select c.name, c.country, b.orders as orders_there, {factor} as factor from customers c join by_country b on b.country = c.country"
"""
BEST = """\
def best(by_country):
    return by_country.selectExpr("max(orders) + {bonus} as orders")
"""
PIPELINES = ("orders", "customers", "revenue", "countries", "report")
TABLES = {
    "orders": "SELECT id, customer, amount FROM orders ORDER BY id",
    "customers": "SELECT name, country, version FROM customers ORDER BY name",
    "by_customer": "SELECT customer, revenue, orders FROM by_customer ORDER BY 1",
    "by_country": "SELECT country, orders FROM by_country ORDER BY 1",
    "best": "SELECT orders FROM best",
    "report": "SELECT name, country, orders_there, factor FROM report ORDER BY 1",
}
CUSTOMERS = [f"customer {number}" for number in range(8)]


@dataclass
class Soak:
    """What is done to a project, one random step after the other. All that it does is in `done`."""

    project: Project
    random: random.Random
    written: int = 0
    revenue: str = "sum"
    factor: int = 1
    bonus: int = 0
    kills: int = 0
    done: list[str] = field(default_factory=list)

    def begin(self) -> None:
        self.write_manifest()
        self.write_best()
        self.project.write({"data/customers0.ndjson": [self.customer(name) for name in CUSTOMERS]})
        self.orders()
        self.project.serve()

    def step(self) -> None:
        steps: list[tuple[int, Callable[[], None]]] = [
            (6, self.orders),
            (2, self.customers),
            (4, self.demand),
            (2, self.stand),
            (2, self.fall),
            (1, self.change_sql),
            (1, self.change_python),
            (2, self.kill),
            (1, self.restart),
            (4, self.rest),
        ]
        chosen = self.random.choices([step for _, step in steps], [weight for weight, _ in steps])[0]
        self.done.append(chosen.__name__)
        chosen()

    def orders(self) -> None:
        self.written += 1
        rows = [
            {
                "id": self.written * 100 + n,
                "customer": self.random.choice(CUSTOMERS),
                "amount": self.random.randrange(100),
            }
            for n in range(self.random.randrange(1, 20))
        ]
        self.project.write({f"data/orders{self.written}.ndjson": rows})

    def customers(self) -> None:
        """One file holds the newest word on a customer: which of two files wins is no matter of this test."""
        self.written += 1
        old = (self.project.root / "data/customers0.ndjson").read_text().splitlines()
        rows = {row["name"]: row for row in map(json.loads, old)}
        name = self.random.choice(CUSTOMERS)
        rows[name] = self.customer(name)
        self.project.write({"data/customers0.ndjson": list(rows.values())})

    def customer(self, name: str) -> dict[str, object]:
        return {"name": name, "country": self.random.choice(["DE", "FR", "PL"]), "version": self.written}

    def demand(self) -> None:
        self.project.command(self.random.choice(["tap", "pulse"]), self.random.choice(PIPELINES)).ended()

    def stand(self) -> None:
        name = self.random.choice(PIPELINES)
        if self.random.random() < 0.5:
            self.project.command("wave", name, "--name", "soak").ended()
        else:
            self.project.command("tide", name, "--max-staleness", "300ms", "--name", "soak").ended()

    def fall(self) -> None:
        self.project.command("trigger", "remove", self.random.choice(PIPELINES)).ended()

    def change_sql(self) -> None:
        self.revenue, self.factor = self.random.choice(["sum", "max", "min"]), self.factor + 1
        self.write_manifest()

    def change_python(self) -> None:
        self.bonus += 1
        self.write_best()

    def kill(self) -> None:
        self.project.kill()
        self.kills += 1
        self.project.serve()

    def restart(self) -> None:
        self.project.stop()
        self.project.serve()

    def rest(self) -> None:
        """Lets it work for a moment: which one is the machine's, and of no matter."""
        time.sleep(self.random.random())

    def write_manifest(self) -> None:
        self.project.manifest(MANIFEST.format(revenue=self.revenue, factor=self.factor))

    def write_best(self) -> None:
        self.project.write({"models/best.py": BEST.format(bonus=self.bonus)})

    def end(self) -> None:
        """Everything that stands is removed; what the last files say is asked for once, and met."""
        self.project.kill()
        self.project.serve()
        for name in PIPELINES:
            self.project.command("trigger", "remove", name).ended()
        self.project.run("apply").ended()
        self.project.until_settled()


def tables(project: Project) -> dict[str, Rows]:
    return {name: project.rows(sql) for name, sql in TABLES.items()}


def copied(soaked: Project, fresh: Project) -> Project:
    """The same files, and no store."""
    for name in ("data", "models"):
        shutil.copytree(soaked.root / name, fresh.root / name)
    shutil.copy(soaked.root / "headwater.toml", fresh.root / "headwater.toml")
    return fresh


def test_a_soaked_project_equals_a_fresh_one(make_project: MakeProject, warm: Warm, tmp_path: Path) -> None:
    starter = Cold() if SECONDS else warm
    project = make_project(starter, "soaked")
    soak = Soak(project, random.Random(SEED))
    try:
        soak.begin()
        end = time.monotonic() + SECONDS
        while time.monotonic() < end if SECONDS else len(soak.done) < STEPS:
            soak.step()
        soak.end()
        fresh = copied(project, make_project(warm, "fresh"))
        for _ in range(2):  # the first may read an optional source before that has landed
            fresh.run("apply").ended()
        assert tables(project) == tables(fresh)
        assert set(project.states().values()) == {"idle"}
        failed = [run for run in project.runs() if run.state == "failed"]
        assert not failed, failed
        assert not [run for run in project.runs() if run.state == "running"]
        project.stop()
        project.verify()
        assert "nothing to do" in project.run("apply").ended().err
    except BaseException as error:
        error.add_note(f"HEADWATER_SOAK_SEED={SEED}, {len(soak.done)} steps, {soak.kills} kills: {soak.done}")
        raise
