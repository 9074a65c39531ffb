"""tap, pulse, wave, tide, trigger, clear."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from headwater.interfaces.cli.output import JsonOption, answer, opened_project, say, show, table

PipelineArgument = Annotated[str, typer.Argument(metavar="PIPELINE")]
ForOption = Annotated[
    str | None, typer.Option("--for", metavar="DURATION", help="It ends after this time, such as 2h.")
]
NameOption = Annotated[str | None, typer.Option("--name", help="A name for it; one with the same name is replaced.")]

trigger = typer.Typer(help="Standing demand: waves, tides and cron.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.command()(tap)
    app.command()(pulse)
    app.command()(wave)
    app.command()(tide)
    app.command()(clear)
    app.add_typer(trigger, name="trigger")


def tap(context: typer.Context, pipeline: PipelineArgument, json_: JsonOption = False) -> None:
    """Ask once for new data: run with the freshest data that the sources can give."""
    _ask(context, pipeline, "tap", json_=json_)


def pulse(context: typer.Context, pipeline: PipelineArgument, json_: JsonOption = False) -> None:
    """Ask once for data at least as fresh as now. Does not wait: `headwater run` does."""
    _ask(context, pipeline, "pulse", json_=json_)


def wave(
    context: typer.Context,
    pipeline: PipelineArgument,
    for_: ForOption = None,
    name: NameOption = None,
    json_: JsonOption = False,
) -> None:
    """Keep a pipeline as fresh as it can be, for as long as `headwater serve` runs."""
    _stand(context, pipeline, "wave", None, for_, name, json_=json_)


def tide(
    context: typer.Context,
    pipeline: PipelineArgument,
    max_staleness: Annotated[str, typer.Option("--max-staleness", metavar="DURATION", help="Such as 15m.")],
    for_: ForOption = None,
    name: NameOption = None,
    json_: JsonOption = False,
) -> None:
    """Keep the staleness of a pipeline below a limit, for as long as `headwater serve` runs."""
    _stand(context, pipeline, "tide", max_staleness, for_, name, json_=json_)


def clear(context: typer.Context, pipeline: PipelineArgument, json_: JsonOption = False) -> None:
    """Report that the cause of a pipeline's failure is fixed: it continues with the demand that it had."""
    from headwater.app import demand as app_demand

    with opened_project(context) as opened:
        found = app_demand.clear(opened, pipeline)
    _tell(found, json_=json_)


@trigger.command("list")
def list_(context: typer.Context, json_: JsonOption = False) -> None:
    """All standing demand: from the manifest, and set by users."""
    from headwater.app import demand as app_demand

    with opened_project(context) as opened:
        found = app_demand.triggers(opened)
    if json_:
        answer({"triggers": found})
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
    from headwater.app import demand as app_demand

    with opened_project(context) as opened:
        gone = app_demand.remove_trigger(opened, pipeline, trigger_id)
    if json_:
        answer({"pipeline": pipeline, "removed": gone})
    else:
        say(f"{pipeline}: {gone} removed")


def _ask(context: typer.Context, pipeline: str, kind: Literal["tap", "pulse"], *, json_: bool) -> None:
    from headwater.app import demand as app_demand

    with opened_project(context) as opened:
        found = app_demand.ask(opened, pipeline, kind)
    _tell(found, json_=json_)


def _stand(
    context: typer.Context,
    pipeline: str,
    kind: Literal["wave", "tide"],
    max_staleness: str | None,
    expires_in: str | None,
    name: str | None,
    *,
    json_: bool,
) -> None:
    from headwater.app import demand as app_demand

    with opened_project(context) as opened:
        found = app_demand.set_trigger(
            opened, pipeline, kind, max_staleness=max_staleness, expires_in=expires_in, trigger_id=name
        )
        served = app_demand.is_served(opened.store())
    if json_:
        answer({"trigger": found, "served": served})
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
