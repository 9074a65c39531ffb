"""Checks that need the whole project: names used twice, sources that do not exist, circles, windows that overlap,
connectors that do not exist, keys a connector does not know.

Pure: pipelines in, errors out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import gcd

from pydantic import JsonValue, ValidationError

from headwater.base.errors import HeadwaterError, Position, did_you_mean
from headwater.base.printable import quoted
from headwater.manifest.documents import Part
from headwater.manifest.durations import DAY_US, duration_us, time_of_day_us
from headwater.manifest.positions import Path
from headwater.manifest.references import pipeline_secrets
from headwater.manifest.spec import PipelineSpec, RippleSpec, TableSettings, TableSpec, WindowSpec
from headwater.manifest.support import PLANNED_CONNECTORS
from headwater.manifest.table_checks import check_source_table, check_table
from headwater.manifest.violations import explain
from headwater.manifest.vocabulary import needs_quotes

_NOT_OF_A_VIEW = (
    "mode",
    "primary_key",
    "compaction",
    "cluster_by",
    "partition_by",
    "retain_runs",
    "indexes",
    "timeout",
)

CheckConfig = Callable[[str, Mapping[str, JsonValue]], Iterable[tuple[str, str, str]]]
"""Checks a connector's config: (connector, config) -> (key of the config, message, hint) of each fault."""


@dataclass(frozen=True)
class LoadedPipeline:
    """A pipeline and where it is written. `wrong` are the keys that were left out because their errors are reported
    already: they are not reported as missing."""

    spec: PipelineSpec
    part: Part = field(repr=False, compare=False)
    wrong: frozenset[str] = frozenset()

    @property
    def file(self) -> str:
        """The file that defines it, relative to the project."""
        return self.part.document.file

    @property
    def position(self) -> Position:
        """Where its definition begins; computed on demand."""
        return self.part.position()


def declare(part: Part) -> tuple[LoadedPipeline | None, list[HeadwaterError]]:
    """A pipeline from its data, with all its own errors; the valid rest of a wrong pipeline is still checked."""
    data = dict(part.data)
    if part.document.format == "json" and isinstance(data.get("$schema"), str):
        del data["$schema"]  # for editors, not for us
    try:
        return LoadedPipeline(PipelineSpec.model_validate(data), part), []
    except ValidationError as error:
        wrong = frozenset(str(detail["loc"][0]) for detail in error.errors(include_url=False))
        return _salvage(part, data, wrong), explain(error, part, PipelineSpec)


def check_pipeline(
    pipeline: LoadedPipeline, connectors: Collection[str], check_config: CheckConfig | None
) -> Iterator[HeadwaterError]:
    """What is wrong with one pipeline by itself."""
    part, spec = pipeline.part, pipeline.spec
    if not pipeline.wrong:
        yield from _check_shape(part, spec)
    for path, table in tables_of(pipeline):
        yield from check_table(part, path, table)
        if isinstance(table, TableSpec):
            yield from check_source_table(part, path, spec, table)
    yield from _check_ripples(part, spec)
    yield from _check_windows(part, spec)
    yield from pipeline_secrets(part, spec, None if "secrets" in pipeline.wrong else spec.secrets)
    if spec.source is None:
        return
    connector = spec.source.connector
    if connector in connectors:
        for key, message, hint in check_config(connector, spec.source.config) if check_config else ():
            yield part.wrong(("source", "config", key), f": {message}", hint=hint, key=True, code="HW-C01")
    elif connector not in PLANNED_CONNECTORS:
        known = "known connectors: " + ", ".join(sorted(connectors))
        hint = did_you_mean(connector, [*connectors, *PLANNED_CONNECTORS], known)
        message = f"unknown connector `{connector[:80]}` in {part.subject}"
        yield part.error("HW-M06", ("source", "connector"), message, hint=hint)


def check_project(parts: Sequence[Part], unread: Collection[str]) -> Iterator[HeadwaterError]:
    """What is wrong between pipelines, from their data as it is written: a pipeline that is wrong by itself still has
    its names. `unread` are the ids that unreadable files may hold, so they are not reported as missing."""
    yield from _check_ids(parts)
    yield from _check_table_names(parts)
    yield from _check_sources(parts, unread)
    yield from _check_cycles(parts)


def name_warnings(pipeline: LoadedPipeline) -> Iterator[str]:
    """Names that need quotes in DuckDB: they are legal, but a user should know it before the first query."""
    for path, table in tables_of(pipeline):
        names = [name for name in table.columns if needs_quotes(name)]
        if names:
            listed = ", ".join(f"`{name}`" for name in names)
            place = pipeline.part.position((*path, "columns", names[0]), key=True)
            yield f"{place}: {'columns' if len(names) > 1 else 'column'} {listed} must be in double quotes in SQL"


def tables_of(pipeline: LoadedPipeline) -> Iterator[tuple[Path, TableSettings]]:
    """The tables and ripples, without the wrong ones."""
    if "tables" in pipeline.wrong:
        listed = pipeline.part.data["tables"]
        for index, data in enumerate(listed if isinstance(listed, list) else []):
            with suppress(ValidationError):
                yield ("tables", index), TableSpec.model_validate({"name": data} if isinstance(data, str) else data)
    for index, table in enumerate(pipeline.spec.tables):
        yield ("tables", index), table
    for index, ripple in enumerate(pipeline.spec.ripples):
        yield ("ripples", index), ripple


def circles(graph: Mapping[str, Sequence[str]]) -> Iterator[list[str]]:
    """One circle of each group of connected circles, found without recursion."""
    state: dict[str, int] = {}
    for start in graph:
        if start in state:
            continue
        trail: list[str] = [start]
        pending: list[Iterator[str]] = [iter(graph[start])]
        state[start] = 1
        while pending:
            step = next(pending[-1], None)
            if step is None:
                pending.pop()
                state[trail.pop()] = 2
            elif step not in graph or state.get(step) == 2:
                continue
            elif state.get(step) == 1:
                yield trail[trail.index(step) :]
            else:
                state[step] = 1
                trail.append(step)
                pending.append(iter(graph[step]))


def arrows(circle: Sequence[str]) -> str:
    names = [quoted(name) for name in [*circle, circle[0]]]
    return " -> ".join(names if len(names) <= 8 else [*names[:4], f"{len(names) - 6} more", *names[-2:]])


def _salvage(part: Part, data: Mapping[str, JsonValue], wrong: frozenset[str]) -> LoadedPipeline | None:
    kept: dict[str, JsonValue] = {key: value for key, value in data.items() if key not in wrong}
    if "id" in wrong:
        kept["id"] = "unnamed"
    source = data.get("source")
    if "source" in wrong and isinstance(source, dict):
        kept["source"] = {key: source[key] for key in ("connector", "config") if key in source}
    for _ in range(2):
        with suppress(ValidationError):
            return LoadedPipeline(PipelineSpec.model_validate(kept), part, wrong)
        kept.pop("source", None)
    return None


def _check_shape(part: Part, spec: PipelineSpec) -> Iterator[HeadwaterError]:
    if spec.source is not None and spec.sources:
        message = f"{part.subject} has a `source` and `sources`"
        hint = "an Inlet reads one `source`; a pipeline over other pipelines has `sources`: make two pipelines"
        yield part.error("HW-M03", ("sources",), message, hint=hint, key=True)
    elif spec.source is None and not spec.sources:
        message = f"{part.subject} reads nothing: it has neither `source` nor `sources`"
        hint = 'add `source = { connector = "files", config = { path = "data/*.ndjson" } }`'
        yield part.error("HW-M03", (), message, hint=hint)
    elif spec.source is not None:
        if not spec.tables:
            message = f"{part.subject} names no table"
            yield part.error("HW-M03", ("tables",), message, hint='add `tables = ["orders"]`')
        if spec.ripples:
            hint = f'make a second pipeline with `sources = ["{spec.id}"]` and put them there'
            yield part.wrong(("ripples",), " belong to a pipeline with `sources`", hint=hint, key=True)
        if spec.timeout:
            hint = "it holds for ripples; remove it"
            yield part.wrong(("timeout",), " belongs to a pipeline with `sources`", hint=hint, key=True)
    else:
        for key, belongs in (("tables", spec.tables), ("incremental", spec.incremental), ("poll", spec.poll)):
            if belongs:
                hint = "a pipeline with `sources` makes its tables in `ripples`" if key == "tables" else ""
                yield part.wrong((key,), " belongs to a pipeline with a `source`", hint=hint, key=True)
        if not spec.ripples:
            message = f"{part.subject} reads pipelines and makes nothing of them: it has no `ripples`"
            yield part.error("HW-M03", ("ripples",), message, hint="add a ripple with `name` and `sql`")


def _check_ripples(part: Part, spec: PipelineSpec) -> Iterator[HeadwaterError]:
    names = [ripple.name for ripple in spec.ripples]
    for index, ripple in enumerate(spec.ripples):
        at: Path = ("ripples", index)
        name = f"the ripple `{ripple.name}` of {part.subject}"
        if (ripple.sql is None) == (ripple.python is None):
            yield part.error("HW-M03", at, f"{name} needs one of `sql` and `python`")
        yield from _check_ripple_table(part, at, ripple, name)
        for position, parent in enumerate(ripple.after):
            if parent not in names:
                message = f"{name} comes after `{parent}`, which is none of its ripples"
                yield part.error("HW-M07", (*at, "after", position), message, hint=did_you_mean(parent, names))
    after = {ripple.name: ripple.after for ripple in spec.ripples}
    for circle in circles(after):
        index = names.index(circle[0])
        message = f"ripples of {part.subject} wait for each other in a circle: {arrows(circle)}"
        yield part.error("HW-M07", ("ripples", index, "after"), message, hint="remove one of the `after`s")


def _check_ripple_table(part: Part, at: Path, ripple: RippleSpec, name: str) -> Iterator[HeadwaterError]:
    """Checks the keys for the table or view that a ripple makes."""
    if ripple.materialize == "view":
        if ripple.python is not None:
            message, hint = f"{name} is a view, which is made of `sql`", 'write `sql`, or `materialize = "table"`'
            yield part.error("HW-M03", (*at, "python"), message, hint=hint, key=True)
        for key in _NOT_OF_A_VIEW:
            if getattr(ripple, key):
                message = f"{name} is a view, which has no rows of its own: `{key}` does nothing"
                yield part.error("HW-M03", (*at, key), message, hint="remove it", key=True)
    elif ripple.mode == "upsert" and not ripple.primary_key:
        message = f"{name} upserts, and has no `primary_key` to find rows by"
        yield part.error("HW-M03", (*at, "mode"), message, hint='add `primary_key = ["..."]`, or use `replace`')


def _check_ids(parts: Sequence[Part]) -> Iterator[HeadwaterError]:
    places: dict[str | None, list[Part]] = {}
    for part in parts:
        places.setdefault(part.id, []).append(part)
    for name, same in places.items():
        if name is not None and len(same) > 1:
            hint = "keep one of them"
            if len({part.document.format for part in same}) > 1:
                hint += f"; `headwater pipeline convert {name} --to json` migrates it"
            times = "twice" if len(same) == 2 else f"{len(same)} times"
            where = tuple(part.position() for part in same)
            yield HeadwaterError("HW-M04", f"pipeline `{name}` is defined {times}", hint=hint, places=where)


def _check_table_names(parts: Sequence[Part]) -> Iterator[HeadwaterError]:
    found: dict[str, list[tuple[Part, Path]]] = {}
    for part in parts:
        for path, name in [*_named(part, "tables", "as", "name"), *_named(part, "ripples", "name")]:
            found.setdefault(name, []).append((part, path))
    for name, same in found.items():
        owners = list(dict.fromkeys(part.subject for part, _ in same))
        if len(same) == 1:
            continue
        if len(owners) == 1 and len({id(part) for part, _ in same}) > 1:
            continue  # one pipeline, defined twice: that is reported already
        by = f"by {' and '.join(owners)}" if len(owners) > 1 else f"in {owners[0]}"
        hint = "give one of them another name"
        renamable = [part for part, path in same if path[0] == "tables"]
        if renamable:
            prefix = (renamable[-1].id or "other").replace("-", "_")
            hint += f': `as = "{prefix}_{name}"`'
        where = tuple(part.position(path) for part, path in same)
        yield HeadwaterError("HW-M04", f"table `{name}` is defined twice, {by}", hint=hint, places=where)


def _check_sources(parts: Sequence[Part], unread: Collection[str]) -> Iterator[HeadwaterError]:
    known = {part.id for part in parts if part.id is not None}
    for part in parts:
        named: set[str] = set()
        for path, source in _named(part, "sources", "pipeline"):
            if source in named:
                message = f"{part.subject} names the source `{source}` twice"
                yield part.error("HW-M07", path, message, hint="keep one of them")
            named.add(source)
            if source not in known and source not in unread:
                message = f"{part.subject} reads the pipeline `{source[:80]}`, which does not exist"
                hint = did_you_mean(source, known, "known pipelines: " + ", ".join(sorted(known)))
                yield part.error("HW-M07", path, message, hint=hint)


def _check_cycles(parts: Sequence[Part]) -> Iterator[HeadwaterError]:
    by_id = {part.id: part for part in parts if part.id is not None}
    graph = {
        name: {source: path for path, source in _named(part, "sources", "pipeline")} for name, part in by_id.items()
    }
    for circle in circles({name: tuple(sources) for name, sources in graph.items()}):
        pairs = zip(circle, circle[1:] + circle[:1])
        places = tuple(by_id[reader].position(graph[reader][source]) for reader, source in pairs)
        message = f"pipelines read each other in a circle: {arrows(circle)}"
        if len(circle) == 1:
            message = f"pipeline `{circle[0]}` reads itself"
        yield HeadwaterError("HW-M07", message, hint="remove one of these sources", places=places)


def _named(part: Part, key: str, *names: str) -> Iterator[tuple[Path, str]]:
    """The names in a list of texts or tables, as they are written; `names` are the keys that may hold one, the first
    that is set wins."""
    listed = part.data.get(key)
    for index, item in enumerate(listed if isinstance(listed, list) else []):
        if isinstance(item, str):
            yield (key, index), item
        elif isinstance(item, dict):
            name = next((name for name in names if isinstance(item.get(name), str)), None)
            if name is not None:
                yield (key, index, name), str(item[name])


def _check_windows(part: Part, spec: PipelineSpec) -> Iterator[HeadwaterError]:
    if spec.windows and not spec.is_inlet:
        message = ": only a pipeline with a `source` has windows"
        yield part.wrong(("windows",), message, hint="put the windows on its sources", key=True)
        return
    for index, window in enumerate(spec.windows):
        if duration_us(window.duration) > duration_us(window.every):
            message = f"`windows[{index}]` of {part.subject} lasts longer than the time until it opens again"
            yield part.error("HW-M03", ("windows", index, "duration"), message, hint="make it shorter than `every`")
        for earlier in range(index):
            if _overlap(spec.windows[earlier], window):
                message = f"`windows[{earlier}]` and `windows[{index}]` of {part.subject} overlap"
                places = (part.position(("windows", earlier)), part.position(("windows", index)))
                hint = "make them meet end to start, or make one of the two"
                yield HeadwaterError("HW-M03", message, hint=hint, places=places)


def _overlap(one: WindowSpec, other: WindowSpec) -> bool:
    """True if one window ever opens while the other is open. The distance of two openings takes every value that equals
    the distance of the starts modulo the common divisor of the periods."""
    period = gcd(duration_us(one.every), duration_us(other.every))
    for shift in _zone_shifts(one.timezone, other.timezone):
        distance = (time_of_day_us(other.start) - time_of_day_us(one.start) + shift) % period
        if distance < duration_us(one.duration) or period - distance < duration_us(other.duration):
            return True
    return False


def _zone_shifts(one: str, other: str) -> set[int]:
    """The differences between the clocks of two zones in a year: the zones may change on different days."""
    if one == other:
        return {0}
    from datetime import UTC, datetime, timedelta
    from zoneinfo import ZoneInfo

    days = [datetime(2024, 1, 1, tzinfo=UTC) + timedelta(days=day) for day in range(366)]
    clocks = [[day.astimezone(ZoneInfo(zone)).replace(tzinfo=UTC) for day in days] for zone in (one, other)]
    return {(mine - theirs) // timedelta(microseconds=1) % DAY_US for mine, theirs in zip(*clocks)}
