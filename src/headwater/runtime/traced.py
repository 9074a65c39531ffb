"""Makes the spans around a slice, an execution of a ripple, and the commit that lands either."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from typing import TYPE_CHECKING, TypeVar

from headwater.catalog import records as r
from headwater.catalog.commit import Store
from headwater.catalog.queue import JobLease
from headwater.observe.spans import Attribute, Span
from headwater.observe.tracing import tracing

if TYPE_CHECKING:
    from headwater.runtime.land_ripple import LandedRipple, RippleWork
    from headwater.runtime.land_slice import LandedSlice, SliceWork

Work = TypeVar("Work")
Landed = TypeVar("Landed", bound="LandedSlice | LandedRipple")


def traced_slice(land: Callable[[SliceWork], LandedSlice]) -> Callable[[SliceWork], LandedSlice]:
    """A span for each try to land a slice. It does not contain the slice's bounds, which are values of rows."""

    def span_of(work: SliceWork) -> AbstractContextManager[Span]:
        lease = work.lease
        about: dict[str, Attribute] = {
            "headwater.pipeline": lease.pipeline,
            "headwater.table": lease.table,
            "headwater.landed_run_id": lease.run_id,
            "headwater.slice": lease.ordinal,
            "headwater.attempt": lease.attempt,
        }
        return tracing().span("slice", about, parent=work.job.trace_id)

    return _traced(land, span_of)


def traced_ripple(land: Callable[[RippleWork], LandedRipple]) -> Callable[[RippleWork], LandedRipple]:
    """A span for each try to land an execution of a ripple: a child of the run that its job belongs to."""

    def span_of(work: RippleWork) -> AbstractContextManager[Span]:
        about: dict[str, Attribute] = {
            "headwater.pipeline": work.ripple.pipeline,
            "headwater.ripple": work.ripple.table,
            "headwater.landed_run_id": work.run_id,
            "headwater.job_id": work.job_id,
            "headwater.attempt": work.attempt,
        }
        return tracing().span("ripple", about, parent=work.trace)

    return _traced(land, span_of)


def traced_inlet(lease: JobLease) -> AbstractContextManager[Span]:
    """A span for a job that scans a source. The spans of its slices are its children."""
    about: dict[str, Attribute] = {
        "headwater.pipeline": lease.pond,
        "headwater.ripples": [str(name) for name in lease.body["ripples"]],
        "headwater.job_id": lease.job_id,
        "headwater.attempt": lease.attempt,
    }
    return tracing().span("ripple", about, parent=lease.trace_id)


def traced_commit(store: Store, commit: r.Commit) -> int:
    """`store.commit` in a span of its own."""
    with tracing().span("commit", {"headwater.changes": len(commit.changes)}) as span:
        seq = store.commit(commit)
        span.add({"headwater.seq": seq})
        return seq


def _traced(
    land: Callable[[Work], Landed], span_of: Callable[[Work], AbstractContextManager[Span]]
) -> Callable[[Work], Landed]:
    @wraps(land)
    def traced(work: Work) -> Landed:
        with span_of(work) as span:
            landed = land(work)
            facts = vars(landed)
            span.add({f"headwater.{name}": facts[name] for name in ("rows", "bytes", "changed") if name in facts})
            return landed

    return traced
