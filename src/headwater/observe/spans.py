"""How code reports its work as spans. These classes record nothing: they are tracing that is off. `observe.otel`
overrides them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

Attribute = str | bool | int | float | Sequence[str]
"""A fact about a piece of work. Names, counts and ids; never the value of a row, a secret, or text of a source."""


class Span:
    """Work under way. Spans of other processes become its children by its W3C `traceparent`; None if tracing is off."""

    traceparent: str | None = None

    def add(self, attributes: Mapping[str, Attribute]) -> None:
        """Add attributes that are known only now."""

    def fail(self, error: BaseException) -> None:
        """Mark the work as failed: by the code of the error and its meaning, or by its class, never by its message. An
        exception that leaves the span is recorded without this call."""


class Tracing:
    """Spans of one process. Every method may be called from any thread, and none of them fails the work."""

    def begin_run(self, pipeline: str, run_id: str) -> str | None:
        """Start the span of a run, the first of its trace. Returns its `traceparent`."""
        return None

    def end_run(self, run_id: str, state: str | None) -> None:
        """End the span of a run that this process began; ignore any other. A state of None: there was nothing to do."""

    def span(
        self, name: str, attributes: Mapping[str, Attribute], *, parent: str | None = None
    ) -> AbstractContextManager[Span]:
        """A span of the work inside the `with`. Its parent is the given `traceparent`, else the current span of this
        thread; without either, it begins a trace."""
        return nullcontext(Span())

    def shutdown(self) -> None:
        """End the spans of runs that go on elsewhere, and send the spans that are left, for a bounded time."""
