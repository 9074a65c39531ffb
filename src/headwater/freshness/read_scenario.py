"""From the JSON of a scenario file to a `Scenario`: every mistake in one go, each with its path and a hint.

Values in, values out: who reads the file turns a path into a line. Windows may stand in any order and are sorted;
everything else stays in the order of the file. Events after `until` are no mistake: they just do not happen, so that a
scenario can be shortened by one number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Literal, get_args

from headwater.base.errors import HeadwaterError, word_for
from headwater.freshness.scenario import SECOND, Deed, Scenario, ScenarioEvent, ScenarioPipeline, ScenarioRipple
from headwater.freshness.scenario_problems import (
    Found,
    Path,
    ScenarioProblem,
    Table,
    circles,
    shown,
    some_names,
)

DEEDS: tuple[Deed, ...] = get_args(Deed)
_EVENT_KEYS = ("at", "do", "pipeline")
_OWN_KEYS: dict[str, tuple[str, ...]] = {
    "wave": ("id",),
    "tide": ("max_staleness", "id"),
    "untrigger": ("id",),
    "fail": ("ripple", "times"),
}
"""The keys that an event of this `do` has beside `at`, `do` and `pipeline`."""
_PIPELINE_KEYS = ("sources", "optional", "ripples", "windows", "min_interval", "retry", "always_run")


def problems(value: object) -> list[ScenarioProblem]:
    """All that is wrong with a scenario, in the order of reading: pipelines, events, then what concerns several.

    Beyond `SCENARIO_PROBLEMS` they are only counted, in a last one."""
    return _read(value)[1]


def scenario_of(value: object) -> Scenario:
    """The scenario that a file's JSON describes. Raises HW-M13 with the first of its problems."""
    scenario, found = _read(value)
    if found:
        raise HeadwaterError("HW-M13", found[0].message, hint=found[0].hint)
    return scenario


def _read(value: object) -> tuple[Scenario, list[ScenarioProblem]]:
    """The scenario as far as it can be understood, and what cannot."""
    found = Found()
    if not isinstance(value, dict):
        hint = 'write `{"pipelines": {...}, "events": [...]}`'
        found.add((), f"a scenario is an object, not {word_for(value)}", hint=hint)
        return Scenario(()), found.listed()
    top = Table(value, (), "the scenario", found)
    top.check_keys(("pipelines", "events", "until"))
    pipelines = _pipelines(top)
    until = top.time("until")
    events = _events(top, pipelines)
    _check_circles(value, pipelines, found)
    _check_triggers(events, until, found)
    return Scenario(tuple(pipelines.values()), tuple(event for _, event in events), until), found.listed()


# ---- pipelines


def _pipelines(top: Table) -> dict[str, ScenarioPipeline]:
    listed = top.objects("pipelines", "a pipeline")
    return {name: _pipeline(name, table, listed.keys()) for name, table in listed.items() if table is not None}


def _pipeline(name: str, table: Table, known: Iterable[str]) -> ScenarioPipeline:
    table.check_keys(_PIPELINE_KEYS)
    sources = _names(table, "sources", known=known, own=name, what="pipeline")
    optional = _names(table, "optional", known=known, own=name, what="pipeline")
    for index, source in enumerate(_listed(table, "optional")):
        if source in sources:
            hint = "keep it in `sources` if a run has to wait for it, else in `optional`"
            message = f"{table.subject} reads `{source}` both as a required and as an optional source"
            table.found.add((*table.path, "optional", index), message, hint=hint)
    has_sources = bool(_listed(table, "sources") or _listed(table, "optional"))
    if has_sources and _listed(table, "windows"):
        hint = "it follows its sources by itself: put `windows` on the pipeline that reads the outside"
        message = f"{table.subject} has sources, so it has no `windows`"
        table.found.add((*table.path, "windows"), message, hint=hint, key=True)
    immediately, on_change = _retry(table)
    return ScenarioPipeline(
        name,
        ripples=_ripples(table),
        sources=sources,
        optional=optional,
        windows=_windows(table),
        min_interval=table.time("min_interval", least=1) or 1,
        retry_immediately=immediately,
        retry_on_change=on_change,
        always_run=table.flag("always_run", default=True),
    )


def _ripples(table: Table) -> tuple[ScenarioRipple, ...]:
    listed = table.objects("ripples", "a ripple")
    read = []
    for name, ripple in listed.items():
        if ripple is None:
            continue
        ripple.check_keys(("seconds", "after"))
        if "seconds" not in ripple.values:
            hint = 'say how long one execution takes: `{"seconds": 1}`'
            ripple.found.add(ripple.path, f"`seconds` is missing in {ripple.subject}", hint=hint)
        after = _names(ripple, "after", known=listed.keys(), own=name, what="ripple")
        read.append(ScenarioRipple(name, ripple.time("seconds") or 0, after))
    return tuple(read)


def _names(
    table: Table, key: str, *, known: Iterable[str], own: str, what: Literal["pipeline", "ripple"]
) -> tuple[str, ...]:
    """The names of a list, each one that exists, none twice and none its own."""
    verb = "reads" if what == "pipeline" else "comes after"
    kept: list[str] = []
    for index, name in enumerate(table.items(key)):
        path: Path = (*table.path, key, index)
        if not isinstance(name, str):
            table.found.add(path, f"`{key}` of {table.subject} holds {word_for(name)}, not the name of a {what}")
        elif name == own:
            table.found.add(path, f"{table.subject} {verb} itself", hint="remove it")
        elif name not in known:
            hint = table.found.nearest(name, known)
            table.found.add(
                path, f"{table.subject} {verb} `{shown(name)}`, and there is no {what} of that name", hint=hint
            )
        elif name in kept:
            table.found.add(path, f"`{key}` of {table.subject} names `{name}` twice", hint="keep one of them")
        else:
            kept.append(name)
    return tuple(kept)


def _listed(table: Table, key: str) -> list[object]:
    """What stands in a list, right or wrong; nothing if it is no list."""
    found = table.values.get(key)
    return found if isinstance(found, list) else []


def _retry(table: Table) -> tuple[int, int]:
    retry = table.inner("retry")
    if retry is None:
        return 0, 0
    retry.check_keys(("immediately", "on_change"))
    return retry.count("immediately", default=0), retry.count("on_change", default=0)


def _windows(table: Table) -> tuple[tuple[int, int], ...]:
    """The windows in the order of time. Two that overlap are refused; one may begin where another ends."""
    read: list[tuple[int, int, int]] = []
    for index, value in enumerate(table.items("windows")):
        window = Table.of(value, (*table.path, "windows", index), f"`windows[{index}]` of {table.subject}", table.found)
        if window is None:
            continue
        window.check_keys(("start", "end"))
        start, end = window.needed_time("start"), window.needed_time("end")
        if start is None or end is None:
            continue
        if start >= end:
            hint = "`end` comes after `start`"
            window.found.add((*window.path, "end"), f"{window.subject} ends before it has begun", hint=hint)
        else:
            read.append((start, end, index))
    read.sort()
    for (_, end, first), (start, _, second) in pairwise(read):
        if start < end:
            earlier, later = (*table.path, "windows", first), (*table.path, "windows", second)
            message = f"two windows of {table.subject} overlap"
            table.found.add(later, message, hint="a window may begin where the one before it ends", also=(earlier,))
    return tuple((start, end) for start, end, _ in read)


# ---- events


def _events(top: Table, pipelines: Mapping[str, ScenarioPipeline]) -> list[tuple[Path, ScenarioEvent]]:
    """The events that can be understood, each with its path."""
    read: list[tuple[Path, ScenarioEvent]] = []
    for index, value in enumerate(top.items("events")):
        table = Table.of(value, ("events", index), f"`events[{index}]`", top.found)
        event = None if table is None else _event(table, top, pipelines)
        if table is not None and event is not None:
            read.append((table.path, event))
    return read


def _event(table: Table, top: Table, pipelines: Mapping[str, ScenarioPipeline]) -> ScenarioEvent | None:
    do = table.one_of("do", DEEDS)
    if do is not None:
        _check_event_keys(table, do)
    at = table.needed_time("at")
    declared = top.values.get("pipelines")
    name = table.name_of("pipeline", declared if isinstance(declared, dict) else {}, "pipeline")
    limit = 0
    if do == "tide":
        limit = table.needed_time("max_staleness", least=1, hint="say how stale it may become, in seconds") or 0
    trigger_id = table.text("id", default=do if do in ("wave", "tide") else "") if "id" in _keys(do) else ""
    times = table.count("times", default=1, least=1) if do == "fail" else 1
    if do is None or at is None or name is None or name not in pipelines:
        return None
    ripple = _failing_ripple(table, pipelines[name]) if do == "fail" else ""
    return ScenarioEvent(at, do, name, ripple=ripple, times=times, max_staleness=limit, trigger_id=trigger_id)


def _keys(do: str | None) -> tuple[str, ...]:
    return _OWN_KEYS.get(do or "", ())


def _check_event_keys(table: Table, do: Deed) -> None:
    """Keys that no event has are unknown; keys that another event has do not belong here."""
    known = (*_EVENT_KEYS, *_keys(do))
    elsewhere = {key: other for other, keys in _OWN_KEYS.items() for key in keys if key not in known}
    table.check_keys((*known, *elsewhere), suggested=known)
    for key in table.values:
        if key in elsewhere:
            owners = some_names([other for other, keys in _OWN_KEYS.items() if key in keys])
            hint = f"`{key}` belongs to {owners}; remove it"
            table.found.add((*table.path, key), f"{table.subject} is a {do}, which has no `{key}`", hint=hint, key=True)


def _failing_ripple(table: Table, pipeline: ScenarioPipeline) -> str:
    names = [ripple.name for ripple in pipeline.ripples]
    if "ripple" in table.values:
        return table.name_of("ripple", names, "ripple", of=f" in pipeline `{pipeline.name}`") or ""
    if len(names) == 1:
        return names[0]
    if names:
        message = f"{table.subject} does not say which ripple of pipeline `{pipeline.name}` fails"
        table.found.add(table.path, message, hint=f"add `ripple`: {some_names(names)}")
    return ""


# ---- what concerns several


def _check_circles(value: Mapping[str, object], pipelines: Mapping[str, ScenarioPipeline], found: Found) -> None:
    reads = {name: (*pipeline.sources, *pipeline.optional) for name, pipeline in pipelines.items()}
    for circle in circles(reads):
        paths = [_path_to(value, reader, source) for reader, source in zip(circle, circle[1:] + circle[:1])]
        message = f"pipelines read each other in a circle: {_arrows(circle)}"
        found.add(paths[0], message, hint="remove one of these sources", also=tuple(paths[1:]))
    for name, pipeline in pipelines.items():
        for circle in circles({ripple.name: ripple.after for ripple in pipeline.ripples}):
            path: Path = ("pipelines", name, "ripples", circle[0], "after")
            message = f"ripples of pipeline `{name}` wait for each other in a circle: {_arrows(circle)}"
            found.add(path, message, hint="remove one of these names from `after`")


def _path_to(value: Mapping[str, object], reader: str, source: str) -> Path:
    """Where `reader` names `source`."""
    pipelines = value["pipelines"]
    assert isinstance(pipelines, dict)
    for key in ("sources", "optional"):
        listed = pipelines[reader].get(key)
        if isinstance(listed, list) and source in listed:
            return "pipelines", reader, key, listed.index(source)
    raise AssertionError(source)


def _arrows(circle: list[str]) -> str:
    names = [f"`{name}`" for name in [*circle, circle[0]]]
    if len(names) > 8:
        names = [*names[:4], f"{len(names) - 6} more", *names[-2:]]
    return " -> ".join(names)


def _check_triggers(events: list[tuple[Path, ScenarioEvent]], until: int | None, found: Found) -> None:
    """What `untrigger` takes away was there; what stands at the end ends with `until`."""
    standing: dict[tuple[str, str], Path] = {}
    ever: dict[str, list[str]] = {}
    for path, event in sorted(events, key=lambda pair: pair[1].at):
        if event.do in ("wave", "tide"):
            standing[event.pipeline, event.trigger_id] = path
            ever.setdefault(event.pipeline, []).append(event.trigger_id)
        elif event.do == "untrigger" and not event.trigger_id:
            standing = {key: at for key, at in standing.items() if key[0] != event.pipeline}
        elif event.do == "untrigger":
            standing.pop((event.pipeline, event.trigger_id), None)
            known = ever.get(event.pipeline, [])
            if event.trigger_id not in known:
                message = f"no trigger `{event.trigger_id}` was set on pipeline `{event.pipeline}` before {_at(event)}"
                hint = (
                    f"its triggers are {some_names(known)}" if known else "without an `id`, a trigger's id is its kind"
                )
                found.add((*path, "id"), message, hint=hint)
    if until is None:
        for (pipeline, trigger_id), path in standing.items():
            message = f"trigger `{trigger_id}` of pipeline `{pipeline}` stands for ever, and there is no `until`"
            found.add(path, message, hint='say when to stop: `"until": 60`')


def _at(event: ScenarioEvent) -> str:
    return f"{event.at / SECOND:g} s"
