"""Why a pond runs, waits, is blocked or is idle: as a record, and as one English sentence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from headwater.base import limits
from headwater.freshness.faults import culprit
from headwater.freshness.runs import inlet_wake
from headwater.freshness.state import NEVER, Pond, State

PondState = Literal["failed", "blocked", "running", "queued", "idle"]

Rule = Literal[
    "failed",
    "retry-on-change",
    "source-blocked",
    "executing",
    "ripple-waits",
    "window-closed",
    "min-interval",
    "source-behind",
    "up-to-date",
    "never-demanded",
]
"""The rule that decides about the pond now."""


@dataclass(frozen=True)
class Origin:
    """Where demand comes from: a pond, and its standing triggers (none: a single request)."""

    pond: str
    triggers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Explanation:
    """`values` holds what the rule compared: freshness values and times are microseconds, None is never."""

    pond: str
    state: PondState
    rule: Rule
    sentence: str
    values: dict[str, int | str | list[str] | None] = field(default_factory=dict)
    origins: tuple[Origin, ...] = ()


def pond_states(state: State) -> dict[str, PondState]:
    """The state of each pond: the first that holds of failed, blocked, running, queued, idle.

    A pond that holds demand and waits is queued, with one exception: a pond that only Waves ask for is idle while none
    of the sources that it waits for is running or queued. Only time or the outside world can move it.
    """
    only_waves: dict[Pond, bool] = {}
    for pond in state.pond_at:  # readers first
        asking = _asking(pond)
        asked = bool(asking) or any(trigger.kind == "wave" for trigger in pond.triggers.values())
        only_waves[pond] = asked and not pond.targets and all(only_waves[sink] for sink in asking)
    found: dict[str, PondState] = {}
    for pond in reversed(state.pond_at):  # sources first
        word = _strongest(pond)
        if word == "queued" and only_waves[pond]:
            under_way = any(found[source.name] in ("running", "queued") for source in pond.push_sources)
            word = "queued" if under_way else "idle"
        found[pond.name] = word
    return found


def state_of(state: State, pond: Pond) -> PondState:
    """The state of this pond, as in `pond_states`; other ponds are read only if it matters."""
    word = _strongest(pond)
    return pond_states(state)[pond.name] if word == "queued" and not pond.targets else word


def _strongest(pond: Pond) -> PondState:
    if pond.failed:
        return "failed"
    if pond.blocked:
        return "blocked"
    if pond.is_running:
        return "running"
    return "idle" if pond.is_idle else "queued"


def _asking(pond: Pond) -> list[Pond]:
    """The sinks whose unsatisfied demand reaches this pond. A sink that runs for a pull has asked its sources to go on
    meanwhile."""
    return [sink for sink in pond.sinks if sink.has_pull or sink.targets or any(run.took_pull for run in sink.runs)]


def seconds(time: int) -> str:
    """How a sentence names a time by default: seconds from 0."""
    return f"{time / 1e6:g} s"


def explain(state: State, name: str, *, clock: Callable[[int], str] = seconds) -> Explanation:
    """Why the pond is in the state it is in, as of the last step."""
    pond = state.ponds[name]
    match state_of(state, pond):
        case "failed":
            return _explain_failed(pond, clock)
        case "blocked":
            because = culprit(pond)
            sentence = (
                f"`{name}` is blocked because `{because}` failed; it takes no demand until `{because}` is cleared"
            )
            return Explanation(name, "blocked", "source-blocked", sentence, {"because": because}, origins(pond))
        case "running":
            return _explain_running(pond, clock)
        case "queued":
            return _explain_waiting(state, pond, clock, "queued")
        case "idle":
            return _explain_waiting(state, pond, clock, "idle") if pond.has_pull else _explain_idle(pond, clock)


def origins(pond: Pond) -> tuple[Origin, ...]:
    """The ponds furthest downstream whose unsatisfied demand reaches this one."""
    found: dict[str, Origin] = {}
    seen, reached = {pond.name}, [pond]
    for asking in reached:
        sinks = _asking(asking)
        if not sinks or asking.triggers:
            found[asking.name] = Origin(asking.name, tuple(asking.triggers))
        for sink in sinks:
            if sink.name not in seen and len(reached) < limits.MOST_ORIGINS:
                seen.add(sink.name)
                reached.append(sink)
    return tuple(found.values())


def _explain_failed(pond: Pond, clock: Callable[[int], str]) -> Explanation:
    budget = pond.spec.retry_on_change
    values: dict[str, int | str | list[str] | None] = {
        "failed_f": pond.failed_freshness,
        "failures": pond.failures,
        "retry_on_change": budget,
    }
    said = f"`{pond.name}` failed at freshness {clock(pond.failed_freshness)}"
    if pond.running:
        busy = _running(pond)
        sentence = f"{said}, and still executes {_list(busy)}"
        return Explanation(pond.name, "failed", "executing", sentence, {**values, "running": busy})
    if pond.failures <= budget:
        sentence = f"{said}; it will try again ({pond.failures} of {budget}) when its sources have moved on"
        return Explanation(pond.name, "failed", "retry-on-change", sentence, values)
    sentence = f"{said} and has no retry left; it waits for `headwater clear {pond.name}`"
    return Explanation(pond.name, "failed", "failed", sentence, values)


def _explain_running(pond: Pond, clock: Callable[[int], str]) -> Explanation:
    values: dict[str, int | str | list[str] | None] = {
        "start_f": _known(pond.start_freshness),
        "end_f": _known(pond.end_freshness),
    }
    said = f"`{pond.name}` runs to become as fresh as {clock(pond.start_freshness)}"
    busy = _running(pond)
    if busy:
        return Explanation(
            pond.name,
            "running",
            "executing",
            f"{said}: {_list(busy)} {'is' if len(busy) == 1 else 'are'} executing",
            {**values, "running": busy},
            origins(pond),
        )
    late = [ripple.spec.name for ripple in pond.ripples if ripple.end_freshness < pond.start_freshness]
    sentence = f"{said}: {_list(late)} {'waits' if len(late) == 1 else 'wait'} to start"
    return Explanation(pond.name, "running", "ripple-waits", sentence, {**values, "waiting": late}, origins(pond))


def _explain_waiting(
    state: State, pond: Pond, clock: Callable[[int], str], word: Literal["queued", "idle"]
) -> Explanation:
    """A pond that holds demand and cannot start. An idle one is as fresh as its Waves can have it now."""
    asked = origins(pond)
    demanded_by = _who(pond, asked)
    is_fresh = word == "idle" and pond.end_freshness != NEVER
    said = (
        f"`{pond.name}` is as fresh as {clock(pond.end_freshness)} for {demanded_by}"
        if is_fresh
        else f"`{pond.name}` is demanded by {demanded_by}"
    )
    values: dict[str, int | str | list[str] | None] = {
        "need": pond.needed_freshness,
        "start_f": _known(pond.start_freshness),
    }
    if pond.sources:
        assert pond.needed_freshness is not None
        late = [source for source in pond.push_sources if source.end_freshness < pond.needed_freshness]
        names = [source.name for source in late]
        offered = (min if pond.gated_by_all else max)(source.end_freshness for source in late)
        has = "has never completed a run" if offered == NEVER else f"is at {clock(offered)}"
        values |= {"source_f": _known(offered), "sources": names}
        if is_fresh:
            sentence = f"{said}; {_list(names)} {'has' if len(names) == 1 else 'have'} nothing newer"
            return Explanation(pond.name, word, "up-to-date", sentence, values, asked)
        sentence = f"{said} and waits for {_list(names)}, which {has}"
        return Explanation(pond.name, word, "source-behind", sentence, values, asked)
    wake = inlet_wake(pond, state.now)
    rule: Rule
    if pond.spec.windows is None:
        assert wake is not None
        rule, because = "min-interval", f"it looks at its source again at {clock(wake)}"
    elif wake is None:
        rule, because = "window-closed", "no window will open any more"
    else:
        rule, because = "window-closed", f"its next window opens at {clock(wake)}"
    sentence = f"{said}; {because}" if is_fresh else f"{said} and waits: {because}"
    return Explanation(pond.name, word, rule, sentence, {**values, "wake": wake}, asked)


def _explain_idle(pond: Pond, clock: Callable[[int], str]) -> Explanation:
    if pond.end_freshness == NEVER:
        sentence = f"`{pond.name}` has never been demanded"
        return Explanation(pond.name, "idle", "never-demanded", sentence, {"end_f": None})
    sentence = f"`{pond.name}` is as fresh as {clock(pond.end_freshness)}, and nothing demands more"
    return Explanation(pond.name, "idle", "up-to-date", sentence, {"end_f": pond.end_freshness})


def _running(pond: Pond) -> list[str]:
    return [ripple.spec.name for ripple in pond.ripples if ripple.running]


def _who(pond: Pond, asked: tuple[Origin, ...]) -> str:
    names = []
    for origin in asked:
        if origin.triggers:
            names.append(f"{_list(origin.triggers)} on `{origin.pond}`")
        elif origin.pond == pond.name:
            names.append("a single request")
        else:
            names.append(f"`{origin.pond}`")
    return " and ".join(names) if len(names) < 4 else f"{', '.join(names[:3])} and {len(names) - 3} more"


def _list(names: list[str] | tuple[str, ...]) -> str:
    quoted = [f"`{name}`" for name in names[:3]]
    if len(names) > 3:
        return f"{', '.join(quoted)} and {len(names) - 3} more"
    return " and ".join(quoted)


def _known(freshness: int) -> int | None:
    return None if freshness == NEVER else freshness
