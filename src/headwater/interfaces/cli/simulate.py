"""simulate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.interfaces.cli import operations
from headwater.interfaces.cli.output import JsonOption, answered, count_text, opened_project, say, show, table

if TYPE_CHECKING:
    from headwater.app.simulate import DemandKind, Simulated


_COLUMNS = ("pipeline", "state", "runs", "passes", "failures", "waste", "freshness", "mean staleness", "max staleness")


def simulate(
    context: typer.Context,
    scenario: Annotated[Path | None, typer.Argument(metavar="SCENARIO.json", help="The scenario file.")] = None,
    json_: JsonOption = False,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Draw the timeline into a file.")] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="DURATION", help="How long to simulate the project (default 1h).")
    ] = None,
    tap: Annotated[list[str] | None, typer.Option("--tap", metavar="P", help="Try a tap of a pipeline.")] = None,
    pulse: Annotated[list[str] | None, typer.Option("--pulse", metavar="P", help="Try a pulse.")] = None,
    wave: Annotated[list[str] | None, typer.Option("--wave", metavar="P", help="Try a wave.")] = None,
    tide: Annotated[list[str] | None, typer.Option("--tide", metavar="P=15m", help="Try a tide.")] = None,
    alone: Annotated[bool, typer.Option("--alone", help="Without standing demand: only what is tried.")] = False,
) -> None:
    """Simulate the freshness engine on virtual time: what would run when, and how stale the results would be. Without a
    file: the project's own pipelines, from now on, with the measured durations of their runs."""
    if svg is not None:
        _check_target(svg)
    given: dict[DemandKind, list[str] | None] = {"tap": tap, "pulse": pulse, "wave": wave, "tide": tide}
    tried = [(kind, text) for kind, texts in given.items() for text in texts or ()]
    if scenario is not None:
        if until is not None or tried or alone:
            raise HeadwaterError(
                "HW-U01",
                "a scenario file has its own demand and its own end",
                hint="write `events` and `until` into the file, or leave it out to simulate the project",
            )
        found, title = operations.simulate.simulate_file(scenario), scenario.stem
    else:
        found, title = _own(context, until or "1h", tried, alone=alone)
    if svg is not None:
        from headwater.base.blobs import write_whole
        from headwater.interfaces.timeline_svg import timeline_svg

        write_whole(svg.resolve(), timeline_svg(found, title=title).encode(), durable=False)
    if not answered(json_, found.answer):
        _show(found.answer)
    if svg is not None:
        say(f"wrote {svg}")


def _own(
    context: typer.Context, until: str, tried: Sequence[tuple[DemandKind, str]], *, alone: bool
) -> tuple[Simulated, str]:
    """Simulates the project itself; the result, and the project's name."""
    what_if = [operations.simulate.demand_to_try(kind, text) for kind, text in tried]
    with opened_project(context) as opened:
        found = operations.simulate.simulate_project(opened, until=until, what_if=what_if, alone=alone)
        name = opened.project.name
    if not found.scenario.events:
        say("no demand is set: nothing would run; try some with --pulse, --tap, --wave or --tide")
    elif found.unmeasured:
        shown = ", ".join(found.unmeasured[: limits.UNMEASURED_SHOWN])
        left_out = len(found.unmeasured) - limits.UNMEASURED_SHOWN
        more = f" and {left_out} more" if left_out > 0 else ""
        say(f"never measured, assumed to take 1 s: {shown}{more}")
    return found, name


def _check_target(path: Path) -> None:
    """Refuse a path that cannot become the picture before the simulation runs; never replace a directory or a
    device."""
    try:
        if path.exists() and not path.is_file():
            reason, hint = "it is not a file", "name a file for the picture"
        elif not path.parent.is_dir():
            reason, hint = f"there is no directory `{path.parent}`", "create it"
        else:
            return
    except OSError as error:
        raise HeadwaterError("HW-U01", f"cannot write `{path}`: {error.strerror or error}") from error
    raise HeadwaterError("HW-U01", f"cannot write `{path}`: {reason}", hint=hint)


def _show(found: Mapping[str, Any]) -> None:
    rows = [
        [
            name,
            p["state"],
            *(p[key] for key in ("runs", "passes", "failures", "waste")),
            *(_seconds(p["end_freshness"]), _seconds(p["staleness"]["mean"], 3), _seconds(p["staleness"]["max"])),
        ]
        for name, p in found["pipelines"].items()
    ]
    show(_table(_COLUMNS, rows, seconds=(6, 7, 8)))
    timeline = found["timeline"]
    if timeline:
        lines = [
            [_seconds(entry["at"]), entry["pipeline"], _what(entry)] for entry in timeline[: limits.TIMELINE_SHOWN]
        ]
        show(f"\n{_table(('at', 'pipeline', 'what'), lines, seconds=(0,))}")
    left_out = len(timeline) - limits.TIMELINE_SHOWN
    if left_out > 0:
        say(f"{count_text(left_out, 'line')} left out of the timeline; `--json` has all, `--svg FILE` draws it")


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, seconds: Sequence[int]) -> str:
    """A table with the columns of seconds aligned to the right."""
    widths = {at: max(len(columns[at]), *(len(str(row[at])) for row in rows)) for at in seconds}
    return table(
        [name.rjust(widths.get(at, 0)) for at, name in enumerate(columns)],
        [[str(cell).rjust(widths[at]) if at in widths else cell for at, cell in enumerate(row)] for row in rows],
    )


def _what(entry: Mapping[str, Any]) -> str:
    """An entry of the timeline as text."""
    freshness = f" (freshness {_seconds(entry['freshness'])})" if "freshness" in entry else ""
    match entry["event"]:
        case "demand":
            target = f", at least as fresh as {_seconds(entry['target'])}" if "target" in entry else ""
            return f"{entry['kind']}{target}"
        case "demand_refused":
            return f"{entry['kind']} refused: `{entry['because']}` has failed"
        case "ripple_started" if entry["attempt"] > 1:
            return f"{entry['ripple']} started, attempt {entry['attempt']}{freshness}"
        case "ripple_started" | "ripple_completed" | "ripple_failed" | "ripple_passed" as event:
            return f"{entry['ripple']} {event.removeprefix('ripple_')}{freshness}"
        case event:
            return f"{event.replace('_', ' ')}{freshness}"


def _seconds(value: float | None, digits: int = 6) -> str:
    """Seconds without an exponent or trailing zeros."""
    return "-" if value is None else f"{value:.{digits}f}".rstrip("0").rstrip(".")
