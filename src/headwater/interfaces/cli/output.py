"""How answers are shown: JSON for programs, aligned tables for people, progress on a terminal only."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec, TextIO, TypeVar

import typer

from headwater.base.errors import HeadwaterError
from headwater.base.json_form import plain
from headwater.base.printable import printable, printable_lines
from headwater.interfaces.answers import answer_text
from headwater.interfaces.cli import operations

if TYPE_CHECKING:
    from headwater.app.drop_folder import News
    from headwater.app.workspace import Workspace

P = ParamSpec("P")
T = TypeVar("T")
CELL_WIDTH = 60
"""Longer cells are cut on a terminal; `--format` shows them whole."""

_COLORS = re.compile(r"(\x1b\[(?:3[0-7]|0)m)")

JsonOption = Annotated[bool, typer.Option("--json", help="Answer with one JSON object.")]
TableArgument = Annotated[str, typer.Argument(metavar="TABLE")]
PipelineArgument = Annotated[str, typer.Argument(metavar="PIPELINE")]
PipelinesArgument = Annotated[list[str] | None, typer.Argument(metavar="PIPELINE", help="Default: all.")]


class Interrupted(Exception):
    """A Ctrl-C in a command that must not simply be run again; the message says what to do instead."""


def opened_project(context: typer.Context) -> AbstractContextManager[Workspace]:
    """The project around the directory that the command line names."""
    return operations.workspace.workspace(context.obj)


def on_project(
    context: typer.Context, operation: Callable[Concatenate[Workspace, P], T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """The answer of one operation on the project."""
    with opened_project(context) as opened:
        return operation(opened, *args, **kwargs)


def answer(value: dict[str, Any]) -> None:
    """One JSON object on stdout."""
    typer.echo(answer_text(value))


def answered(as_json: bool, value: dict[str, Any]) -> bool:
    """Answers with JSON if the command was asked to. Returns whether it was."""
    if as_json:
        answer(value)
    return as_json


def show(text: str = "") -> None:
    """A line of an answer for people: stdout."""
    typer.echo(_safe(text, sys.stdout))


def say(text: str = "") -> None:
    """A message: stderr."""
    typer.echo(_safe(text, sys.stderr), err=True)


def show_error(error: HeadwaterError, *, as_json: bool = False) -> None:
    if as_json:
        answer({"error": error.as_json()})
    head, _, rest = error.render().partition("\n")
    say(color(head, "red", sys.stderr) + (f"\n{rest}" if rest else ""))
    if error.__cause__ is not None and os.environ.get("HEADWATER_DEBUG"):
        import traceback

        say("".join(traceback.format_exception(error.__cause__)))


def show_dropped(news: News, *, quiet: bool = False) -> bool:
    """Shows what happened in the drop folder; False for a file that was moved to `_failed`. `quiet` shows only
    errors."""
    if isinstance(news, HeadwaterError):
        show_error(news)
    elif not quiet:
        kept = f"; {bad_rows_text(news.table, news.rows_refused)}" if news.rows_refused else ""
        say(f"drop: {count_text(news.files, 'file')}, {count_text(news.rows, 'row')} into {news.table}{kept}")
    return not isinstance(news, operations.drop_folder.PutAway)


def show_warning(said: str, error: HeadwaterError) -> None:
    """An error beside a successful result."""
    hint = f"; {error.hint}" if error.hint else ""
    say(f"warning: {said}: {error.code}: {error.message}{hint}")


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, cut: bool | None = None) -> str:
    """Aligned text; numbers to the right. Long cells are cut on a terminal."""
    cut = sys.stdout.isatty() if cut is None else cut
    texts = [[_cell(value, cut=cut) for value in row] for row in rows]
    widths = [max([len(name), *(len(row[i]) for row in texts)]) for i, name in enumerate(columns)]
    right = [bool(rows) and all(isinstance(row[i], int | float | None) for row in rows) for i in range(len(columns))]

    def line(cells: Sequence[str]) -> str:
        padded = [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, widths, right)]
        return "  ".join(padded).rstrip()

    return "\n".join([line(columns), line(["-" * w for w in widths]), *map(line, texts)])


def size_text(size: int | None) -> str:
    if size is None:
        return "?"
    value = float(size)
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def seconds_text(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s" if seconds < 100 else f"{seconds:,.0f} s"


def count_text(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def bad_rows_text(table: str, count: int) -> str:
    return f"{count_text(count, 'dead letter')} kept: see `headwater deadletters {table} list`"


def age_text(seconds: float | None) -> str:
    if seconds is None:
        return "never"
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f}{unit}"
    return f"{max(seconds, 0):.0f}s"


def color(text: str, name: str, stream: TextIO | None = None) -> str:
    return typer.style(text, fg=name) if _has_colors(stream or sys.stdout) else text


def _has_colors(stream: TextIO) -> bool:
    return stream.isatty() and "NO_COLOR" not in os.environ


def _safe(text: str, stream: TextIO) -> str:
    """The text without control characters for the terminal; our own colors stay."""
    if not _has_colors(stream):
        return printable_lines(text)
    return "".join(part if i % 2 else printable_lines(part) for i, part in enumerate(_COLORS.split(text)))


def _cell(value: object, *, cut: bool) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}" if abs(value) < 1e15 else repr(value)
    text = str(plain(value)) if not isinstance(value, str | int) else str(value)
    text = printable(text)
    return text[: CELL_WIDTH - 1] + "…" if cut and len(text) > CELL_WIDTH else text
