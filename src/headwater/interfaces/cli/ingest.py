"""ingest and ledger."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from headwater.base import limits
from headwater.base.errors import HeadwaterError, Position
from headwater.interfaces.answers import batch_json
from headwater.interfaces.cli import operations
from headwater.interfaces.cli.output import (
    Interrupted,
    JsonOption,
    TableArgument,
    answer,
    answered,
    bad_rows_text,
    count_text,
    on_project,
    opened_project,
    say,
    show,
    show_warning,
    size_text,
    table,
)

STDIN = "-"

ledger = typer.Typer(help="The keys of pushed rows.", no_args_is_help=True)


def ingest(
    context: typer.Context,
    table_: TableArgument,
    files: Annotated[
        list[str] | None, typer.Argument(metavar="FILE", help="NDJSON, .gz or .zst too; `-` or none: plain stdin.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", help="Rows that are sent again with the same key land once.")
    ] = None,
    no_evolve: Annotated[
        bool, typer.Option("--no-evolve", help="Add no columns: unknown keys are kept in `_rescued`.")
    ] = False,
    no_create: Annotated[bool, typer.Option("--no-create", help="Do not create a missing table.")] = False,
    json_: JsonOption = False,
) -> None:
    """Push rows into a table: each file whole or not at all. They are durable when the command ends."""
    from headwater.interfaces.cli.progress import BatchBar

    names = files or [STDIN]
    if key is not None and len(names) > 1:
        raise HeadwaterError(
            "HW-U01", "a key is for one batch, and each file is one", hint="run the command once for each file"
        )
    landed: list[dict[str, Any]] = []
    with (
        _interruptible(key),
        opened_project(context) as opened,
        closing(operations.ingest.CommandIngestor(opened)) as ingestor,
        ExitStack() as stack,
    ):
        bar = BatchBar(stack, table_, len(names))
        for name in names:
            try:
                body = _read(name)
                bar.began(len(body))
                found = ingestor.push(table_, body, key=key, evolve=not no_evolve, auto_create=not no_create)
            except HeadwaterError as error:
                raise _placed(error, name, landed) from error
            bar.landed(len(body))
            landed.append({"file": name, **batch_json(found)})
            if not json_:
                with _landed_anyway():
                    _show_landed(table_, found)
    if ingestor.warning is not None:
        show_warning("the rows have landed, but the views on disk are old", ingestor.warning)
    if json_:
        with _landed_anyway():
            warnings = [ingestor.warning.as_json()] if ingestor.warning is not None else []
            answer({"table": table_, "batches": landed, "warnings": warnings})


def _show_landed(table_: str, found: Any) -> None:
    summary = f"{table_}: {count_text(found.rows_ingested, 'row')}, {size_text(found.bytes_written)}"
    again = " (landed before with this key; nothing was written)" if found.replayed else ""
    show(f"{summary}, visible at {found.snapshot_id}{again}")
    if found.rows_refused:
        say(bad_rows_text(table_, found.rows_refused))


@ledger.command("list")
def list_(
    context: typer.Context,
    table_: Annotated[str | None, typer.Argument(metavar="TABLE", help="Default: all.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many, the newest first.")] = limits.KEYS_SHOWN,
    json_: JsonOption = False,
) -> None:
    """The keys that were used, and until when each is valid."""
    found = on_project(context, operations.ingest.list_keys, table_, limit=limit)
    if answered(json_, {"keys": found}):
        return
    columns = ("table", "key", "visible at", "rows", "taken at", "expires at")
    rows = [
        [k.table, k.key, k.snapshot_id, k.rows, k.taken_at, "expired" if k.expired else k.expires_at] for k in found
    ]
    show(table(columns, rows))


@ledger.command("clear")
def clear(
    context: typer.Context,
    table_: TableArgument,
    keys: Annotated[list[str] | None, typer.Argument(metavar="KEY", help="Default: all of the table.")] = None,
    json_: JsonOption = False,
) -> None:
    """Forget keys of a table: rows that are sent with them land again, even if they are there already."""
    cleared = on_project(context, operations.ingest.clear, table_, keys or None)
    if not answered(json_, {"table": table_, "cleared": cleared}):
        say(f"{table_}: {count_text(cleared, 'key')} forgotten")


@contextmanager
def _landed_anyway() -> Iterator[None]:
    """Failing to write the answer (a full disk, a closed pipe) is no failure of the push: the next file lands too, and
    the exit code stays 0, so that no script sends the rows again."""
    try:
        yield
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            reason = (error.strerror or str(error)).lower()
            say(f"warning: the answer cannot be written: {reason}; the rows have landed, do not send them again")


@contextmanager
def _interruptible(key: str | None) -> Iterator[None]:
    """A batch without a key that was being pushed may have landed; if it is sent again, it lands twice."""
    try:
        yield
    except KeyboardInterrupt as error:
        if key is not None:
            raise
        raise Interrupted("batches may have landed: check before you send them again") from error


def _read(name: str) -> bytes:
    """A file or stdin, decompressed. Reads no more than the limit of a batch."""
    try:
        with nullcontext(sys.stdin.buffer) if name == STDIN else open(name, "rb") as file:
            return operations.ingest.decode_file(name, file.read(limits.MAX_BODY_BYTES + 1))
    except HeadwaterError as error:
        error.places = (Position("stdin" if name == STDIN else name),)
        raise
    except OSError as error:
        reason = (error.strerror or "it cannot be read").lower()
        raise HeadwaterError(
            "HW-I04", f"cannot read `{name}`: {reason}", hint="check the path; nothing of it was written"
        ) from error


def _placed(error: HeadwaterError, name: str, landed: list[dict[str, Any]]) -> HeadwaterError:
    """Adds to an error the lines of the file, if it is about rows, and the batches that landed before it: if they are
    sent again, they land twice."""
    rows = error.detail.get("rows")
    if error.code == "HW-I02" and isinstance(rows, list):
        lines = dict.fromkeys(int(row["line"]) for row in rows)
        error.places = tuple(Position("stdin" if name == STDIN else name, line) for line in lines)
        if not {".csv", ".json", ".parquet"}.isdisjoint(Path(name).suffixes):
            error.hint = "a batch is one JSON object a line; put CSV and Parquet files into the drop folder"
    if landed:
        error.detail["batches"] = landed
        note = f"{count_text(len(landed), 'file')} before it landed and must not be sent again"
        error.hint = f"{error.hint}; {note}" if error.hint else note
    return error
