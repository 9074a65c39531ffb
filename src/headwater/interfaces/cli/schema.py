"""schema export, log, accept, promote, regen-view."""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.interfaces.cli import operations
from headwater.interfaces.cli.output import JsonOption, TableArgument, answered, on_project, say, show, table

app = typer.Typer(help="Table schemas, and the schema of the manifest.", no_args_is_help=True)


@app.command()
def export(context: typer.Context, json_: JsonOption = False) -> None:
    """Write the JSON Schemas of the manifest to `.headwater/schema/`, for editors."""
    paths = [str(path) for path in on_project(context, operations.schema.export)]
    if not answered(json_, {"written": paths}):
        show("\n".join(paths))


@app.command()
def log(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="TABLE|PIPELINE")],
    json_: JsonOption = False,
) -> None:
    """Every schema change of a table, or of a pipeline's tables: what changed, when, and the actor."""
    events = on_project(context, operations.schema.log, name)
    if answered(json_, {"events": events}):
        return
    columns = ("seq", "at", "table", "kind", "column", "before", "after", "note", "decided_by")
    shown = [{**e, "after": None, "before": None} if e["kind"] == "created" else e for e in events]
    show(table(columns, [[event[name] for name in columns] for event in shown]))


@app.command()
def accept(context: typer.Context, name: TableArgument, json_: JsonOption = False) -> None:
    """Accept a schema change that was refused; the log records the actor."""
    accepted = on_project(context, operations.schema.accept, name)
    if answered(json_, {"accepted": accepted}):
        return
    for change in accepted.changes:
        show(f"{name}: {change}")
    say(f"accepted by {accepted.decided_by}, schema {accepted.schema_id}; continue with `headwater apply`")


@app.command()
def promote(
    context: typer.Context,
    name: TableArgument,
    path: Annotated[str, typer.Argument(metavar="PATH", help="Such as `props.user.id`.")],
    as_: Annotated[str, typer.Option("--as", metavar="NAME:TYPE", help="The new column, such as `user_id:long`.")],
    json_: JsonOption = False,
) -> None:
    """Give a value inside a `dynamic` column a typed column of its own, for old rows and new ones."""
    found = on_project(context, operations.schema.promote, name, path, as_=as_)
    if answered(json_, {"promoted": found}):
        return
    show(f"{found.table}: {found.column} {found.type} from {found.path}")
    if found.seq is None:
        say("it was promoted before; nothing was written")
    else:
        say(f"decided by {found.decided_by}, schema {found.schema_id}, visible at {found.seq}")


@app.command("regen-view")
def regen_view(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="TABLE")] = None,
    json_: JsonOption = False,
) -> None:
    """Write a table's view (default: all views) again from the catalog."""
    changed = on_project(context, operations.schema.regen_view, name)
    if not answered(json_, {"changed": changed}):
        show("\n".join(f"views/{name}.sql" for name in changed) or "every view is as the catalog says")
