"""What a reader of files collects while it reads: bad rows, and the news of columns that the table lacks."""

from __future__ import annotations

from dataclasses import dataclass, field

from headwater.base import limits
from headwater.coerce.row_errors import BadRow
from headwater.connectors.protocol import BadRows


class UnknownKeys(Exception):
    """Rows have values under names that the schema has no column for."""


@dataclass
class BadRowList:
    """The bad rows of one partition. Up to `room` of them are kept. With one more, or with too many bytes, the
    partition is over: nothing of it lands, the first bad rows are reported and the others counted."""

    room: int = 0
    rows: list[BadRow] = field(default_factory=list)
    total: int = 0
    size: int = 0

    @property
    def is_over(self) -> bool:
        return self.total > self.room or self.size > limits.BAD_ROWS_BYTES

    def kept(self, source: bytes) -> bytes:
        """The row as it is kept: empty if no bad rows are kept."""
        if not self.room or self.is_over:
            return b""
        self.size += len(source)
        return source

    def add(self, row: BadRow) -> None:
        """Adds a row that was counted in `total`, in order."""
        if len(self.rows) < max(self.room, limits.ERRORS_SHOWN):
            self.rows.append(row)

    def raise_if_over(self) -> None:
        if self.is_over:
            raise BadRows(tuple(row.error for row in self.rows[: limits.ERRORS_SHOWN]), self.total)
