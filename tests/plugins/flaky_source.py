"""A source for tests: made-up rows, always the same, and failures on demand.

```toml
config = { rows = 1000, slices = 4, state_dir = "flaky", fail = [{ slice = 1, times = 2, kind = "transient" }] }
```
Slice `n` fails on its first `times` tries, half-way through the rows of its last partition, so that a failed try
leaves work behind. Tries are counted in files under `state_dir`, because each may happen in another process. Kinds:
`transient`, `permanent`, `config`, `gone` raise what a real source raises; `crash` kills the process that reads;
`hang` waits until a file `release` appears in `state_dir`; `token` reports a cursor half-way and goes on. With
`token = true` the cursor is an opaque token, and only reading the last slice of a plan tells where it ends. Rows have the columns `id`, `name`, `amount` and `at`;
raising `rows` later adds new ones.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.base.table_schema import TableSchema
from headwater.base.types import LONG, REAL, STRING, TIMESTAMP, to_arrow
from headwater.connectors.protocol import (
    ArrowRead,
    BackfillHint,
    Cursor,
    CursorKind,
    CursorRead,
    ItemRead,
    Json,
    Observed,
    Problem,
    Slice,
    SliceGone,
    SlicePlan,
    SourceTable,
    TableAsk,
    TransientError,
    UnknownColumns,
    config_error,
    unknown_keys,
)
from headwater.connectors.registry import ConnectorInfo

if TYPE_CHECKING:
    import pyarrow as pa

VERSION = "1"
INFO = ConnectorInfo("flaky", VERSION, "flaky_source", kind="test")
KINDS = ("transient", "permanent", "config", "gone", "crash", "hang", "token")

_COLUMNS = {"id": LONG, "name": STRING, "amount": REAL, "at": TIMESTAMP}
_KEYS = ("rows", "slices", "fail", "state_dir", "token")
_START_NS = 1_700_000_000_000_000_000


def check_config(config: Mapping[str, object]) -> list[Problem]:
    problems = unknown_keys("flaky", config, _KEYS)
    for key, least in (("rows", 0), ("slices", 1)):
        value = config.get(key, least)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            problems.append((key, f"`{key}` is a number of at least {least}", ""))
    if not isinstance(config.get("token", False), bool):
        problems.append(("token", "`token` is true or false", ""))
    failures = config.get("fail", [])
    if not isinstance(failures, list | tuple) or not all(_is_failure(failure) for failure in failures):
        shape = f"each is {{ slice = 0, times = 1, kind = one of {', '.join(KINDS)} }}"
        problems.append(("fail", "`fail` is a list of failures", shape))
    elif failures and not isinstance(config.get("state_dir"), str):
        problems.append(("state_dir", "failures are counted in files", "set state_dir to a folder"))
    return problems


def _is_failure(value: object) -> bool:
    if not isinstance(value, Mapping) or set(value) != {"slice", "times", "kind"}:
        return False
    return isinstance(value["slice"], int) and isinstance(value["times"], int) and value["kind"] in KINDS


def open_source(
    config: Mapping[str, object], *, root: Path, resolve: Callable[[str], str], pipeline: str
) -> FlakySource:
    for _, message, hint in check_config(config):
        raise config_error(message, hint)
    failures: Json = config.get("fail", [])
    return FlakySource(
        rows=int(str(config.get("rows", 0))),
        slice_count=int(str(config.get("slices", 1))),
        state_dir=str(root / str(config.get("state_dir", ""))),
        failures=tuple((failure["slice"], failure["times"], failure["kind"]) for failure in failures),
        token=config.get("token") is True,
    )


@dataclass(frozen=True)
class FlakySource:
    """Ids from 0 up to `rows`; the cursor is the number of ids that have landed, or a token that has it."""

    rows: int
    slice_count: int
    state_dir: str
    failures: tuple[tuple[int, int, str], ...]
    token: bool = False
    connector = "flaky"
    version = VERSION

    def discover(self) -> tuple[SourceTable, ...]:
        return (SourceTable("rows", Observed(_COLUMNS, complete=True, primary_key=("id",))),)

    def backfill_hint(self) -> BackfillHint:
        return BackfillHint(cursor_kind=CursorKind.OPAQUE_TOKEN if self.token else CursorKind.MONOTONIC)

    def identity(self, ask: TableAsk) -> str:
        return "flaky"

    def bound(self, ask: TableAsk) -> Json:
        return self.rows

    def slices(self, ask: TableAsk, cursor: Cursor | None, bound: Json, landed: Mapping[str, Json]) -> SlicePlan:
        """All ids in `slice_count` equal parts, of which those that have landed are left out: slice `n` has the
        same number in every plan."""
        done = 0 if cursor is None else cursor.value["after"] if self.token else cursor.value
        if done >= bound:
            return SlicePlan(())
        start = 0 if ask.mode == "replace" else done
        count = min(self.slice_count, bound)
        edges = [bound * place // count for place in range(count + 1)]
        slices = [
            Slice(
                start=self._cursor(max(low, start)),
                end=None if self.token and high == bound else self._cursor(high),
                spec={"slice": place, "from": max(low, start), "to": high},
                describe=f"ids {max(low, start)} to {high - 1}",
                estimated_rows=high - max(low, start),
            )
            for place, (low, high) in enumerate(pairwise(edges))
            if high > start
        ]
        return SlicePlan(tuple(slices))

    def read(self, ask: TableAsk, slice_: Slice) -> ArrowRead:
        low, high = slice_.spec["from"], slice_.spec["to"]
        middle = (low + high) // 2
        reports = [self._cursor(high)] if slice_.end is None else []
        edges: list[tuple[int, int, bool, Json]] = [(low, middle, False, []), (middle, high, True, reports)]
        times, kind = next(
            ((times, kind) for place, times, kind in self.failures if place == slice_.spec["slice"]), (0, "permanent")
        )
        return ArrowRead(
            partitions=tuple({"from": a, "to": b, "fails": fails, "reports": c} for a, b, fails, c in edges),
            read=ReadFlaky(self.state_dir, slice_.spec["slice"], times, kind),
            observed=Observed(_COLUMNS, complete=True, primary_key=("id",)),
        )

    def preview(self, ask: TableAsk, slice_: Slice) -> Observed:
        return Observed(_COLUMNS, complete=True, primary_key=("id",))

    def close(self) -> None:
        """Nothing is held."""

    def _cursor(self, done: int) -> Json:
        return {"after": done} if self.token else done


@dataclass(frozen=True)
class ReadFlaky:
    """The rows of a partition, with a failure in the middle of the one that is asked to fail."""

    state_dir: str
    slice_: int
    times: int
    kind: str

    def __call__(self, partition: Json, schema: TableSchema) -> Iterator[pa.RecordBatch | ItemRead | CursorRead]:
        unknown = {name: type_ for name, type_ in _COLUMNS.items() if schema.column(name) is None}
        if unknown:
            raise UnknownColumns(Observed(unknown))
        low, high = partition["from"], partition["to"]
        middle = (low + high) // 2
        yield rows_between(low, middle)
        if partition["fails"] and self.times and self._count_try() <= self.times:
            if self.kind == "token":
                yield CursorRead({"after": middle})
            else:
                self._fail()
        yield rows_between(middle, high)
        for cursor in partition.get("reports", ()):
            yield CursorRead(cursor)

    def _count_try(self) -> int:
        """Which try this is, counted from 1 over all processes."""
        directory = Path(self.state_dir)
        directory.mkdir(parents=True, exist_ok=True)
        counter = os.open(directory / f"slice-{self.slice_}.tries", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(counter, b".")
            return os.fstat(counter).st_size
        finally:
            os.close(counter)

    def _fail(self) -> None:
        what = f"slice {self.slice_} was told to fail"
        match self.kind:
            case "transient":
                raise TransientError(what)
            case "permanent":
                raise HeadwaterError("HW-C02", what)
            case "config":
                raise config_error(what)
            case "gone":
                raise SliceGone(what)
            case "crash":
                os.kill(os.getpid(), signal.SIGKILL)
            case "hang":
                self._hang()
            case kind:
                raise AssertionError(kind)

    def _hang(self) -> None:
        ends_at = time.monotonic() + limits.LEASE_SECONDS
        while not (Path(self.state_dir) / "release").exists():
            if time.monotonic() > ends_at:
                raise TransientError(f"slice {self.slice_} hung and nobody released it")
            time.sleep(limits.POLL_SECONDS)


def rows_between(low: int, high: int) -> pa.RecordBatch:
    """The rows with the ids from `low` up to, not including, `high`."""
    import pyarrow as pa

    ids = range(low, high)
    return pa.record_batch(
        {
            "id": pa.array(ids, to_arrow(LONG)),
            "name": pa.array([f"name {id_}" for id_ in ids], to_arrow(STRING)),
            "amount": pa.array([id_ * 0.5 for id_ in ids], to_arrow(REAL)),
            "at": pa.array([_START_NS + id_ * 1_000_000_007 for id_ in ids], to_arrow(TIMESTAMP)),
        }
    )
