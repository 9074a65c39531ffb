"""simulate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from headwater.base.errors import HeadwaterError
from headwater.faces.cli.output import JsonOption, answer, count_text, say, table

TIMELINE_SHOWN = 60
"""A longer timeline is cut on the screen; `--json` has all of it."""

_COLUMNS = ("pipeline", "state", "runs", "passes", "failures", "waste", "freshness", "mean staleness", "max staleness")

ScenarioArgument = Annotated[Path | None, typer.Argument(metavar="[SCENARIO.json]", help="The scenario file.")]
SvgOption = Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Draw the timeline into a file.")]


def register(app: typer.Typer) -> None:
    app.command()(simulate)


def simulate(scenario: ScenarioArgument = None, json_: JsonOption = False, svg: SvgOption = None) -> None:
    """Run the freshness engine on virtual time: what would run when, and how stale the results would be."""
    from headwater.app.simulating import simulate_file

    if scenario is None:
        raise HeadwaterError(
            "HW-U01",
            "simulating the project's own pipelines is not supported yet: it comes with `headwater serve`",
            hint="name a scenario file: `headwater simulate SCENARIO.json`",
        )
    if svg is not None:
        _check_target(svg)
    found = simulate_file(scenario)
    if svg is not None:
        from headwater.base.blobs import write_whole
        from headwater.faces.timeline_svg import timeline_svg

        picture = timeline_svg(found.scenario, found.answer, title=scenario.stem)
        write_whole(svg.resolve(), picture.encode(), durable=False)
    if json_:
        answer(found.answer)
    else:
        _show(found.answer)
    if svg is not None:
        say(f"wrote {svg}")


def _check_target(path: Path) -> None:
    """Refuse what cannot become a picture before time is spent on it; never replace a directory or a device."""
    try:
        if path.exists() and not path.is_file():
            raise HeadwaterError(
                "HW-U01", f"cannot write `{path}`: it is not a file", hint="name a file for the picture"
            )
        if not path.parent.is_dir():
            raise HeadwaterError(
                "HW-U01", f"cannot write `{path}`: there is no directory `{path.parent}`", hint="create it"
            )
    except OSError as error:
        raise HeadwaterError("HW-U01", f"cannot write `{path}`: {error.strerror or error}") from error


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
    typer.echo(_table(_COLUMNS, rows, seconds=(6, 7, 8)))
    timeline = found["timeline"]
    if timeline:
        lines = [[_seconds(entry["at"]), entry["pipeline"], _what(entry)] for entry in timeline[:TIMELINE_SHOWN]]
        typer.echo(f"\n{_table(('at', 'pipeline', 'what'), lines, seconds=(0,))}")
    left_out = len(timeline) - TIMELINE_SHOWN
    if left_out > 0:
        say(f"{count_text(left_out, 'line')} left out of the timeline; `--json` has all, `--svg FILE` draws it")


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, seconds: Sequence[int]) -> str:
    """A table with the texts of some columns to the right: they are numbers of seconds."""
    widths = {at: max(len(columns[at]), *(len(str(row[at])) for row in rows)) for at in seconds}
    return table(
        [name.rjust(widths.get(at, 0)) for at, name in enumerate(columns)],
        [[str(cell).rjust(widths[at]) if at in widths else cell for at, cell in enumerate(row)] for row in rows],
    )


def _what(entry: Mapping[str, Any]) -> str:
    """An entry of the timeline in words."""
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
    """Seconds without an exponent or a tail of zeros."""
    return "-" if value is None else f"{value:.{digits}f}".rstrip("0").rstrip(".")
