"""deadletters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, assert_never

import typer

from headwater.base import limits
from headwater.interfaces.cli import operations
from headwater.interfaces.cli.output import (
    JsonOption,
    TableArgument,
    answered,
    count_text,
    opened_project,
    say,
    show,
    table,
)

if TYPE_CHECKING:
    from headwater.app.deadletters import DeadLetterView
    from headwater.app.workspace import Workspace


def deadletters(
    context: typer.Context,
    table_: TableArgument,
    verb: Annotated[
        Literal["list", "retry", "drop"],
        typer.Argument(metavar="list|retry|drop", help="Show them; land those that fit now; forget them."),
    ] = "list",
    place: Annotated[str | None, typer.Option("--place", metavar="FILE", help="Only those from this file.")] = None,
    rows: Annotated[bool, typer.Option("--rows", help="list: show the rows themselves too.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="list: how many of the newest.")] = limits.LETTERS_SHOWN,
    json_: JsonOption = False,
) -> None:
    """The bad rows of a table that were kept: show them, land those that fit now, or forget them."""
    with opened_project(context) as opened:
        match verb:
            case "list":
                _list(opened, table_, place, rows=rows, limit=limit, json_=json_)
            case "retry":
                _retry(opened, table_, place, json_=json_)
            case "drop":
                _drop(opened, table_, place, json_=json_)
            case _:
                assert_never(verb)


def _list(opened: Workspace, name: str, place: str | None, *, rows: bool, limit: int, json_: bool) -> None:
    found = operations.deadletters.list_dead_letters(opened, name, place=place, rows=rows, limit=limit)
    if answered(json_, {"table": name, "total": found.total, "letters": found.letters}):
        return
    columns = ("place", "line", "column", "reason", "kept at", *(["row"] if rows else []))
    show(table(columns, [_line(each, rows=rows) for each in found.letters], cut=False if rows else None))
    if found.total > len(found.letters):
        say(f"the newest {len(found.letters)} of {found.total}; `--limit` shows more")


def _line(letter: DeadLetterView, *, rows: bool) -> list[Any]:
    more = letter.detail or letter.value_type
    reason = f"{letter.reason} ({more})" if more else letter.reason
    cells = [letter.place, letter.line or None, letter.column, reason, letter.kept_at]
    return [*cells, letter.row] if rows else cells


def _retry(opened: Workspace, name: str, place: str | None, *, json_: bool) -> None:
    found = operations.deadletters.retry(opened, name, place=place)
    if answered(json_, {"retried": found}):
        return
    visible = f", visible at {found.snapshot_id}" if found.snapshot_id is not None else ""
    show(f"{name}: {count_text(found.landed, 'row')} landed, {found.still_bad} still bad{visible}")
    if found.files_to_read:
        files = count_text(found.files_to_read, "file")
        say(f"{name}: the next run of the pipeline reads {files} again: start it with `headwater apply`")
    for warning in found.warnings:
        say(f"warning: {warning}")


def _drop(opened: Workspace, name: str, place: str | None, *, json_: bool) -> None:
    dropped = operations.deadletters.drop(opened, name, place=place)
    if not answered(json_, {"table": name, "dropped": dropped}):
        show(f"{name}: {count_text(dropped, 'dead letter')} dropped")
