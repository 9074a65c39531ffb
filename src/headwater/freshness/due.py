"""Ripples that must run again although nothing is fresher: they, or what they read, have changed."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.freshness.events import CancelRipple
from headwater.freshness.state import NEVER, Pond, Ripple, State


def make_due(state: State, pond: Pond, ripples: Iterable[Ripple]) -> None:
    """These ripples, and all that read them in the pond, must run again, if need be at the pond's present freshness.

    An execution of one of them that is under way is forgotten: its result is not wanted any more.
    """
    stale = list(ripples)
    for ripple in stale:
        stale.extend(child for child in ripple.children if child not in stale)
        forget_execution(state, ripple)
        ripple.start_freshness = ripple.end_freshness = NEVER
        ripple.past_versions.clear()
    pond.is_due = pond.is_due or (bool(stale) and pond.end_freshness != NEVER)
    pond.find_lowest()


def forget_execution(state: State, ripple: Ripple) -> None:
    """Its completion will be ignored."""
    if ripple.running:
        ripple.running = ripple.outdated = False
        ripple.pond.running -= 1
        state.effects.append(CancelRipple(ripple.pond.name, ripple.spec.name, ripple.start_freshness))
