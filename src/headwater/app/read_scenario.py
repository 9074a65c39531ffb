"""Reads a scenario file: reports every mistake at once, each with its position and a hint.

Windows may be in any order and are sorted; everything else stays in the order of the file. Events after `until` are
allowed and do not happen, so that a scenario can be shortened by one number.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from math import isfinite
from pathlib import Path as FilePath
from typing import Annotated, Any, TypeVar, get_args

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue, ValidationError

from headwater.base import limits
from headwater.base.errors import HeadwaterError, Position, nearest, raise_all, word_for
from headwater.base.printable import quoted
from headwater.freshness.graph import PondSpec, RippleNode
from headwater.freshness.scenario import Deed, Scenario, ScenarioEvent
from headwater.freshness.state import SECOND
from headwater.manifest.checks import arrows, circles
from headwater.manifest.documents import Document, Part, Unreadable, parse_json, read_text
from headwater.manifest.positions import Path
from headwater.manifest.spec import Spec
from headwater.manifest.violations import explain
from headwater.manifest.vocabulary import Listed, invalid_value

DEEDS: tuple[Deed, ...] = get_args(Deed)
_S = TypeVar("_S", bound=Spec)


def _time(least: int) -> BeforeValidator:
    """Turns seconds into microseconds."""

    def checked(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int | float):
            hint = "write it without quotes" if isinstance(value, str) else ""
            raise invalid_value(f"it must be a number of seconds, not {word_for(value)}", hint)
        if isinstance(value, float) and not isfinite(value):
            raise invalid_value("it is not a finite number")
        if value > limits.SCENARIO_SECONDS:
            raise invalid_value(f"it must be at most {limits.SCENARIO_SECONDS:,} seconds, a hundred years")
        if value < 0:
            raise invalid_value("it must not be negative", "time begins at 0")
        if round(value * SECOND) < least:
            raise invalid_value("it must be more than 0: at least 0.000001 seconds")
        return round(value * SECOND)

    return BeforeValidator(checked)


def _name(text: str) -> str:
    if not text or text != text.strip():
        raise invalid_value("the name is empty, or begins or ends with a space")
    if len(text) > limits.SCENARIO_NAME_CHARACTERS:
        raise invalid_value(f"the name is longer than {limits.SCENARIO_NAME_CHARACTERS} characters")
    if not text.isprintable():
        raise invalid_value("the name has a character that cannot be printed")
    return text


Time = Annotated[int, _time(0)]
LongTime = Annotated[int, _time(1)]
Name = Annotated[str, AfterValidator(_name)]
Names = Annotated[tuple[str, ...], Listed]
Count = Annotated[int, Field(ge=0, le=limits.SCENARIO_COUNT)]


class _RippleForm(Spec):
    seconds: Time
    after: Names = ()


class _Window(Spec):
    start: Time
    end: Time


class _Retry(Spec):
    immediately: Count = 0
    on_change: Count = 0


class _Pipeline(Spec):
    sources: Names = ()
    optional: Names = ()
    ripples: dict[Name, _RippleForm]
    windows: Annotated[tuple[_Window, ...], Listed] = ()
    min_interval: LongTime = 1
    retry: _Retry = _Retry()
    always_run: bool = True


class _Top(Spec):
    pipelines: dict[Name, dict[str, JsonValue]]
    events: Annotated[tuple[dict[str, JsonValue], ...], Listed] = ()
    until: Time | None = None


class _Event(Spec):
    at: Time
    do: Deed
    pipeline: str


class _Wave(_Event):
    id: Name | None = None


class _Tide(_Event):
    max_staleness: LongTime
    id: Name | None = None


class _Fail(_Event):
    ripple: str | None = None
    times: Annotated[int, Field(ge=1, le=limits.SCENARIO_COUNT)] = 1


_EVENTS: dict[object, type[_Event]] = {"wave": _Wave, "tide": _Tide, "untrigger": _Wave, "fail": _Fail}


def read_scenario(path: FilePath) -> Scenario:
    """The scenario of a file. Raises HW-M13 with every mistake in it, in the order of the file."""
    file = str(path)
    try:
        text = read_text(path, file, limits.SCENARIO_BYTES).removeprefix("\ufeff")
        return scenario_of(parse_json(file, text), file, text)
    except Unreadable as error:
        hint = _beside(path) if isinstance(error.__cause__, FileNotFoundError) else None
        raise_all([_recoded(each, hint) for each in error.errors], code="HW-M13", where="the scenario")
        raise


def scenario_of(value: object, file: str = "scenario.json", text: str | None = None) -> Scenario:
    """The scenario that a file's JSON describes. Raises HW-M13 with every mistake, or with the first 100."""
    if not isinstance(value, dict):
        hint, place = 'write `{"pipelines": {...}, "events": [...]}`', Position(file)
        message = f"a scenario is an object, not {word_for(value)}"
        raise HeadwaterError("HW-M13", message, hint=hint, places=(place,))
    reader = _Reader(Document(file, json.dumps(value) if text is None else text, value, kind="json"))
    scenario = reader.read()
    kept, left_out = reader.errors[: limits.SCENARIO_PROBLEMS], len(reader.errors) - limits.SCENARIO_PROBLEMS
    kept.sort(key=lambda error: (error.places[0].line, error.places[0].column))
    if left_out > 0:
        kept.append(HeadwaterError("HW-M13", f"there are {left_out:,} more mistakes", places=(Position(file),)))
    raise_all(kept, code="HW-M13", where="the scenario")
    return scenario


def _recoded(error: HeadwaterError, hint: str | None = None) -> HeadwaterError:
    hint = error.hint if hint is None else hint
    return HeadwaterError("HW-M13", error.message, hint=hint, detail=error.detail, places=error.places)


def _beside(path: FilePath) -> str:
    """The file that was meant, if one in the same directory has nearly that name."""
    try:
        stems = {other.stem: other for other in sorted(path.parent.iterdir()) if other.suffix == ".json"}
    except OSError:
        return ""
    meant = nearest(path.stem, stems)
    return f"did you mean `{stems[meant]}`?" if meant is not None else ""


@dataclass
class _Reader:
    document: Document
    errors: list[HeadwaterError] = field(default_factory=list)
    durations: dict[tuple[str, str], int] = field(default_factory=dict)
    windows: dict[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)

    def part(self, subject: str, *base: str | int, data: dict[str, Any] | None = None) -> Part:
        return Part(self.document, base, self.document.data if data is None else data, subject)

    def add(self, part: Part, path: Path, message: str, hint: str = "", *, key: bool = False) -> None:
        if len(self.errors) < limits.SCENARIO_PROBLEMS:
            self.errors.append(part.error("HW-M13", path, message, hint=hint, key=key))
        else:
            self.errors.append(HeadwaterError("HW-M13", message))  # only counted

    def valid(self, part: Part, model: type[_S]) -> _S | None:
        try:
            return model.model_validate(part.data)
        except ValidationError as error:
            self.errors += [_recoded(each) for each in explain(error, part, model)]
            return None

    def meant(self, name: str, known: Iterable[str]) -> str:
        if len(self.errors) >= limits.SCENARIO_PROBLEMS:
            return ""
        names = list(islice(known, limits.SCENARIO_NAMES_COMPARED))
        found = nearest(name, names)
        listed = ", ".join(map(quoted, names[:5])) + (", ..." if len(names) > 5 else "")
        return f"did you mean {quoted(found)}?" if found is not None else f"there is {listed}" if names else ""

    def read(self) -> Scenario:
        whole = self.part("the scenario")
        top = self.valid(whole, _Top)
        listed, events = whole.data.get("pipelines"), whole.data.get("events")
        declared = listed if isinstance(listed, dict) else {}
        if listed == {}:
            self.add(whole, ("pipelines",), "`pipelines` is empty", "name a pipeline in it")
        pipelines = {}
        for name, data in declared.items():
            if isinstance(data, dict):
                part = self.part(f"pipeline {quoted(name)}", "pipelines", name, data=data)
                found = self.valid(part, _Pipeline)
                if found is not None:
                    pipelines[name] = self._pipeline(part, name, found, declared)
        happening = []
        for index, event in enumerate(events if isinstance(events, list) else ()):
            if isinstance(event, dict):
                happening += self._event(index, event, declared, pipelines)
        self._check_circles(whole, pipelines)
        self._check_triggers(happening, endless="until" not in whole.data)
        until = top.until if top else None
        told = tuple(event for _, event in happening)
        return Scenario(tuple(pipelines.values()), self.durations, self.windows, told, until)

    def _pipeline(self, part: Part, name: str, found: _Pipeline, declared: Iterable[str]) -> PondSpec:
        self._check_names(part, ("sources",), found.sources, declared, name, "reads")
        self._check_names(part, ("optional",), found.optional, declared, name, "reads")
        for index, source in enumerate(found.optional):
            if source in found.sources:
                hint = "keep it in `sources` if a run has to wait for it, else in `optional`"
                message = f"{part.subject} reads {quoted(source)} both as a required and as an optional source"
                self.add(part, ("optional", index), message, hint)
        if found.windows and (found.sources or found.optional):
            hint = "it follows its sources by itself: put `windows` on the pipeline that reads the outside"
            self.add(part, ("windows",), f"{part.subject} has sources, so it has no `windows`", hint, key=True)
        if not found.ripples:
            self.add(part, ("ripples",), f"`ripples` of {part.subject} is empty", "name a ripple in it")
        for ripple, settings in found.ripples.items():
            self._check_names(part, ("ripples", ripple, "after"), settings.after, found.ripples, ripple, "comes after")
            self.durations[name, ripple] = settings.seconds
        self.windows[name] = self._windows(part, found.windows)
        return PondSpec(
            name,
            ripples=tuple(RippleNode(key, each.after) for key, each in found.ripples.items()),
            required=found.sources,
            optional=found.optional,
            min_interval=found.min_interval,
            retry_immediately=found.retry.immediately,
            retry_on_change=found.retry.on_change,
            always_run=found.always_run,
        )

    def _check_names(
        self, part: Part, path: Path, names: Sequence[str], known: Iterable[str], own: str, verb: str
    ) -> None:
        """Check that each name of a list exists, occurs once, and is not its own."""
        what = "pipeline" if verb == "reads" else "ripple"
        subject = part.subject if what == "pipeline" else f"ripple {quoted(own)} of {part.subject}"
        for index, name in enumerate(names):
            if name == own:
                self.add(part, (*path, index), f"{subject} {verb} itself", "remove it")
            elif name not in known:
                message = f"{subject} {verb} {quoted(name)}, and there is no {what} of that name"
                self.add(part, (*path, index), message, self.meant(name, known))
            elif name in names[:index]:
                self.add(
                    part, (*path, index), f"`{path[-1]}` of {subject} names {quoted(name)} twice", "keep one of them"
                )

    def _windows(self, part: Part, windows: Sequence[_Window]) -> tuple[tuple[int, int], ...]:
        """The windows in order of time. Two must not overlap; one may begin where another ends."""
        read = sorted((window.start, window.end, index) for index, window in enumerate(windows))
        for start, end, index in read:
            if start >= end:
                message = f"`windows[{index}]` of {part.subject} ends before it has begun"
                self.add(part, ("windows", index, "end"), message, "`end` comes after `start`")
        for (_, end, _), (start, _, index) in pairwise(read):
            if start < end:
                hint = "a window may begin where the one before it ends"
                self.add(part, ("windows", index), f"two windows of {part.subject} overlap", hint)
        return tuple((start, end) for start, end, _ in read)

    def _event(
        self, index: int, data: dict[str, Any], declared: Iterable[str], pipelines: dict[str, PondSpec]
    ) -> list[tuple[Part, ScenarioEvent]]:
        """The event, if it can be understood."""
        do = data.get("do")
        kind = f" ({do})" if do in DEEDS else ""
        part = self.part(f"`events[{index}]`{kind}", "events", index, data=data)
        found = self.valid(part, _EVENTS.get(do, _Event) if isinstance(do, str) else _Event)
        name = data.get("pipeline")
        if isinstance(name, str) and name not in declared:
            message = f"{part.subject} names the pipeline {quoted(name)}, which does not exist"
            self.add(part, ("pipeline",), message, self.meant(name, declared))
        if found is None or found.pipeline not in pipelines:
            return []
        event = ScenarioEvent(found.at, found.do, found.pipeline)
        match found:
            case _Tide():
                more: dict[str, Any] = {"max_staleness": found.max_staleness, "trigger_id": found.id or "tide"}
            case _Wave():
                more = {"trigger_id": found.id or ("wave" if found.do == "wave" else "")}
            case _Fail():
                more = {"times": found.times, "ripple": self._failing(part, found, pipelines[found.pipeline])}
            case _:
                more = {}
        return [(part, replace(event, **more))]

    def _failing(self, part: Part, found: _Fail, pipeline: PondSpec) -> str:
        names = [ripple.name for ripple in pipeline.ripples]
        if found.ripple is None and len(names) > 1:
            listed = " and ".join(map(quoted, names[:6]))
            message = f"{part.subject} does not say which ripple of pipeline {quoted(pipeline.name)} fails"
            self.add(part, (), message, f"add `ripple`: {listed}")
        elif found.ripple is not None and found.ripple not in names:
            message = f"{part.subject} names the ripple {quoted(found.ripple)}, which does not exist in pipeline {quoted(pipeline.name)}"
            self.add(part, ("ripple",), message, self.meant(found.ripple, names))
        return found.ripple or (names[0] if names else "")

    def _check_circles(self, whole: Part, pipelines: dict[str, PondSpec]) -> None:
        reads = {name: [s for s in each.sources if s != name] for name, each in pipelines.items()}
        for circle in circles(reads):
            places = []
            for reader, source in zip(circle, circle[1:] + circle[:1]):
                pond = pipelines[reader]
                key, names = ("sources", pond.required) if source in pond.required else ("optional", pond.optional)
                places.append(whole.position(("pipelines", reader, key, names.index(source))))
            message = f"pipelines read each other in a circle: {arrows(circle)}"
            hint = "remove one of these sources"
            self.errors.append(HeadwaterError("HW-M13", message, hint=hint, places=tuple(places)))
        for name, pipeline in pipelines.items():
            for circle in circles({each.name: [r for r in each.after if r != each.name] for each in pipeline.ripples}):
                path = ("pipelines", name, "ripples", circle[0], "after")
                message = f"ripples of pipeline {quoted(name)} wait for each other in a circle: {arrows(circle)}"
                self.add(whole, path, message, "remove one of these names from `after`")

    def _check_triggers(self, events: list[tuple[Part, ScenarioEvent]], *, endless: bool) -> None:
        """Check that each trigger that `untrigger` removes was set, and that one set until the end has an `until`."""
        standing: dict[tuple[str, str], Part] = {}
        ever: set[tuple[str, str]] = set()
        for part, event in sorted(events, key=lambda pair: pair[1].at):
            trigger = event.pipeline, event.trigger_id
            if event.do in ("wave", "tide"):
                standing[trigger] = part
                ever.add(trigger)
            elif event.do == "untrigger":
                standing = {
                    key: at
                    for key, at in standing.items()
                    if key[0] != event.pipeline or trigger[1] not in ("", key[1])
                }
                if event.trigger_id and trigger not in ever:
                    message = f"no trigger {quoted(trigger[1])} was set on pipeline {quoted(trigger[0])} before that"
                    self.add(part, ("id",), message, "without an `id`, a trigger's id is its kind")
        for (pipeline, trigger_id), part in standing.items() if endless else ():
            message = (
                f"trigger {quoted(trigger_id)} of pipeline {quoted(pipeline)} is never removed, and there is no `until`"
            )
            self.add(part, (), message, 'say when to stop: `"until": 60`')
