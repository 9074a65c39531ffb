"""Parquet files in a folder, and what is read of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from by_hand import Table, open_source
from headwater.base.types import Type
from headwater.connectors.protocol import ArrowRead, Source, TableAsk

ASK = TableAsk("t", "t", "append")
FAR = 9_223_372_036_854_775_806
"""Almost the largest number of 64 bits: as a time, one that no date is."""


def opened(root: Path) -> Source:
    return open_source("files", {"path": "*.parquet"}, root=root, resolve=str, pipeline="t")


def write(root: Path, name: str, columns: dict[str, pa.Array], **options: Any) -> Path:
    pq.write_table(pa.table(columns), root / name, **options)
    return root / name


def read_of(root: Path, ask: TableAsk = ASK) -> ArrowRead:
    source = opened(root)
    (slice_,) = source.slices(ask, None, source.bound(ask), {}).slices
    read = source.read(ask, slice_)
    assert isinstance(read, ArrowRead)
    return read


def landed(root: Path, ask: TableAsk = ASK) -> Table:
    table = Table(ask)
    table.land(opened(root))
    return table


def declared(**columns: Type) -> TableAsk:
    return TableAsk("t", "t", "append", declared=columns)


def lists_of(values: list[int], storage: pa.DataType, item: pa.DataType) -> pa.Array:
    """Lists of one item each."""
    return pa.ListArray.from_arrays(pa.array(range(len(values) + 1), pa.int32()), pa.array(values, storage).view(item))
