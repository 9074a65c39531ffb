"""Tables that are pushed to: nothing is read, so a poll finds nothing to do.

Rows come by `headwater ingest` and `POST /v1/ingest/{table}`, and are in the table when the request is answered. So the
table always holds all that was sent until now: a run of its pipeline only records that, and consumers that wait for it
go on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from headwater.base.errors import HeadwaterError
from headwater.connectors.protocol import (
    ArrowRead,
    BackfillHint,
    Cursor,
    Json,
    Observed,
    Problem,
    Slice,
    SlicePlan,
    SourceTable,
    TableAsk,
    config_error,
)

VERSION = "1"


def check_config(config: Mapping[str, object]) -> list[Problem]:
    return [(key, f"the push connector has no key `{key}`", "it takes no keys") for key in config]


def open_source(
    config: Mapping[str, object], *, root: Path, resolve: Callable[[str], str], pipeline: str
) -> PushSource:
    for _, message, hint in check_config(config):
        raise config_error(message, hint)
    return PushSource()


@dataclass(frozen=True)
class PushSource:
    """A source that has no slices, ever."""

    connector = "push"
    version = VERSION

    def discover(self) -> tuple[SourceTable, ...]:
        return ()

    def backfill_hint(self) -> BackfillHint:
        return BackfillHint()

    def identity(self, ask: TableAsk) -> str:
        return "push"

    def bound(self, ask: TableAsk) -> Json:
        return None

    def slices(self, ask: TableAsk, cursor: Cursor | None, bound: Json, landed: Mapping[str, Json]) -> SlicePlan:
        return SlicePlan(())

    def read(self, ask: TableAsk, slice_: Slice) -> ArrowRead:
        # A pipeline that read files before and was made `push` may have slices left from then.
        raise HeadwaterError("HW-C02", f"`{ask.name}` is pushed to, and nothing of it can be read")

    def preview(self, ask: TableAsk, slice_: Slice) -> Observed | None:
        return None

    def close(self) -> None:
        """Nothing is held."""
