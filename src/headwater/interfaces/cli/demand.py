"""tap, pulse, wave, tide, trigger, clear."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from headwater.interfaces.cli import operations
from headwater.interfaces.cli.output import (
    JsonOption,
    PipelineArgument,
    answer,
    answered,
    on_project,
    opened_project,
    say,
    show,
    table,
)

ForOption = Annotated[
    str | None, typer.Option("--for", metavar="DURATION", help="It ends after this time, such as 2h.")
]
NameOption = Annotated[str | None, typer.Option("--name", help="A name for it; one with the same name is replaced.")]

trigger = typer.Typer(help="Standing demand: waves, tides and cron.", no_args_is_help=True)


def tap(context: typer.Context, pipeline: PipelineArgument, json_: JsonOption = False) -> None:
    """Ask once for new data: run with the freshest data that the sources can give."""
    _tell(on_project(context, operations.demand.ask, pipeline, "tap"), json_=json_)


def pulse(context: typer.Context, pipeline: PipelineArgument, json_: JsonOption = False) -> None:
    """Ask once for data at least as fresh as now. Does not wait: `headwater run` does."""
    _tell(on_project(context, operations.demand.ask, pipeline, "pulse"), json_=json_)


def wave(
    context: typer.Context,
    pipeline: PipelineArgument,
    for_: ForOption = None,
    name: NameOption = None,
    json_: JsonOption = False,
) -> None:
    """Keep a pipeline as fresh as it can be, for as long as `headwater serve` runs."""
    _stand(context, pipeline, "wave", json_=json_, expires_in=for_, trigger_id=name)


def tide(
    context: typer.Context,
    pipeline: PipelineArgument,
    max_staleness: Annotated[str, typer.Option("--max-staleness", metavar="DURATION", help="Such as 15m.")],
    for_: ForOption = None,
    name: NameOption = None,
    json_: JsonOption = False,
) -> None:
    """Keep the staleness of a pipeline below a limit, for as long as `headwater serve` runs."""
    _stand(context, pipeline, "tide", json_=json_, max_staleness=max_staleness, expires_in=for_, trigger_id=name)


def clear(context: typer.Context, pipeline: PipelineArgument, json_: JsonOption = False) -> None:
    """Report that the cause of a pipeline's failure is fixed: it continues with the demand that it had."""
    _tell(on_project(context, operations.demand.clear, pipeline), json_=json_)


@trigger.command("list")
def list_(context: typer.Context, json_: JsonOption = False) -> None:
    """All standing demand: from the manifest, and set by users."""
    found = on_project(context, operations.demand.triggers)
    if answered(json_, {"triggers": found}):
        return
    columns = ("pipeline", "trigger", "kind", "when", "set by", "until")
    rows = [[t.pipeline, t.trigger_id, t.kind, _when(t), t.actor, t.expires_at] for t in found]
    show(table(columns, rows))


@trigger.command("remove")
def remove(
    context: typer.Context,
    pipeline: PipelineArgument,
    trigger_id: Annotated[str | None, typer.Argument(metavar="TRIGGER", help="Without it: all of them.")] = None,
    json_: JsonOption = False,
) -> None:
    """Remove standing demand that a user set. What the manifest declares is removed there."""
    gone = on_project(context, operations.demand.remove_trigger, pipeline, trigger_id)
    if not answered(json_, {"pipeline": pipeline, "removed": gone}):
        say(f"{pipeline}: {gone} removed")


def _stand(
    context: typer.Context, pipeline: str, kind: Literal["wave", "tide"], *, json_: bool, **settings: str | None
) -> None:
    with opened_project(context) as opened:
        found = operations.demand.set_trigger(opened, pipeline, kind, **settings)
        served = operations.demand.is_served(opened.store())
    if answered(json_, {"trigger": found, "served": served}):
        return
    say(f"{pipeline}: {found.trigger_id} is set" + (f" until {found.expires_at}" if found.expires_at else ""))
    if not served:
        say("no server is running: it takes effect when `headwater serve` runs")


def _tell(asked: Any, *, json_: bool) -> None:
    if json_:
        answer(vars(asked))
    elif asked.taken:
        say(f"{asked.pipeline}: {asked.kind} taken" + (f", for {asked.target}" if asked.target else ""))
    elif asked.served:
        say(f"{asked.pipeline}: {asked.kind} queued; the engine is busy and will take it")
    else:
        say(
            f"{asked.pipeline}: {asked.kind} queued; no server is running. "
            "Start `headwater serve`, or run `headwater apply`."
        )


def _when(found: Any) -> str | None:
    if found.max_staleness_seconds is not None:
        return f"at most {found.max_staleness_seconds:g} s stale"
    return found.at if found.at is not None else "always"
