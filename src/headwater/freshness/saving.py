"""The state as a plain value that JSON can hold, one record per pond, and back.

Only facts are saved; links, order, gates and timers are derived again. After a step, the header and the ponds that it
touched must be saved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from headwater.freshness.change import derive, link_ripples
from headwater.freshness.events import GraphChanged, SourceCut, Trigger, Version
from headwater.freshness.graph import PondSpec, RippleNode
from headwater.freshness.machine import set_timers
from headwater.freshness.state import NEVER, Pond, Ripple, Run, State

FORMAT = 1
"""Version of the saved form."""

Saved = dict[str, Any]
"""A JSON object."""

_FACTS: dict[type, str] = {
    Pond: "start_freshness end_freshness delay_start delay_end has_pull targets failed failed_freshness failures retried "
    "blocked is_due delivered",
    Ripple: "start_freshness end_freshness has_pull pulled_freshness targets running outdated failed_freshness attempts "
    "version inputs running_inputs",
    Run: "freshness delay taken took_pull gave_up abandoned executed",
}
_NAMES = {kind: names.split() for kind, names in _FACTS.items()}
"""The fields that are saved as they are; null is NEVER."""
_KEYS = {
    "start_freshness": "start_f",
    "end_freshness": "end_f",
    "failed_freshness": "failed_f",
    "pulled_freshness": "pulled_f",
    "has_pull": "pull",
    "is_due": "due",
    "running_inputs": "trial",
}
"""The saved key of a field, where it is not the field's name."""
_ADDED_LATER = ("delivered", "retried", "pulled_freshness", "outdated")
"""States of older versions lack these: they keep their defaults."""


def save_header(state: State) -> Saved:
    """What belongs to no pond."""
    return {"format": FORMAT, "now": state.now, "announced": state.announced}


def save_pond(state: State, name: str) -> Saved:
    """The record of one pond."""
    pond = state.ponds[name]
    return {
        "required": list(pond.spec.required),
        "optional": list(pond.spec.optional),
        **_facts(pond),
        "published": _pairs(pond.published),
        "triggers": [list(trigger) for trigger in pond.triggers.values()],
        "runs": [_save_run(run) for run in pond.runs],
        "ripples": {ripple.spec.name: _save_ripple(ripple) for ripple in pond.ripples},
    }


def load(ponds: Iterable[PondSpec], saved: Mapping[str, Any]) -> State:
    """The state that was saved, with the graph it was saved with. Raises ValueError for another format.

    From the declared ponds it takes only what is not part of the graph's shape: windows, intervals, budgets.
    `graph_change` finds what else has changed since, and a step applies it.
    """
    if saved.get("format") != FORMAT:
        raise ValueError(f"the state was saved in format {saved.get('format')!r}; this version reads {FORMAT}")
    state = State()
    state.now, state.announced = saved["now"], saved["announced"]
    declared = {spec.name: spec for spec in ponds}
    for name, record in saved["ponds"].items():
        spec = _saved_spec(declared.get(name), name, record)
        pond = state.ponds[name] = Pond(spec)
        link_ripples(pond, [_load_ripple(pond, ripple, record["ripples"][ripple.name]) for ripple in spec.ripples])
        _load_pond(pond, record)
    derive(state)
    set_timers(state)
    return state


def graph_change(state: State, ponds: Iterable[PondSpec]) -> GraphChanged | None:
    """The event that brings the state to the declared graph; None if it is there already."""
    declared = {spec.name: spec for spec in ponds}
    removed = tuple(name for name in state.ponds if name not in declared)
    changed = tuple(
        spec for name, spec in declared.items() if name not in state.ponds or state.ponds[name].spec != spec
    )
    return GraphChanged(changed, removed) if changed or removed else None


def _saved_spec(declared: PondSpec | None, name: str, record: Saved) -> PondSpec:
    ripples = tuple(
        RippleNode(
            ripple,
            tuple(saved["after"]),
            None if saved["reads"] is None else tuple(saved["reads"]),
            saved["fingerprint"],
        )
        for ripple, saved in record["ripples"].items()
    )
    required, optional = tuple(record["required"]), tuple(record["optional"])
    if declared is None:
        return PondSpec(name, ripples, required, optional)
    windows = None if required or optional else declared.windows
    return replace(declared, ripples=ripples, required=required, optional=optional, windows=windows)


def _save_run(run: Run) -> Saved:
    cut = [[part.source, part.freshness, _pairs(part.versions)] for part in run.cut]
    return {**_facts(run), "cut": cut}


def _save_ripple(ripple: Ripple) -> Saved:
    spec = ripple.spec
    return {
        "after": list(spec.after),
        "reads": None if spec.reads is None else list(spec.reads),
        "fingerprint": spec.fingerprint,
        **_facts(ripple),
        "past": _pairs(ripple.past_versions),
    }


def _facts(holder: Pond | Ripple | Run) -> Saved:
    found: Saved = {}
    for name in _NAMES[type(holder)]:
        value = getattr(holder, name)
        found[_KEYS.get(name, name)] = None if value == NEVER else list(value) if isinstance(value, list) else value
    return found


def _load_facts(holder: Pond | Ripple | Run, record: Saved) -> None:
    for name in _NAMES[type(holder)]:
        key = _KEYS.get(name, name)
        if key in record or name not in _ADDED_LATER:
            value = NEVER if record[key] is None and name.endswith("_freshness") else record[key]
            setattr(holder, name, list(value) if isinstance(value, list) else value)


def _load_pond(pond: Pond, record: Saved) -> None:
    _load_facts(pond, record)
    pond.published = _loaded_pairs(record["published"])
    pond.triggers = {trigger[0]: Trigger(*trigger) for trigger in record["triggers"]}
    pond.runs = _in_flight([_load_run(run) for run in record["runs"]])


def _load_run(record: Saved) -> Run:
    cut = tuple(SourceCut(source, freshness, _loaded_pairs(pairs)) for source, freshness, pairs in record["cut"])
    run = Run(record["freshness"], record["delay"], cut)
    _load_facts(run, record)
    return run


def _in_flight(runs: list[Run]) -> list[Run]:
    """Older versions kept every abandoned run; only the newest is of use, and only while no other run has begun since."""
    begun = [run for run in runs if not run.abandoned]
    if not begun:
        return runs[-1:]
    begun[-1].executed = begun[-1].executed or any(run.executed for run in runs if run.abandoned)
    return begun


def _load_ripple(pond: Pond, spec: RippleNode, record: Saved) -> Ripple:
    ripple = Ripple(pond, spec)
    _load_facts(ripple, record)
    ripple.past_versions = [(past[0], past[1]) for past in record["past"]]
    return ripple


def _pairs(pairs: Iterable[tuple[object, object]] | None) -> list[list[object]] | None:
    return None if pairs is None else [list(pair) for pair in pairs]


def _loaded_pairs(pairs: list[list[Any]] | None) -> tuple[tuple[str, Version], ...] | None:
    return None if pairs is None else tuple((name, version) for name, version in pairs)
