"""What `apply` and `run` report: events while they work, for the interface that shows them, and results at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headwater.base.errors import Exit, HeadwaterError
from headwater.connectors.protocol import TransientError


@dataclass(frozen=True)
class RunBegan:
    pipeline: str
    units: int


@dataclass(frozen=True)
class SliceBegan:
    pipeline: str
    describe: str


@dataclass(frozen=True)
class SliceRetried:
    pipeline: str
    reason: str


@dataclass(frozen=True)
class SliceEnded:
    pipeline: str
    rows: int
    bytes: int


@dataclass(frozen=True)
class RunFinished:
    pipeline: str


@dataclass(frozen=True)
class Waiting:
    """Other processes hold all the work that is left."""


Event = RunBegan | SliceBegan | SliceRetried | SliceEnded | RunFinished | Waiting


@dataclass(frozen=True)
class PipelineResult:
    """`state`: success, unchanged, failed, partial, waiting (for a window of its source, with the time it opens)."""

    pipeline: str
    state: str
    run_id: str | None = None
    rows: int = 0
    bytes: int = 0
    slices: int = 0
    evolved: tuple[str, ...] = ()
    """Tables whose schema changed without a row."""
    failed_tables: tuple[str, ...] = ()
    """The tables that the error kept from landing completely; empty if the error is not about tables."""
    bad_rows: Mapping[str, int] = field(default_factory=dict)
    """The rows that were kept as dead letters, by table."""
    not_in_source: Mapping[str, int] = field(default_factory=dict)
    """Stored rows whose keys the source no longer has, by table; only for tables that were read completely."""
    waits_until: str | None = None
    seconds: float | None = None
    """The duration of a model's ripples, without the start of Spark; None if none was executed."""
    error: HeadwaterError | None = None

    @property
    def changed(self) -> bool:
        return self.run_id is not None or bool(self.evolved)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user about a successful run."""
        return tuple(
            f"{rows:,} row{'s' if rows > 1 else ''} of `{table}` {'are' if rows > 1 else 'is'} no longer in the source; "
            f"{'they stay' if rows > 1 else 'it stays'} until deletes are supported"
            for table, rows in sorted(self.not_in_source.items())
        )

    def following(self, earlier: PipelineResult) -> PipelineResult:
        """This result, including what an earlier run of the same pipeline landed."""
        seconds = [each.seconds for each in (earlier, self) if each.seconds is not None]
        return replace(
            self,
            rows=earlier.rows + self.rows,
            bytes=earlier.bytes + self.bytes,
            slices=earlier.slices + self.slices,
            bad_rows=dict(Counter(earlier.bad_rows) + Counter(self.bad_rows)),
            not_in_source={**earlier.not_in_source, **self.not_in_source},
            seconds=sum(seconds) if seconds else None,
        )

    def as_json(self) -> dict[str, Any]:
        return vars(self) | {"error": self.error.as_json() if self.error is not None else None}


@dataclass(frozen=True)
class ApplyResult:
    pipelines: tuple[PipelineResult, ...]
    views_error: HeadwaterError | None = None
    """Why the views on disk are older than the landed data."""

    @property
    def exit_code(self) -> Exit:
        states = {p.state for p in self.pipelines}
        if states <= {"success", "unchanged", "waiting"}:
            return Exit.DONE if self.views_error is None else Exit.PARTLY
        if states & {"success", "partial"}:
            return Exit.PARTLY
        errors = [p.error for p in self.pipelines if p.error is not None]
        return errors[0].exit_code if len(errors) == 1 else Exit.FAILED

    @property
    def changed(self) -> bool:
        return any(p.changed for p in self.pipelines)


def no_answer(name: str, error: TransientError, *, hint: str = "") -> HeadwaterError:
    """The error for a source that failed for a moment and was not retried."""
    return HeadwaterError("HW-C03", f"the source of `{name}` did not answer: {error}", hint=hint, retryable=True)
