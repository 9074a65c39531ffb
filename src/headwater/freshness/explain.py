"""Why a pond runs, waits, is blocked or is idle."""

from __future__ import annotations

from typing import Literal

from headwater.freshness.state import Pond

PondState = Literal["failed", "blocked", "running", "queued", "idle"]


def state_of(pond: Pond) -> PondState:
    """The strongest that holds of failed, blocked, running, queued, idle."""
    if pond.failed:
        return "failed"
    if pond.blocked:
        return "blocked"
    if pond.is_running:
        return "running"
    return "queued" if pond.pull or pond.targets else "idle"
