"""Why a pond runs, waits, is blocked or is idle: as a record, and as one English sentence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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

Values = dict[str, int | str | list[str] | None]
_Because = tuple[Rule, str, Values]
"""The rule, the sentence, and what the rule compared."""


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
    values: Values
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
    word = _strongest(pond)
    if word == "queued" and not pond.targets:  # only then do other ponds matter
        word = pond_states(state)[name]
    asked = () if word == "failed" or (word == "idle" and not pond.has_pull) else origins(pond)
    because: _Because
    match word:
        case "failed":
            because = _explain_failed(pond, clock)
        case "blocked":
            source = culprit(pond)
            sentence = f"`{name}` is blocked because `{source}` failed; it takes no demand until `{source}` is cleared"
            because = "source-blocked", sentence, {"because": source}
        case "running":
            because = _explain_running(pond, clock)
        case "queued" | "idle":
            holds_demand = word == "queued" or pond.has_pull
            because = _explain_waiting(state, pond, clock, word, asked) if holds_demand else _explain_idle(pond, clock)
    return Explanation(name, word, *because, asked)


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


def _explain_failed(pond: Pond, clock: Callable[[int], str]) -> _Because:
    budget = pond.spec.retry_on_change
    values: Values = {"failed_f": pond.failed_freshness, "failures": pond.failures, "retry_on_change": budget}
    said = f"`{pond.name}` failed at freshness {clock(pond.failed_freshness)}"
    if pond.running:
        busy = _running(pond)
        return "executing", f"{said}, and still executes {_list(busy)}", {**values, "running": busy}
    if pond.failures <= budget:
        sentence = f"{said}; it will try again ({pond.failures} of {budget}) when its sources have moved on"
        return "retry-on-change", sentence, values
    return "failed", f"{said} and has no retry left; it waits for `headwater clear {pond.name}`", values


def _explain_running(pond: Pond, clock: Callable[[int], str]) -> _Because:
    values: Values = {"start_f": _known(pond.start_freshness), "end_f": _known(pond.end_freshness)}
    said = f"`{pond.name}` runs to become as fresh as {clock(pond.start_freshness)}"
    busy = _running(pond)
    if busy:
        sentence = f"{said}: {_list(busy)} {'is' if len(busy) == 1 else 'are'} executing"
        return "executing", sentence, {**values, "running": busy}
    late = [ripple.spec.name for ripple in pond.ripples if ripple.end_freshness < pond.start_freshness]
    sentence = f"{said}: {_list(late)} {'waits' if len(late) == 1 else 'wait'} to start"
    return "ripple-waits", sentence, {**values, "waiting": late}


def _explain_waiting(
    state: State, pond: Pond, clock: Callable[[int], str], word: PondState, asked: tuple[Origin, ...]
) -> _Because:
    """A pond that holds demand and cannot start. An idle one is as fresh as its Waves can have it now."""
    demanded_by = _who(pond, asked)
    is_fresh = word == "idle" and pond.end_freshness != NEVER
    said = (
        f"`{pond.name}` is as fresh as {clock(pond.end_freshness)} for {demanded_by}"
        if is_fresh
        else f"`{pond.name}` is demanded by {demanded_by}"
    )
    values: Values = {"need": pond.needed_freshness, "start_f": _known(pond.start_freshness)}
    if pond.sources:
        assert pond.needed_freshness is not None
        late = [source for source in pond.push_sources if source.end_freshness < pond.needed_freshness]
        names = [source.name for source in late]
        offered = (min if pond.gated_by_all else max)(source.end_freshness for source in late)
        has = "has never completed a run" if offered == NEVER else f"is at {clock(offered)}"
        values |= {"source_f": _known(offered), "sources": names}
        if is_fresh:
            have = "has" if len(names) == 1 else "have"
            return "up-to-date", f"{said}; {_list(names)} {have} nothing newer", values
        return "source-behind", f"{said} and waits for {_list(names)}, which {has}", values
    wake = inlet_wake(pond, state.now)
    if pond.spec.windows is None:
        assert wake is not None
        because = f"it looks at its source again at {clock(wake)}"
    else:
        because = "no window will open any more" if wake is None else f"its next window opens at {clock(wake)}"
    sentence = f"{said}; {because}" if is_fresh else f"{said} and waits: {because}"
    return "min-interval" if pond.spec.windows is None else "window-closed", sentence, {**values, "wake": wake}


def _explain_idle(pond: Pond, clock: Callable[[int], str]) -> _Because:
    if pond.end_freshness == NEVER:
        return "never-demanded", f"`{pond.name}` has never been demanded", {"end_f": None}
    sentence = f"`{pond.name}` is as fresh as {clock(pond.end_freshness)}, and nothing demands more"
    return "up-to-date", sentence, {"end_f": pond.end_freshness}


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
