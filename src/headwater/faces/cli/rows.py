"""The rows of a query, as a table, JSON, CSV or Parquet."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from headwater.base.errors import HeadwaterError
from headwater.faces.cli.output import answer, plain, table

if TYPE_CHECKING:
    import duckdb

    from headwater.store.read import QueryResult


def write_rows(session: duckdb.DuckDBPyConnection, sql: str, format_: str, output: Path | None) -> None:
    """Run a query and write what it answers."""
    from headwater.store.read import run_query

    result = run_query(session, sql)
    if format_ == "parquet":
        _write_parquet(result, output)
        return
    columns = list(result.columns)
    rows = list(result.rows())
    if format_ == "json" and output is None:
        answer({"columns": columns, "rows": [dict(zip(columns, row)) for row in rows]})
        return
    text = _text(columns, rows, format_)
    if output is None:
        typer.echo(text, nl=not text.endswith("\n"))
    else:
        output.write_text(text if text.endswith("\n") else text + "\n")


def _text(columns: list[str], rows: list[Any], format_: str) -> str:
    match format_:
        case "json":
            import json

            return json.dumps([dict(zip(columns, row)) for row in rows], default=plain, ensure_ascii=False, indent=2)
        case "csv":
            buffer = io.StringIO()
            writer = csv.writer(buffer, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(
                [["" if v is None else v if isinstance(v, str) else plain(v) for v in row] for row in rows]
            )
            return buffer.getvalue()
        case _:
            return table(columns, rows)


def _write_parquet(result: QueryResult, output: Path | None) -> None:
    import pyarrow.parquet as pq

    if output is None and sys.stdout.isatty():
        raise HeadwaterError("HW-U01", "Parquet is not for a terminal", hint="name a file: `--output FILE`")
    batches = result.reader()
    with pq.ParquetWriter(str(output) if output is not None else sys.stdout.buffer, batches.schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
