"""The columns that the store adds to every row, and the ids they have for ever.

User columns count their ids from 1; these stand far above, where no table gets to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class SystemColumn:
    """`duck` is the type that views show."""

    id: int
    name: str
    duck: str


RUN_ID = SystemColumn(2_000_000_001, "_run_id", "VARCHAR")
INGESTED_AT = SystemColumn(2_000_000_002, "_ingested_at", "TIMESTAMP WITH TIME ZONE")
CONTENT_HASH = SystemColumn(2_000_000_003, "_content_hash", "BLOB")
SOURCE_ID = SystemColumn(2_000_000_004, "_source_id", "VARCHAR")
COMMIT_SEQ = SystemColumn(2_000_000_005, "_commit_seq", "BIGINT")
SOURCE_POS = SystemColumn(2_000_000_006, "_source_pos", "BIGINT")
SYSTEM_COLUMNS = (RUN_ID, INGESTED_AT, CONTENT_HASH, SOURCE_ID, COMMIT_SEQ, SOURCE_POS)


def shown_columns(*, positions: bool) -> tuple[SystemColumn, ...]:
    """The system columns of a table's view: `_source_pos` only if one of its files has it."""
    return SYSTEM_COLUMNS if positions else SYSTEM_COLUMNS[:-1]


def arrow_fields(*, merged: bool, positions: bool = False) -> list[pa.Field]:
    """The system columns of a file. Only merged files say `_commit_seq` per row: of a fresh file the catalog
    knows it. `positions`: the source gives each row's place in the item that it comes from."""
    import pyarrow as pa

    text = pa.dictionary(pa.int32(), pa.string())
    types = {
        RUN_ID: (text, False),
        INGESTED_AT: (pa.timestamp("us", tz="UTC"), False),
        CONTENT_HASH: (pa.binary(16), False),
        SOURCE_ID: (text, True),
        COMMIT_SEQ: (pa.int64(), False),
        SOURCE_POS: (pa.int64(), True),
    }
    return [
        pa.field(column.name, arrow, nullable=nullable, metadata={"PARQUET:field_id": str(column.id)})
        for column, (arrow, nullable) in types.items()
        if (merged or column is not COMMIT_SEQ) and (positions or column is not SOURCE_POS)
    ]
