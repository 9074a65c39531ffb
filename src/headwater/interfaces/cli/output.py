"""How answers are shown: JSON for programs, aligned tables for people, progress on a terminal only."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.base.errors import HeadwaterError
from headwater.base.json_form import plain
from headwater.base.printable import printable, printable_lines
from headwater.interfaces.answers import answer_text

if TYPE_CHECKING:
    from headwater.app.drop_folder import News
    from headwater.app.workspace import Workspace

CELL_WIDTH = 60
"""Longer cells are cut on a terminal; `--format` shows them whole."""

_COLORS = re.compile(r"(\x1b\[(?:3[0-7]|0)m)")

JsonOption = Annotated[bool, typer.Option("--json", help="Answer with one JSON object.")]
PipelinesArgument = Annotated[list[str] | None, typer.Argument(metavar="PIPELINE", help="Default: all.")]


class Interrupted(Exception):
    """A Ctrl-C in a command that must not simply be run again; the message says what to do instead."""


@dataclass(frozen=True)
class Face:
    """What every command knows: where to look for the project."""

    start: Path


@contextmanager
def opened_project(context: typer.Context) -> Iterator[Workspace]:
    from headwater.app.workspace import workspace

    face: Face = context.obj
    with workspace(face.start) as opened:
        yield opened


def answer(value: dict[str, Any]) -> None:
    """One JSON object on stdout."""
    typer.echo(answer_text(value))


def show(text: str = "") -> None:
    """A line of an answer for people: stdout."""
    typer.echo(_safe(text, sys.stdout))


def say(text: str = "") -> None:
    """A message: stderr."""
    typer.echo(_safe(text, sys.stderr), err=True)


def show_error(error: HeadwaterError, *, as_json: bool) -> None:
    if as_json:
        answer({"error": error.as_json()})
    head, _, rest = error.render().partition("\n")
    if sys.stderr.isatty() and "NO_COLOR" not in _environ():
        head = typer.style(head, fg="red")
    say(head + (f"\n{rest}" if rest else ""))
    if error.__cause__ is not None and _environ().get("HEADWATER_DEBUG"):
        import traceback

        say("".join(traceback.format_exception(error.__cause__)))


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


def show_dropped(news: News, *, quiet: bool = False) -> bool:
    """What the drop folder reports. False for a file that was moved to `_failed`. `quiet` shows only errors."""
    from headwater.app.drop_folder import PutAway, Taken

    if not isinstance(news, Taken):
        show_error(news.error if isinstance(news, PutAway) else news, as_json=False)
    elif not quiet:
        kept = f"; {bad_rows_text(news.table, news.rows_refused)}" if news.rows_refused else ""
        say(f"drop: {count_text(news.files, 'file')}, {count_text(news.rows, 'row')} into {news.table}{kept}")
    return not isinstance(news, PutAway)


def age_text(seconds: float | None) -> str:
    if seconds is None:
        return "never"
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f}{unit}"
    return f"{max(seconds, 0):.0f}s"


def color(text: str, name: str) -> str:
    return typer.style(text, fg=name) if sys.stdout.isatty() and "NO_COLOR" not in _environ() else text


def _safe(text: str, stream: Any) -> str:
    """The text without control characters for the terminal; our own colors stay."""
    if not (stream.isatty() and "NO_COLOR" not in _environ()):
        return printable_lines(text)
    return "".join(part if i % 2 else printable_lines(part) for i, part in enumerate(_COLORS.split(text)))


def _environ() -> dict[str, str]:
    import os

    return dict(os.environ)


def _cell(value: object, *, cut: bool) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}" if abs(value) < 1e15 else repr(value)
    text = str(plain(value)) if not isinstance(value, str | int) else str(value)
    text = printable(text)
    return text[: CELL_WIDTH - 1] + "…" if cut and len(text) > CELL_WIDTH else text
