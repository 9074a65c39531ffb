"""Claims, on one core: 8 scalar columns of NDJSON at 350,000 rows/s or more; 8 columns with dynamic and vector at
least 5 times as fast as `json.loads` per line and `Table.from_pylist`.

Usage: python benchmarks/coerce.py [--rows N] [--rounds N]
JSON goes to stdout, a table to stderr. Times are processor time, the best of the rounds, all ways in one run. What
`polars.read_ndjson` takes is reported, without a claim: it has no type for JSON and stops at the first bad row.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import sys
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import polars as pl
import pyarrow as pa

from headwater.base.table_schema import TableSchema
from headwater.base.types import parse_type
from headwater.coerce.batches import coerce_lines
from headwater.coerce.infer import infer_lines
from measure import Claim

PLAIN = {
    "id": "long", "amount": "real", "name": "string", "ts": "timestamp",
    "ok": "bool", "quantity": "long", "city": "string", "score": "real",
}  # fmt: skip
MIXED = {
    "id": "long", "amount": "real", "name": "string", "ts": "timestamp",
    "ok": "bool", "quantity": "long", "props": "dynamic", "v": "vector(8)",
}  # fmt: skip

POLARS: dict[str, Any] = {
    "long": pl.Int64, "real": pl.Float64, "string": pl.String, "timestamp": pl.String, "bool": pl.Boolean,
    "dynamic": pl.Struct({"tags": pl.List(pl.String), "page": pl.Int64, "ref": pl.Struct({"k": pl.String})}),
    "vector(8)": pl.List(pl.Float32),
}  # fmt: skip


def rows(count: int, columns: dict[str, str]) -> bytes:
    """The same rows every time; one in twenty amounts is null."""
    chance = random.Random(7)
    start = datetime(2024, 1, 1).timestamp()

    def value(name: str, number: int) -> Any:
        match name:
            case "id":
                return number
            case "amount":
                return None if number % 20 == 0 else round(chance.random() * 1000, 2)
            case "name":
                return f"customer {chance.randrange(10**6)}"
            case "ts":
                at = datetime.fromtimestamp(start + chance.randrange(10**7))
                return f"{at.isoformat()}.{chance.randrange(1000):03d}Z"
            case "ok":
                return chance.random() < 0.5
            case "quantity":
                return chance.randrange(100)
            case "city":
                return chance.choice(["Berlin", "Paris", "München", "Oslo"])
            case "score":
                return chance.random()
            case "props":
                return {"tags": ["a", "b"], "page": chance.randrange(100), "ref": {"k": "v"}}
            case _:
                return [round(chance.random(), 6) for _ in range(8)]

    lines = (json.dumps({name: value(name, i) for name in columns}, ensure_ascii=False) for i in range(count))
    return ("\n".join(lines) + "\n").encode()


def spoiled(data: bytes) -> bytes:
    """One bad row at the end, so that no quick way over the whole piece fits."""
    return data + b'{"id":"x"}\n'


def plain_way(data: bytes, schema: TableSchema) -> pa.Table:
    fields = [pa.field(f.name, pa.string() if isinstance(f.type, pa.JsonType) else f.type) for f in schema.to_arrow()]
    found = []
    for line in data.splitlines():
        row = json.loads(line)
        row["ts"] = datetime.fromisoformat(row["ts"])
        if "props" in row:
            row["props"] = json.dumps(row["props"])
        found.append(row)
    return pa.Table.from_pylist(found, pa.schema(fields))


def polars_way(data: bytes, columns: dict[str, str]) -> pl.DataFrame:
    """The types given, so that it need not guess; `props` as a struct, because it has no JSON; a time as text, which it
    then converts."""
    types = {name: POLARS[type_] for name, type_ in columns.items()}
    found = pl.read_ndjson(io.BytesIO(data), schema=types)
    return found.with_columns(pl.col("ts").str.to_datetime(time_unit="ns", time_zone="UTC"))


def seconds(work: Callable[[], object], rounds: int) -> float:
    best = float("inf")
    for _ in range(rounds):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def schema_of(columns: dict[str, str]) -> TableSchema:
    schema = TableSchema()
    for name, text in columns.items():
        schema = schema.added(name, parse_type(text))
    return schema


def measure(name: str, columns: dict[str, str], count: int, rounds: int) -> dict[str, Any]:
    schema, data = schema_of(columns), rows(count, columns)
    found = coerce_lines(data, schema)
    assert found.rows == count and not found.errors, found.errors
    bad = spoiled(data)
    times = {
        "coerce": seconds(lambda: coerce_lines(data, schema), rounds),
        "coerce_with_a_bad_row": seconds(lambda: coerce_lines(bad, schema), rounds),
        "infer": seconds(lambda: infer_lines(data), rounds),
        "json_loads_from_pylist": seconds(lambda: plain_way(data, schema), rounds),
        "polars_read_ndjson": seconds(lambda: polars_way(data, columns), rounds),
    }
    return {
        "workload": name,
        "rows": count,
        "bytes": len(data),
        "rows_per_second": {way: round(count / taken) for way, taken in times.items()},
        "ratio_to_plain_way": round(times["json_loads_from_pylist"] / times["coerce"], 2),
        "ratio_to_polars": round(times["polars_read_ndjson"] / times["coerce"], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    found = [
        measure("8 scalar columns", PLAIN, asked.rows, asked.rounds),
        measure("8 columns with dynamic and vector(8)", MIXED, asked.rows, asked.rounds),
    ]
    for one in found:
        ratios = f"{one['ratio_to_plain_way']}x of the plain way, {one['ratio_to_polars']}x of polars"
        print(f"{one['workload']}: {ratios}", file=sys.stderr)
        for way, rate in one["rows_per_second"].items():
            print(f"  {way:28}{rate:>12,} rows/s", file=sys.stderr)
    plain, mixed = found
    rate = plain["rows_per_second"]["coerce"]
    claims = [
        Claim("coercion of 8 scalar columns, one core", rate, 350_000, at_most=False, unit=" rows/s"),
        Claim(
            "coercion with dynamic and vector: speed of `json.loads` and `from_pylist`",
            mixed["ratio_to_plain_way"],
            5,
            at_most=False,
        ),
    ]
    print(json.dumps({"benchmark": "coerce", "claims": [claim.as_json() for claim in claims], "results": found}))


if __name__ == "__main__":
    main()
