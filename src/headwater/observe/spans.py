"""What whoever does work may say about it, and the listener that is there when nobody asked to listen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

Attribute = str | bool | int | float | Sequence[str]
"""A fact about a piece of work. Names, counts and ids; never the value of a row, a secret, or text of a source."""


class Span(Protocol):
    """A piece of work under way. Spans of other processes become its children by its W3C `traceparent`; None if nobody
    traces."""

    @property
    def traceparent(self) -> str | None: ...

    def tell(self, attributes: Mapping[str, Attribute]) -> None:
        """Say what is known only now."""

    def fail(self, error: BaseException) -> None:
        """Say that the work failed: by the code of the error and what it means, or by its class, never by its
        message. An error that leaves the span is said by itself."""


class Tracing(Protocol):
    """Spans of one process. Every method may be called from any thread, and none of them fails the work."""

    def begin_run(self, pipeline: str, run_id: str) -> str | None:
        """Start the span of a run, the first of its trace. Its W3C `traceparent`, by which spans of other processes
        become its children; None if nobody traces."""

    def end_run(self, run_id: str, state: str | None) -> None:
        """End the span of a run that this process began; nothing for any other. A state of None: there was nothing
        to do."""

    def span(
        self, name: str, attributes: Mapping[str, Attribute], *, parent: str | None = None
    ) -> AbstractContextManager[Span]:
        """The span of what is done inside. Its parent is the `traceparent` that is given, else the span that this
        thread is in; if there is none either, it begins a trace."""

    def shutdown(self) -> None:
        """End the spans of runs that go on elsewhere, and send what there is, for a bounded time."""


class NoSpan:
    """The span that is not there."""

    traceparent = None

    def __enter__(self) -> NoSpan:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def tell(self, attributes: Mapping[str, Attribute]) -> None:
        pass

    def fail(self, error: BaseException) -> None:
        pass


class NoTracing:
    """Nobody traces."""

    _span = NoSpan()

    def begin_run(self, pipeline: str, run_id: str) -> None:
        return None

    def end_run(self, run_id: str, state: str | None) -> None:
        pass

    def span(self, name: str, attributes: Mapping[str, Attribute], *, parent: str | None = None) -> NoSpan:
        return self._span

    def shutdown(self) -> None:
        pass
