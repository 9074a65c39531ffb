"""Whatever happens to the files between scans, each content lands exactly once."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from by_hand import Table, open_source
from headwater.base import limits
from headwater.connectors.protocol import Source, TableAsk

NAMES = st.sampled_from(["a", "sub/b", "sub/deep/c"])
ROWS = st.lists(st.integers(0, 2), max_size=2)
"""Few rows of one digit each, so that contents of equal size are common."""
AGES = st.sampled_from(["now", "old", "kept"])
"""The mtime after a write: the clock's, one long settled, or the one the file had before."""

STEPS = st.one_of(
    st.tuples(st.just("write"), NAMES, ROWS, AGES),
    st.tuples(st.just("delete"), NAMES),
    st.tuples(st.just("touch"), NAMES),
)
RUNS = st.lists(st.lists(STEPS, max_size=4), max_size=8)
"""What happens to the files before each scan."""


def path_of(root: Path, name: str) -> Path:
    path = root / f"{name}.ndjson"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def perform(root: Path, step: tuple[object, ...]) -> None:
    """One thing that happens to a file. A write keeps the old mtime only where no look can have trusted it yet:
    nothing that reads only size and mtime could notice such a write to a settled file."""
    match step:
        case ("write", str(name), list(rows), age):
            path = path_of(root, name)
            before = path.stat().st_mtime_ns if path.exists() else None
            path.write_text("".join(f'{{"v": {row}, "file": "{name}"}}\n' for row in rows))
            if age == "kept" and before is not None and before > time.time_ns() - limits.MTIME_TRUST_NS // 2:
                os.utime(path, ns=(before, before))
            elif age == "old":
                old = next(OLD_TIMES)
                os.utime(path, ns=(old, old))
        case ("delete", str(name)):
            path_of(root, name).unlink(missing_ok=True)
        case ("touch", str(name)):
            if path_of(root, name).exists():
                path_of(root, name).touch()


def _old_times():
    """Different times, all long settled."""
    at = time.time_ns() - 10**6 * limits.MTIME_TRUST_NS
    while True:
        at += 1
        yield at


OLD_TIMES = _old_times()


def contents(root: Path) -> dict[str, list[int]]:
    return {
        str(path.relative_to(root)): [int(line[6]) for line in path.read_text().splitlines()]
        for path in root.rglob("*.ndjson")
    }


def rows_by_file(table: Table) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row in table.rows:
        found.setdefault(row["_source_id"], []).append(row["v"])
    return found


def opened(root: Path) -> Source:
    return open_source("files", {"path": "**/*.ndjson"}, root=root, resolve=str, pipeline="p")


@given(runs=RUNS)
@example(runs=[[("write", "a", [1], "now")], [("write", "a", [2], "kept")]])
@example(runs=[[("write", "a", [1], "old")], [("delete", "a")], [("write", "a", [1], "now")]])
def test_each_content_lands_exactly_once(runs: list[list[tuple[object, ...]]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        append, replace = Table(TableAsk("a", "a", "append")), Table(TableAsk("r", "r", "replace"))
        ever: dict[str, list[int]] = {}
        present: dict[str, list[int]] = {}
        for steps in runs:
            for step in steps:
                perform(root, step)
            now = contents(root)
            ever.update(now)
            append.land(opened(root))
            assert rows_by_file(append) == {name: rows for name, rows in ever.items() if rows}
            replace.land(opened(root))
            present = now or present  # a source without files leaves the table as it was
            assert rows_by_file(replace) == {name: rows for name, rows in present.items() if rows}
            for table in (append, replace):
                assert table.plan(opened(root)).slices == ()
