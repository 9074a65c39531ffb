"""The rows of a query, as a table, JSON, CSV or Parquet."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from headwater.base.errors import HeadwaterError
from headwater.base.json_form import distinct, json_value, plain
from headwater.interfaces.answers import answer_text
from headwater.interfaces.cli import operations
from headwater.interfaces.cli.output import table

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa


def write_rows(session: duckdb.DuckDBPyConnection, sql: str, format_: str, output: Path | None) -> None:
    """Run a query and write its rows."""
    if format_ == "parquet":
        _write_parquet(session, sql, output)
        return
    result = operations.query.run_query(session, sql)
    text = _text(list(result.columns), list(result.rows()), format_)
    if output is None:
        typer.echo(text, nl=not text.endswith("\n"), color=True)  # data is written as it is: nothing is stripped
        return
    with _writing(output):
        output.write_text(text if text.endswith("\n") else text + "\n")


def _text(columns: list[str], rows: list[Any], format_: str) -> str:
    match format_:
        case "json":
            names = distinct(columns)
            return answer_text({"columns": names, "rows": [dict(zip(names, map(json_value, row))) for row in rows]})
        case "csv":
            buffer = io.StringIO()
            writer = csv.writer(buffer, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows([[_csv(value) for value in row] for row in rows])
            return buffer.getvalue()
        case _:
            return table(columns, rows)


def _csv(value: Any) -> Any:
    """A cell: texts as they are, nested values as JSON, null as empty."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case str() | int() | float():
            return value
        case list() | tuple() | dict():
            return json.dumps(json_value(value), default=plain, ensure_ascii=False)
        case _:
            return plain(value)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise HeadwaterError("HW-U01", f"cannot write `{path}`: {error.strerror or error}") from error


def _write_parquet(session: duckdb.DuckDBPyConnection, sql: str, output: Path | None) -> None:
    if output is None and sys.stdout.isatty():
        raise HeadwaterError("HW-U01", "Parquet is not for a terminal", hint="name a file: `--output FILE`")
    batches = operations.query.run_to_arrow(session, sql)
    if output is None:
        _write_batches(sys.stdout.buffer, batches)
        return
    with _writing(output):
        _write_batches(str(output), batches)


def _write_batches(sink: Any, batches: pa.RecordBatchReader) -> None:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(sink, batches.schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
