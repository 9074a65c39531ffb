"""pipeline list, create, edit, convert."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from headwater.base.errors import HeadwaterError
from headwater.interfaces.cli import operations
from headwater.interfaces.cli.output import JsonOption, answered, say, show, table

if TYPE_CHECKING:
    from headwater.app.pipeline import EditPlan

app = typer.Typer(help="The pipelines of the manifest.", no_args_is_help=True)


Target = Literal["json", "toml"]
PipelineId = Annotated[str, typer.Argument(metavar="ID")]


@app.command("list")
def list_(context: typer.Context, json_: JsonOption = False) -> None:
    """Every pipeline: what it reads, what it fills, where it is written."""
    found = operations.pipeline.list_pipelines(context.obj)
    if answered(json_, {"pipelines": found}):
        return
    rows = [[p.pipeline, p.kind, p.reads, ", ".join(p.tables), p.place] for p in found]
    show(table(("pipeline", "kind", "reads", "tables", "where"), rows))


@app.command()
def create(
    context: typer.Context,
    pipeline: PipelineId,
    connector: Annotated[str | None, typer.Option("--connector", help="The source's connector.")] = None,
    config: Annotated[list[str] | None, typer.Option("--config", metavar="KEY=VALUE")] = None,
    tables: Annotated[list[str] | None, typer.Option("--table", metavar="NAME")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any other key.")] = None,
    from_: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="A JSON definition; `-` reads stdin.")
    ] = None,
    format_: Annotated[
        Target, typer.Option("--format", help="json: a file of its own; toml: headwater.toml.")
    ] = "json",
    json_: JsonOption = False,
) -> None:
    """Add a pipeline."""
    definition: dict[str, Any] = {"id": pipeline}
    if from_ is not None:
        definition |= operations.pipeline.read_definition(_read(from_))
    if connector is not None:
        definition["source"] = {"connector": connector, "config": operations.pipeline.parse_assignments(config)}
    if tables:
        definition["tables"] = tables
    definition |= operations.pipeline.parse_assignments(set_)
    _show(operations.pipeline.create(context.obj, definition, to=format_), as_json=json_)


@app.command()
def edit(
    context: typer.Context,
    pipeline: PipelineId,
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE")] = None,
    unset: Annotated[list[str] | None, typer.Option("--unset", metavar="KEY")] = None,
    json_: JsonOption = False,
) -> None:
    """Change keys of a pipeline in the file it is in; comments and order stay. Keys are dotted paths, such as
    `source.config.path` or `tables.orders.mode`."""
    if not set_ and not unset:
        raise HeadwaterError("HW-U01", "nothing to change", hint="use `--set KEY=VALUE` or `--unset KEY`")
    sets = operations.pipeline.parse_assignments(set_)
    _show(operations.pipeline.edit(context.obj, pipeline, sets=sets, unsets=unset or []), as_json=json_)


@app.command()
def convert(
    context: typer.Context, pipeline: PipelineId, to: Annotated[Target, typer.Option("--to")], json_: JsonOption = False
) -> None:
    """Write a pipeline in the other format; lossless but for comments."""
    _show(operations.pipeline.convert(context.obj, pipeline, to=to), as_json=json_)


def _show(plan: EditPlan, *, as_json: bool) -> None:
    written = [file for file, text in plan.changes.items() if text is not None]
    deleted = [file for file, text in plan.changes.items() if text is None]
    if answered(as_json, {"written": written, "deleted": deleted, "comments_lost": plan.comments_lost}):
        return
    for file in written:
        show(f"wrote {file}")
    for file in deleted:
        show(f"deleted {file}")
    if not plan.changes:
        say("nothing to change")
    if plan.comments_lost:
        say("the comments of the definition are lost: JSON has none")


def _read(path: Path) -> str:
    try:
        return sys.stdin.read() if str(path) == "-" else path.read_text()
    except OSError as error:
        raise HeadwaterError("HW-U01", f"cannot read `{path}`: {error.strerror or error}") from error
