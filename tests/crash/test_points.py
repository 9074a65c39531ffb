"""Killed at every crash point, applied again: the tables are as if nothing had happened.

Most cases start from a project that has landed one batch and is killed while it lands the second: rows are added,
retired and replaced, columns appear. `@n` is the n-th time that the point is passed: the first commits store the
work of each pipeline, the later ones land it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import contract.engine_home
import contract.ingesting
import contract.tailing
from crash.conftest import CrashFree
from crash.harness import PLANNED, Project, Resident, must_be_honest, must_be_settled
from headwater.base.crash import POINTS

FIRST_LANDING = f"@{PLANNED + 1}"
IN_BETWEEN = f"@{PLANNED + 3}"

APPLY_POINTS = [
    "plan.before_commit",
    "plan.after_commit",
    f"plan.after_commit@{PLANNED}",
    "unit.after_lease",
    "commit.before",
    f"commit.before{FIRST_LANDING}",
    "commit.inside",
    f"commit.inside{FIRST_LANDING}",
    f"commit.inside{IN_BETWEEN}",
    "commit.after",
    f"commit.after{FIRST_LANDING}",
    "stats.torn",
    "stats.after",
    f"stats.after{FIRST_LANDING}",
    "log.torn",
    f"log.torn{FIRST_LANDING}",
    "log.after",
    f"log.after{FIRST_LANDING}",
]
IN_WORKERS = ["part.mid", "part.before_fsync", "part.after_fsync"]
VIEW_POINTS = ["view.before", "view.torn", "view.torn@3"]
GC_POINTS = ["gc.before_delete", "gc.mid_delete", "checkpoint.torn", "checkpoint.after", "checkpoint.mid_delete"]
SCHEMA_POINTS = ["schema.before_accept"]


def test_every_crash_point_has_a_case(landed: Project, resident: Resident) -> None:
    cases = {
        point.partition("@")[0] for point in (*APPLY_POINTS, *IN_WORKERS, *VIEW_POINTS, *GC_POINTS, *SCHEMA_POINTS)
    }
    cases.update(contract.engine_home.CRASH_POINTS)
    cases.update(contract.ingesting.CRASH_POINTS)
    cases.update(contract.tailing.CRASH_POINTS)
    listed = resident.run(landed, "doctor", "crash-points", "--json").ended().answer["crash_points"]
    assert set(listed) == cases == set(POINTS)


@pytest.mark.parametrize("point", IN_WORKERS)
def test_a_real_apply_whose_worker_was_killed_with_it_is_finished_by_the_next(
    landed: Project, resident: Resident, crash_free: CrashFree, point: str
) -> None:
    """The way of a crash point into Spark's workers is that of the environment: through the JVM of the command."""
    landed.batch(2).killed_at(point, "apply")
    must_be_honest(landed)
    resident.run(landed, "apply").ended()
    must_be_settled(landed, resident, crash_free.rows[2])


@pytest.mark.parametrize("point", APPLY_POINTS)
def test_an_apply_that_was_killed_is_finished_by_the_next(
    landed: Project, resident: Resident, crash_free: CrashFree, point: str
) -> None:
    resident.killed_at(landed.batch(2), point, "apply")
    must_be_honest(landed)
    resident.run(landed, "apply").ended()
    must_be_settled(landed, resident, crash_free.rows[2])


@pytest.mark.parametrize("point", ["part.after_fsync", f"commit.inside{FIRST_LANDING}", f"commit.after{FIRST_LANDING}"])
def test_a_first_apply_that_was_killed_is_finished_by_the_next(
    tmp_path: Path, resident: Resident, crash_free: CrashFree, point: str
) -> None:
    project = Project(tmp_path / "project").batch(1)
    resident.killed_at(project, point, "apply")
    must_be_honest(project)
    resident.run(project, "apply").ended()
    must_be_settled(project, resident, crash_free.rows[1])


def test_a_store_whose_making_was_killed_is_made_by_the_next(
    tmp_path: Path, resident: Resident, crash_free: CrashFree
) -> None:
    """The first commit ever: the catalog is there, its log is not."""
    project = Project(tmp_path / "project").batch(1)
    resident.killed_at(project, "commit.after", "apply")
    resident.killed_at(project, "log.torn", "apply")
    resident.run(project, "apply").ended()
    must_be_settled(project, resident, crash_free.rows[1])


@pytest.mark.parametrize(
    "points",
    [
        ("plan.after_commit", f"commit.after{FIRST_LANDING}", "log.torn", "view.before"),
        ("part.before_fsync", "unit.after_lease@2", "view.torn"),
    ],
    ids=" then ".join,
)
def test_one_crash_after_the_other_changes_nothing(
    landed: Project, resident: Resident, crash_free: CrashFree, points: tuple[str, ...]
) -> None:
    landed.batch(2)
    for point in points:
        resident.killed_at(landed, point, "apply")
        must_be_honest(landed)
    resident.run(landed, "apply").ended()
    must_be_settled(landed, resident, crash_free.rows[2])


@pytest.mark.parametrize("point", ["plan.after_commit@2", "part.after_fsync", f"commit.after{FIRST_LANDING}"])
def test_what_arrives_between_a_crash_and_the_next_apply_lands_with_it(
    landed: Project, resident: Resident, crash_free: CrashFree, point: str
) -> None:
    """One apply is enough: it finishes the run that was planned, then looks at the source again."""
    resident.killed_at(landed.batch(2), point, "apply")
    landed.batch(3)
    resident.run(landed, "apply").ended()
    must_be_settled(landed, resident, crash_free.rows[3])


@pytest.mark.parametrize("point", ["plan.after_commit", "part.after_fsync", "commit.inside@2"])
def test_a_file_that_changes_after_the_crash_lands_as_it_is_then(
    landed: Project, resident: Resident, crash_free: CrashFree, point: str
) -> None:
    """The slice that was planned is gone: a new plan takes its place."""
    landed.batch(2)
    changed = landed.root / "data/orders/b.ndjson"
    final = changed.read_text()
    changed.write_text("".join(final.splitlines(keepends=True)[:2]))
    resident.killed_at(landed, point, "apply", "orders")
    changed.write_text(final)
    resident.run(landed, "apply").ended()
    must_be_settled(landed, resident, crash_free.rows[2])


@pytest.mark.parametrize("point", VIEW_POINTS)
def test_old_views_are_mended_by_an_apply_that_has_nothing_to_land(
    landed: Project, resident: Resident, crash_free: CrashFree, point: str
) -> None:
    resident.killed_at(landed.batch(2), point, "apply")
    assert "nothing to do" in resident.run(landed, "apply").ended().err
    must_be_settled(landed, resident, crash_free.rows[2])


@pytest.mark.parametrize("point", GC_POINTS)
def test_a_gc_that_was_killed_is_finished_by_the_next(
    landed: Project, resident: Resident, crash_free: CrashFree, point: str
) -> None:
    """There is something of each kind to delete: retired files, and the leftovers of an attempt that was killed."""
    resident.killed_at(landed.batch(2), "part.after_fsync", "apply")
    resident.run(landed, "apply").ended()
    resident.killed_at(landed, point, "context", "gc", "--retention", "0s")
    must_be_honest(landed)
    must_be_settled(landed, resident, crash_free.rows[2])
    resident.run(landed, "context", "gc", "--retention", "0s").ended()
    found = resident.run(landed, "context", "verify", "--json").ended().answer["verification"]
    assert (found["problems"], found["extra"]) == ([], [])
    must_be_settled(landed, resident, crash_free.rows[2])


def test_a_decision_that_was_killed_is_not_made_until_it_is_made_again(
    landed: Project, resident: Resident, crash_free: CrashFree
) -> None:
    """A number that is to become text: refused until somebody decides."""
    manifest = landed.root / "headwater.toml"
    declared = 'tables = [{ name = "orders", columns = { id = "string" } }]'
    manifest.write_text(manifest.read_text().replace('tables = ["orders"]', declared))
    (landed.root / "data/orders/z.ndjson").write_text('{"id": "A-1", "item": "an id that is text", "amount": 1.5}\n')
    refused = resident.run(landed, "apply", "orders").ended(1)
    assert "HW-S01" in refused.err
    before = landed.catalog_rows()
    resident.killed_at(landed, "schema.before_accept", "schema", "accept", "orders")
    assert landed.catalog_rows() == before
    resident.run(landed, "schema", "accept", "orders").ended()
    resident.run(landed, "apply").ended()
    ids = {row["id"] for row in landed.rows()["orders"]}
    assert ids == {str(row["id"]) for row in crash_free.rows[1]["orders"]} | {"A-1"}
    assert landed.rows()["customers"] == crash_free.rows[1]["customers"]
