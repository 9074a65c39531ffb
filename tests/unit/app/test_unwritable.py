"""Reading on a disk that takes nothing: full, or read-only.

A process whose files may have no byte (`RLIMIT_FSIZE`) meets a full disk, for any user and on any file system. A read-only
disk is a real one: a mount in a namespace of its own.
"""

from __future__ import annotations

import json
import os
import resource
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from forked import context
from headwater.app.apply import plan
from headwater.app.client_query import answer_query
from headwater.app.context import verify
from headwater.app.query import reader
from headwater.app.status import status
from headwater.app.workspace import Workspace, workspace
from headwater.duck.query_pool import QueryPool
from headwater.duck.sandbox import run_query
from unit.interfaces.landed import landed_project

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

SQL = "select count(*) as n from orders"
READ_ONLY = """
set -e
mount --bind "$1" "$1"
mount -o remount,ro,bind "$1"
! touch "$1/written" 2>/dev/null
exec "$2" -c "import test_unwritable; test_unwritable.print_readings()" "$1"
"""


def readings(opened: Workspace) -> dict[str, object]:
    """What every kind of reader finds."""
    with reader(opened, sql=SQL) as session:
        asked = [list(row) for row in run_query(session, SQL).rows()]
    pool = QueryPool(1, 0)
    try:
        answered = answer_query(opened, pool, SQL, limit=10, timeout_seconds=60)
    finally:
        pool.close()
    return {
        "query": asked,
        "http": [json.loads(row) for row in answered.rows],
        "status": [table.name for pipeline in status(opened) for table in pipeline.tables],
        "plan": plan(opened).has_changes,
        "verify": not verify(opened).problems,
    }


EXPECTED = {"query": [[2]], "http": [{"n": 2}], "status": ["orders"], "plan": False, "verify": True}


@pytest.mark.parametrize("served", [True, False], ids=["by a server that was there before", "by a command"])
def test_a_full_disk_can_be_read(tmp_path: Path, served: bool) -> None:
    assert read_full(landed_project(tmp_path / "shop"), served) == EXPECTED


def test_a_full_disk_can_be_read_after_the_server_was_killed_and_the_index_of_its_log_was_lost(tmp_path: Path) -> None:
    root = left_with_a_log(landed_project(tmp_path / "shop"))
    assert read_full(root, served=False) == EXPECTED
    with workspace(root) as opened:
        assert readings(opened) == EXPECTED, "the log is still there"


def left_with_a_log(root: Path) -> Path:
    """The database itself has no `store`: the commit that made it is in the write-ahead log alone, and has no index."""
    (meta,) = root.rglob("meta.sqlite")
    names = ("meta.sqlite", "meta.sqlite-wal")
    with closing(sqlite3.connect(meta, isolation_level=None)) as connection:
        (store,) = connection.execute("SELECT * FROM store").fetchall()
        connection.execute("DELETE FROM store")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute(f"INSERT INTO store VALUES ({', '.join('?' * len(store))})", store)
        kept = {name: meta.with_name(name).read_bytes() for name in names}
    for name in names:
        meta.with_name(name).write_bytes(kept[name])
    meta.with_name("meta.sqlite-shm").unlink(missing_ok=True)
    return root


def read_full(root: Path, served: bool) -> object:
    forking = context()
    here, there = forking.Pipe()
    process = forking.Process(target=_read_full, args=(root, served, there))
    process.start()
    there.close()
    found = here.recv()
    process.join()
    return found


def _read_full(root: Path, served: bool, pipe: Connection) -> None:
    with workspace(root) as opened:
        if served:
            opened.store()
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        with pytest.raises(OSError):
            (root / "written").write_text("x")
        try:
            pipe.send(readings(opened))
        except BaseException as error:
            pipe.send(f"{type(error).__name__}: {error}")


@pytest.mark.parametrize("killed", [False, True], ids=["as a server left it", "as a killed server left it"])
def test_a_read_only_disk_can_be_read(tmp_path: Path, killed: bool) -> None:
    root = landed_project(tmp_path / "shop")
    if killed:
        left_with_a_log(root)
    namespace = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    if subprocess.run([*namespace, "true"], capture_output=True).returncode != 0:
        pytest.skip("NOT TESTED: a read-only disk. This machine allows no mount: allow `unshare -rm`, or be root.")
    here = str(Path(__file__).parent)
    found = subprocess.run(
        [*namespace, "sh", "-c", READ_ONLY, "sh", str(root), sys.executable],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([here, *sys.path])},
    )
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout) == EXPECTED
    assert "the views on disk are not up to date" in found.stderr


def print_readings() -> None:
    with workspace(Path(sys.argv[1])) as opened:
        sys.stdout.write(json.dumps(readings(opened)))
