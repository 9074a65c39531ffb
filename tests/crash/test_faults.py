"""What else goes wrong: workers that die or sleep, applies that meet, disks that fill up or rot, Ctrl-C."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import func, select

from crash.conftest import CrashFree
from crash.harness import (
    Fork,
    Project,
    Ran,
    Resident,
    descendants,
    finished,
    must_be_honest,
    must_be_settled,
    must_be_whole,
    state_of,
    wait_until,
)
from headwater.base.clock import now_us
from headwater.catalog import sql_tables as t

FLAKY = """\
[project]
name = "shop"

[[pipeline]]
id = "ticks"
source = {{ connector = "flaky", config = {{ rows = 60, slices = 3, state_dir = "state", fail = [{failure}] }} }}
[[pipeline.tables]]
name = "rows"
as = "ticks"
mode = "append"
"""


@pytest.fixture
def flaky(tmp_path: Path) -> Project:
    project = Project(tmp_path / "flaky")
    project.root.mkdir()
    return project


def flaky_ids(project: Project, resident: Resident) -> list[int]:
    rows = resident.run(project, "query", "select id from ticks order by id", "--json").ended().answer["rows"]
    return [row["id"] for row in rows]


def runs_of(project: Project) -> dict[str, int]:
    with project.store() as store, store.catalog.snapshot() as connection:
        counted = select(t.run.c.pipeline, func.count()).group_by(t.run.c.pipeline)
        return {row[0]: row[1] for row in connection.execute(counted)}


def held_leases(project: Project) -> int:
    """Leases of work that is not done and that nobody else may take yet."""
    with project.store() as store, store.catalog.snapshot() as connection:
        held = (
            select(func.count())
            .select_from(t.lease.join(t.unit, t.unit.c.unit_id == t.lease.c.id))
            .where(t.unit.c.state == "pending", t.lease.c.leased_until_us > now_us())
        )
        count: int = connection.execute(held).scalar_one()
        return count


class TestAWorkerThatDies:
    def test_once_is_not_noticed(self, flaky: Project, resident: Resident) -> None:
        (flaky.root / "headwater.toml").write_text(FLAKY.format(failure='{ slice = 1, times = 1, kind = "crash" }'))
        resident.run(flaky, "apply").ended()
        assert (flaky.root / "state/slice-1.tries").read_text() == ".."
        assert flaky_ids(flaky, resident) == list(range(60))
        must_be_whole(flaky, resident)

    def test_each_time_fails_the_run_and_leaves_nothing_behind(
        self, landed: Project, resident: Resident, crash_free: CrashFree
    ) -> None:
        landed.batch(2)
        failed = landed.run("apply", "orders", HEADWATER_CRASH_AT="part.mid:worker").ended(1)
        assert "HW-C03" in failed.err
        must_be_honest(landed)
        assert landed.rows()["orders"] == crash_free.rows[1]["orders"]
        resident.run(landed, "apply").ended()
        with landed.store() as store, store.catalog.snapshot() as connection:
            failures = connection.execute(select(func.count()).where(t.run.c.state == "failed")).scalar_one()
        assert failures == 1
        assert landed.rows() == crash_free.rows[2]
        must_be_whole(landed, resident)


class TestTwoAppliesAtOnce:
    def test_do_the_work_once(self, tmp_path: Path, resident: Resident, crash_free: CrashFree) -> None:
        project = Project(tmp_path / "project").batch(1)
        for child in [resident.start(project, "apply") for _ in range(2)]:
            child.finished().ended()
        assert set(runs_of(project).values()) == {1}
        must_be_settled(project, resident, crash_free.rows[1])

    def test_again_and_again_do_the_work_once(self, landed: Project, resident: Resident, crash_free: CrashFree) -> None:
        for number in (2, 3):
            landed.batch(number)
            for child in [resident.start(landed, "apply") for _ in range(2)]:
                child.finished().ended()
            assert set(runs_of(landed).values()) == {number}
            must_be_settled(landed, resident, crash_free.rows[number])


class TestAWorkerThatSleeps:
    """It stops when its files are written, right before its commit, and goes on when the world has."""

    def asleep(self, resident: Resident, project: Project, **environment: str) -> Fork:
        """Its first commit stores the work; the second would land the first slice."""
        child = resident.start(project, "apply", "orders", HEADWATER_CRASH_AT="commit.before:pause@2", **environment)
        wait_until(lambda: state_of(child.pid) in ("T", ""), "the worker stops")
        assert child.poll() is None, child.finished()
        return child

    def awake(self, child: Fork) -> Ran:
        os.kill(child.pid, signal.SIGCONT)
        return child.finished()

    @pytest.mark.parametrize("node", ["", "another-machine"])
    def test_past_its_lease_is_refused_when_another_has_taken_over(
        self, landed: Project, resident: Resident, crash_free: CrashFree, node: str
    ) -> None:
        more = {"HEADWATER_NODE": node} if node else {}
        child = self.asleep(resident, landed.batch(2), HEADWATER_LEASE_SECONDS="2", **more)
        resident.run(landed, "apply").ended()
        assert landed.rows() == crash_free.rows[2]
        before = landed.catalog_rows()
        self.awake(child).ended()
        assert landed.catalog_rows() == before
        assert runs_of(landed)["orders"] == 2
        must_be_settled(landed, resident, crash_free.rows[2])
        found = resident.run(landed, "context", "verify", "--json").ended().answer["verification"]
        assert found["extra"], "the files of the sleeper were not named by any commit"

    def test_under_its_lease_keeps_its_files_from_gc(
        self, landed: Project, resident: Resident, crash_free: CrashFree
    ) -> None:
        child = self.asleep(resident, landed.batch(2))
        collected = resident.run(landed, "context", "gc", "--retention", "0s", "--json").ended().answer["collected"]
        assert (collected["orphan_files"], collected["fenced_units"]) == (0, 0)
        self.awake(child).ended()
        resident.run(landed, "apply").ended()
        must_be_settled(landed, resident, crash_free.rows[2])

    def test_past_its_lease_loses_its_files_to_gc_and_lands_again(
        self, landed: Project, resident: Resident, crash_free: CrashFree
    ) -> None:
        child = self.asleep(resident, landed.batch(2), HEADWATER_LEASE_SECONDS="1")
        wait_until(lambda: not held_leases(landed), "the lease runs out")
        collected = resident.run(landed, "context", "gc", "--retention", "0s", "--json").ended().answer["collected"]
        assert (collected["orphan_files"], collected["fenced_units"]) == (1, 1)
        self.awake(child).ended()
        resident.run(landed, "apply").ended()
        must_be_settled(landed, resident, crash_free.rows[2])


@pytest.mark.parametrize(
    "how, code", [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_an_apply_that_is_ended_leaves_no_process_and_is_gone_on_with(
    flaky: Project, resident: Resident, how: signal.Signals, code: int
) -> None:
    """Ctrl-C, SIGTERM and kill -9 in the middle of a landing."""
    (flaky.root / "headwater.toml").write_text(FLAKY.format(failure='{ slice = 1, times = 9, kind = "hang" }'))
    child = flaky.start("apply")
    wait_until((flaky.root / "state/slice-1.tries").exists, "the second slice is read")
    below = descendants(child.pid)
    assert below
    os.killpg(child.pid, how)  # as a terminal does: to the whole group
    ended = finished(child).ended(code)
    wait_until(lambda: not any(state_of(pid) for pid in below), "its JVM and workers end")
    if how == signal.SIGINT:
        assert "interrupted" in ended.err and "Traceback" not in ended.err
        assert held_leases(flaky) == 0
    (flaky.root / "state/release").touch()
    resident.run(flaky, "apply").ended()
    assert runs_of(flaky) == {"ticks": 1}
    assert flaky_ids(flaky, resident) == list(range(60))
    must_be_whole(flaky, resident)


class TestADiskThatIsFull:
    def test_in_the_middle_of_a_file_fails_the_run_and_nothing_else(
        self, landed: Project, resident: Resident, crash_free: CrashFree
    ) -> None:
        """A limit on the size of a file stands in for the disk: it needs no privilege."""
        limit = 2_000_000
        big = landed.root / "data/orders/big.ndjson"
        big.write_text("".join(f'{{"id": {i}, "item": "{os.urandom(40).hex()}"}}\n' for i in range(80_000)))
        child = landed.start("apply", before_start=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        failed = finished(child)
        assert (failed.code, "HW-T05" in failed.err, "Traceback" in failed.err) == (1, True, False), failed
        assert landed.rows() == crash_free.rows[1]
        must_be_whole(landed, resident)
        found = resident.run(landed, "context", "verify", "--json").ended().answer["verification"]
        assert found["extra"] == [], "half a file was left"
        big.unlink()
        resident.run(landed.batch(2), "apply").ended()
        assert landed.rows() == crash_free.rows[2]
        must_be_whole(landed, resident)

    @pytest.mark.parametrize("kilobytes", [0, 100, 400])
    def test_to_the_last_byte_is_an_error_and_is_gone_on_with(
        self, small_disk: Path, landed: Project, resident: Resident, crash_free: CrashFree, kilobytes: int
    ) -> None:
        """With little space left it fails here or there: while planning, in a file, in the log, in the views."""
        shutil.move(landed.root / ".headwater", small_disk / "store")
        (landed.root / ".headwater").symlink_to(small_disk / "store")
        landed.batch(2)
        ballast = small_disk / "ballast"
        fill(ballast, leave=kilobytes * 1024)
        failed = resident.start(landed, "apply").finished()
        assert failed.code in (1, 5), failed
        assert "HW-T05" in failed.err or "HW-T06" in failed.err, failed  # the catalog lives on the same disk
        assert "Traceback" not in failed.err
        ballast.unlink()
        must_be_honest(landed)
        resident.run(landed, "apply").ended()
        assert landed.rows() == crash_free.rows[2]
        must_be_whole(landed, resident)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MB."""
    directory = tmp_path / "disk"
    directory.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", directory], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a small file system is not allowed here")
    yield directory
    subprocess.run(["umount", directory], check=True)


def fill(ballast: Path, *, leave: int) -> None:
    free = os.statvfs(ballast.parent)
    with open(ballast, "wb") as file:
        file.write(bytes(max(0, free.f_bavail * free.f_frsize - leave)))


DAMAGE = {
    "wrong_hash": lambda path: _flip_a_bit(path),
    "wrong_size": lambda path: path.write_bytes(path.read_bytes()[:-9]),
    "missing": lambda path: path.unlink(),
    "damaged_log": lambda path: _flip_a_bit(path),
    "missing_log": lambda path: path.unlink(),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_found_and_named(landed: Project, resident: Resident, kind: str) -> None:
    pattern = "log/*.json" if kind.endswith("_log") else "tables/orders/data/**/*.parquet"
    path = sorted(landed.store_root.glob(pattern))[0]
    path.chmod(0o644)
    DAMAGE[kind](path)
    found = resident.run(landed, "context", "verify", "--json").ended(1).answer
    table = None if kind.endswith("_log") else "orders"
    named = {"kind": kind, "path": path.relative_to(landed.store_root).as_posix(), "table": table}
    assert (found["ok"], found["verification"]["problems"]) == (False, [named])


def _flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("point", ["unit.after_lease", "log.torn", "commit.inside@5", "commit.after@5"])
def test_a_postgresql_catalog_survives_as_well(
    tmp_path: Path, postgres_url: str, resident: Resident, crash_free: CrashFree, point: str
) -> None:
    project = Project(tmp_path / "project", postgres_url).batch(1)
    resident.killed_at(project, point, "apply")
    must_be_honest(project)
    resident.run(project, "apply").ended()
    must_be_settled(project, resident, crash_free.rows[1])
