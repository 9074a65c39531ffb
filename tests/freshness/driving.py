"""Drives the engine by hand: every execution that it starts completes one microsecond later, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from headwater.freshness.events import Completed, Effect, Event, StartRipple
from headwater.freshness.graph import PondSpec, RippleNode
from headwater.freshness.machine import step
from headwater.freshness.saving import save_header, save_pond
from headwater.freshness.state import State


def pond(name: str, *required: str, ripples: int = 1, optional: tuple[str, ...] = ()) -> PondSpec:
    """A pond whose ripples stand in a row."""
    steps = tuple(RippleNode(f"r{i}", (f"r{i - 1}",) if i else ()) for i in range(ripples))
    return PondSpec(name, steps, required, optional, always_run=True)


def chain(length: int) -> list[PondSpec]:
    return [pond(f"p{i}", *([f"p{i - 1}"] if i else [])) for i in range(length)]


def settle(state: State, events: Iterable[Event], *, most: int = 10**9) -> list[Effect]:
    """The effects of the events and of at most so many completions, until nothing is left to complete."""
    effects, _ = step(state, events, state.now + 1)
    running = deque(effect for effect in effects if isinstance(effect, StartRipple))
    while running and most:
        most -= 1
        start = running.popleft()
        done = Completed(start.pond, start.ripple, start.freshness, version=state.now)
        more, _ = step(state, [done], state.now + 1)
        effects += more
        running.extend(effect for effect in more if isinstance(effect, StartRipple))
    return effects


def save(state: State) -> dict[str, object]:
    """The whole state, as the engine stores it part by part."""
    return {**save_header(state), "ponds": {name: save_pond(state, name) for name in state.ponds}}
