"""From the manifest to what the freshness engine runs: ponds, triggers, and the ripples of the models.

Pure, except that it reads the SQL and Python files of ripples: no store, no Spark, no clock. Compiling the same files
gives equal records, whatever the order of their keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from headwater.base.errors import HeadwaterError, raise_all
from headwater.catalog.engine_records import Weight
from headwater.freshness.events import Trigger
from headwater.freshness.graph import PondSpec, RippleNode
from headwater.freshness.windows import Windows
from headwater.manifest.durations import SECOND_US, Every, duration_us, parse_schedule
from headwater.manifest.load import Project
from headwater.manifest.spec import CronSpec, PipelineSpec, TideSpec, WaveSpec
from headwater.runtime.calendars import windows_of
from headwater.runtime.model import ModelRipple, project_tables, read_ripples
from headwater.runtime.ripple_fingerprint import landing_fingerprint

OWNER = "manifest"
"""The actor of a trigger that the manifest declares."""
POLL_US = SECOND_US
"""The least time between two scans of a source that sets no other."""


@dataclass(frozen=True)
class CronTrigger:
    """A pulse at each tick of a cron expression, on the wall clock of the time zone."""

    id: str
    pipeline: str
    at: str
    timezone: str


@dataclass(frozen=True)
class CompiledPipeline:
    """One pipeline. The ripples of its pond are the tables of an Inlet, else `ripples`, in the manifest's order. The id
    of a trigger describes it: an equal id is an equal trigger."""

    id: str
    pond: PondSpec
    triggers: tuple[Trigger, ...] = ()
    crons: tuple[CronTrigger, ...] = ()
    ripples: tuple[ModelRipple, ...] = ()


@dataclass(frozen=True)
class Compiled:
    """A whole project, by pipeline, in the manifest's order."""

    pipelines: Mapping[str, CompiledPipeline]

    @property
    def ponds(self) -> tuple[PondSpec, ...]:
        return tuple(pipeline.pond for pipeline in self.pipelines.values())

    @property
    def files(self) -> tuple[str, ...]:
        """The files beside the manifests that were read: a change of one of them changes the project."""
        ripples = (ripple for pipeline in self.pipelines.values() for ripple in pipeline.ripples)
        return tuple(dict.fromkeys(ripple.file for ripple in ripples if not ripple.is_inline))

    def weight_of(self, pipeline: str) -> Weight:
        """How long a job probably holds its worker. How much new data a source has is not known in advance."""
        return "small" if self.pipelines[pipeline].ripples else "big"


def compile_pipelines(project: Project, *, now_us: int) -> Compiled:
    """The project as the engine sees it; windows begin with the one that is open at `now_us`, or the next. Raises the
    errors of all pipelines together."""
    tables = project_tables(project.pipelines)
    errors: list[HeadwaterError] = []
    pipelines: dict[str, CompiledPipeline] = {}
    for loaded in project.pipelines:
        spec = loaded.spec
        ripples, wrong = read_ripples(loaded, root=project.root, tables=tables)
        errors += wrong
        triggers, crons = triggers_of(spec)
        pipelines[spec.id] = CompiledPipeline(spec.id, _pond(spec, ripples, now_us), triggers, crons, ripples)
    raise_all(errors)
    return Compiled(pipelines)


def _pond(spec: PipelineSpec, ripples: tuple[ModelRipple, ...], now_us: int) -> PondSpec:
    if spec.is_inlet:
        nodes = [
            RippleNode(table.table, reads=(), fingerprint=landing_fingerprint(spec, table)) for table in spec.tables
        ]
    else:
        nodes = [_node(spec, ripple) for ripple in ripples]
    interval = duration_us(spec.poll) if spec.poll else POLL_US
    return PondSpec(
        name=spec.id,
        ripples=tuple(nodes),
        required=tuple(source.pipeline for source in spec.sources if source.required),
        optional=tuple(source.pipeline for source in spec.sources if not source.required),
        windows=Windows(windows_of(spec.windows, after_us=now_us)) if spec.windows else None,
        min_interval=interval if spec.is_inlet else 1,
        retry_immediately=spec.retry.immediately if spec.retry else 0,
        retry_on_change=spec.retry.on_change if spec.retry else 0,
        always_run=spec.always_run,
    )


def _node(spec: PipelineSpec, ripple: ModelRipple) -> RippleNode:
    read = {item.source for item in ripple.inputs}
    return RippleNode(
        name=ripple.name,
        after=ripple.after,
        reads=tuple(source.pipeline for source in spec.sources if source.pipeline in read),
        fingerprint=ripple.fingerprint,
    )


def triggers_of(spec: PipelineSpec) -> tuple[tuple[Trigger, ...], tuple[CronTrigger, ...]]:
    """The triggers of a pipeline; a trigger that is declared twice counts once."""
    triggers: dict[str, Trigger] = {}
    crons: dict[str, CronTrigger] = {}

    def tide(limit: int) -> None:
        text = f"{limit // SECOND_US}s" if limit % SECOND_US == 0 else f"{limit // 1000}ms"
        trigger = Trigger(id=f"{OWNER}:tide {text}", kind="tide", limit=limit, owner=OWNER)
        triggers[trigger.id] = trigger

    def cron(at: str, timezone: str) -> None:
        at = " ".join(at.split())
        trigger = CronTrigger(id=f"{OWNER}:cron {at} {timezone}", pipeline=spec.id, at=at, timezone=timezone)
        crons[trigger.id] = trigger

    if spec.schedule is not None:
        schedule = parse_schedule(spec.schedule)
        if isinstance(schedule, Every):
            tide(schedule.interval_us)
        else:
            cron(spec.schedule, "UTC")
    for trigger in spec.triggers:
        match trigger:
            case WaveSpec():
                triggers[f"{OWNER}:wave"] = Trigger(id=f"{OWNER}:wave", kind="wave", owner=OWNER)
            case TideSpec():
                tide(duration_us(trigger.max_staleness))
            case CronSpec():
                cron(trigger.at, trigger.timezone)
            case _:
                assert_never(trigger)
    return tuple(triggers.values()), tuple(crons.values())
