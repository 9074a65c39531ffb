"""The test connector fails exactly as often as it is told, over all processes."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path

import pytest
from flaky_source import ReadFlaky, check_config, rows_between

from by_hand import Table, open_source
from forked import exit_code
from headwater.base.errors import HeadwaterError
from headwater.base.table_schema import TableSchema
from headwater.connectors.protocol import ItemRead, SliceGone, Source, TableAsk, TransientError

ASK = TableAsk("t", "rows", "append")


def opened(root: Path, **config: object) -> Source:
    return open_source("flaky", config, root=root, resolve=str, pipeline="p")


def failing(root: Path, kind: str, *, times: int = 1) -> Source:
    fail = [{"slice": 1, "times": times, "kind": kind}]
    return opened(root, rows=10, slices=2, state_dir="state", fail=fail)


@pytest.mark.parametrize(
    ("kind", "error", "code"),
    [
        ("transient", TransientError, None),
        ("gone", SliceGone, None),
        ("permanent", HeadwaterError, "HW-C02"),
        ("config", HeadwaterError, "HW-C01"),
    ],
)
def test_a_slice_fails_as_told_and_then_lands(tmp_path: Path, kind: str, error: type[Exception], code: str) -> None:
    table = Table(ASK)
    for _ in range(2):
        with pytest.raises(error) as raised:
            table.land(failing(tmp_path, kind, times=2))
        assert getattr(raised.value, "code", None) == code
        assert [row["id"] for row in table.rows] == [0, 1, 2, 3, 4]
    table.land(failing(tmp_path, kind, times=2))
    assert [row["id"] for row in table.rows] == list(range(10))


def _read_all(read: ReadFlaky, schema: TableSchema) -> None:
    list(read({"from": 0, "to": 4, "fails": True}, schema))


def test_a_crash_kills_the_reader_once(tmp_path: Path) -> None:
    schema = Table(ASK)
    schema.learn(opened(tmp_path, rows=1).discover()[0].observed.columns)  # type: ignore[union-attr]
    read = ReadFlaky(str(tmp_path), 0, 1, "crash")
    assert [exit_code(_read_all, read, schema.schema) for _ in range(2)] == [-signal.SIGKILL, 0]


def test_a_hanging_slice_goes_on_when_it_is_released(tmp_path: Path) -> None:
    table = Table(ASK)
    landing = threading.Thread(target=lambda: table.land(failing(tmp_path, "hang")))
    landing.start()
    while landing.is_alive() and not (tmp_path / "state/slice-1.tries").exists():
        time.sleep(0.001)
    assert landing.is_alive()
    (tmp_path / "state/release").touch()
    landing.join()
    assert len(table.rows) == 10


def test_a_failed_try_leaves_rows_behind(tmp_path: Path) -> None:
    table = Table(ASK)
    table.learn(opened(tmp_path, rows=1).discover()[0].observed.columns)  # type: ignore[union-attr]
    reading = ReadFlaky(str(tmp_path), 0, 1, "permanent")({"from": 0, "to": 4, "fails": True}, table.schema)
    batch = next(reading)
    assert not isinstance(batch, ItemRead)
    assert batch.equals(rows_between(0, 2))
    with pytest.raises(HeadwaterError):
        next(reading)


def test_rows_are_always_the_same(tmp_path: Path) -> None:
    first, again = Table(ASK), Table(ASK)
    first.land(opened(tmp_path, rows=7, slices=3))
    again.land(opened(tmp_path, rows=7, slices=2))
    assert first.rows == again.rows


def test_more_slices_than_rows_are_never_empty(tmp_path: Path) -> None:
    source = opened(tmp_path, rows=2, slices=5)
    assert [slice_.estimated_rows for slice_ in source.slices(ASK, None, source.bound(ASK), {}).slices] == [1, 1]


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"row": 1}, "row"),
        ({"rows": -1}, "rows"),
        ({"slices": 0}, "slices"),
        ({"fail": [{"slice": 0}], "state_dir": "x"}, "fail"),
        ({"fail": [{"slice": 0, "times": 1, "kind": "explode"}], "state_dir": "x"}, "fail"),
        ({"fail": [{"slice": 0, "times": 1, "kind": "crash"}]}, "state_dir"),
    ],
)
def test_each_mistake_is_named_by_its_key(config: dict[str, object], key: str) -> None:
    assert [problem[0] for problem in check_config(config)] == [key]


def test_a_token_is_known_when_it_was_read_and_the_next_plan_starts_there(tmp_path: Path) -> None:
    table = Table(ASK)
    plan = table.land(opened(tmp_path, rows=10, slices=2, token=True))
    assert [(slice_.start, slice_.end) for slice_ in plan.slices] == [
        ({"after": 0}, {"after": 5}),
        ({"after": 5}, None),
    ]
    assert table.cursor is not None
    assert table.cursor.value == {"after": 10}
    (more,) = table.plan(opened(tmp_path, rows=12, slices=1, token=True)).slices
    assert more.start == {"after": 10}
