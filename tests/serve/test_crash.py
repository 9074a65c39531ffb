"""`serve` killed at every crash point that it can reach: the next one goes on where it was.

The points are chained in one project: each server is the successor of the one that was killed and dies at the next
point, and each time new rows have arrived and are asked for. In the end the tables are those of a server that was
never killed, no run is doubled, nothing has failed.
"""

from __future__ import annotations

import signal

import duckdb
import pytest

from headwater.base.crash import POINTS
from serve.serving import Project

MANIFEST = """\
[[pipeline]]
id = "orders"
poll = "20ms"
source = { connector = "files", config = { path = "data/orders*.ndjson" } }
[[pipeline.tables]]
name = "orders"
columns = { id = "long", amount = "real", customer = "string" }

[[pipeline]]
id = "revenue"
sources = ["orders"]
[[pipeline.ripples]]
name = "by_customer"
sql = "select customer, sum(amount) as revenue, count(*) as orders from orders group by 1"
[[pipeline.ripples]]
name = "totals"
sql = "select sum(revenue) as revenue, sum(orders) as orders from by_customer"

[[pipeline]]
id = "log"
sources = ["revenue"]
[[pipeline.ripples]]
name = "seen"
mode = "append"
sql = "select orders from totals"
"""
CHAINS = {
    "engine": [
        "owner.after_lease",
        "step.before",
        "step.inside",
        "step.after",
        "step.before@2",
        "step.inside@3",
        "step.after@3",
        "step.after@5",
    ],
    "jobs": [
        "job.after_lease",
        "job.inside_end",
        "job.after_lease@2",
        "job.after_lease@3",
        "plan.before_commit",
        "plan.after_commit",
        "unit.after_lease",
    ],
    "commits": [
        "commit.before",
        "commit.inside",
        "commit.inside@2",
        "commit.after@2",
        "commit.inside@3",
        "commit.after@3",
        "log.torn",
        "log.after@3",
        "stats.torn",
        "stats.after@3",
        "view.before",
        "view.torn",
    ],
}
ELSEWHERE = {
    "part": "in Spark's workers: `tests/crash` kills there",
    "gc": "a command of its own",
    "checkpoint": "every 10,000 commits, and by gc: its own tests kill there",
    "schema": "a command of its own",
    "ingest": "rows that are pushed: its own tests kill there",
    "tail": "files of pushed rows: its own tests kill there",
}


def test_every_crash_point_has_a_case_or_a_reason() -> None:
    cases = {point.partition("@")[0] for chain in CHAINS.values() for point in chain}
    assert cases == {point for point in POINTS if point.partition(".")[0] not in ELSEWHERE}


@pytest.mark.parametrize("chain", CHAINS)
def test_a_server_that_was_killed_is_gone_on_with_by_the_next(chain: str, project: Project) -> None:
    project.manifest(MANIFEST)
    points = CHAINS[chain]
    for number, point in enumerate(points):
        project.write({f"data/orders{number}.ndjson": [order(number, part) for part in range(3)]})
        assert project.command("pulse", "log").exit == 0
        project.serve(crash_at=point)
        assert project.server is not None
        assert project.server.ended() == -signal.SIGKILL, f"{point} was not reached:\n{project.server.said}"
    project.serve()
    project.until_settled()
    must_be_as_if_never_killed(project, len(points))
    project.stop()
    project.verify()
    again = project.run("apply").ended()
    assert "nothing to do" in again.err


def test_views_that_a_killed_server_did_not_write_are_written_by_the_next(project: Project) -> None:
    """Also if there is nothing else to do: who reads `duck.db` asks nobody."""
    project.manifest(MANIFEST)
    project.write({"data/orders.ndjson": [order(1, part) for part in range(3)]})
    project.command("pulse", "orders").ended()
    project.serve(crash_at="view.before")
    assert project.server is not None and project.server.ended() == -signal.SIGKILL
    assert not shown(project)
    project.serve()
    project.until(lambda: shown(project) == [(10,), (11,), (12,)], "the views are written")
    project.stop()


def shown(project: Project) -> list[tuple[int]]:
    """The rows as a plain DuckDB sees them."""
    path = project.root / ".headwater" / "context" / "served" / "duck.db"
    if not path.exists():
        return []
    with duckdb.connect(str(path), read_only=True) as connection:
        try:
            return connection.sql("SELECT id FROM orders ORDER BY 1").fetchall()
        except duckdb.CatalogException:
            return []


def must_be_as_if_never_killed(project: Project, batches: int) -> None:
    ids = project.rows("SELECT id FROM orders ORDER BY 1")
    assert ids == [[number * 10 + part] for number in range(batches) for part in range(3)]
    assert project.rows("SELECT customer, orders FROM by_customer ORDER BY 1") == [
        [f"customer {part}", batches] for part in range(3)
    ]
    assert project.rows("SELECT orders FROM totals") == [[3 * batches]]
    seen = [row[0] for row in project.rows("SELECT orders FROM seen ORDER BY orders")]
    assert seen[-1] == 3 * batches
    assert len(seen) == len(set(seen)), "a run was doubled"
    assert set(project.states().values()) == {"idle"}
    counts = project.run_counts()
    assert all(set(ended) <= {"success", "superseded"} for ended in counts.values()), counts
    assert counts["log"]["success"] == len(seen)
    # What an attempt landed before it was killed is not counted again by the next one.
    assert sum(run.rows for run in project.runs("orders")) <= 3 * batches
    assert not [run for run in project.runs() if run.state == "running"]
    assert not [job for job in project.jobs() if job.state not in ("done", "cancelled")]


def order(number: int, part: int) -> dict[str, object]:
    return {"id": number * 10 + part, "amount": 1.0, "customer": f"customer {part}"}
