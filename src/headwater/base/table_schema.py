"""A table's schema: columns with permanent ids, and a fingerprint that is the same everywhere.

A column's id is given once and never reused: a rename keeps it, a dropped and re-added name gets a new one. The ids are
written into Parquet as field ids. Schemas are values; `store/evolution.py` decides how one becomes the next.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headwater.base.json_path import Steps
from headwater.base.text_form import TextForm
from headwater.base.types import DYNAMIC, Type, parse_type, to_arrow

if TYPE_CHECKING:
    import pyarrow as pa


PROMOTABLE = ("bool", "int", "long", "real", "string", "timestamp", "date")
"""The types that a promoted column can have: those for which every reader finds the same values in JSON."""


@dataclass(frozen=True)
class Promotion:
    """The source of a promoted column for rows that lack it: a path inside the `dynamic` column of this id."""

    column_id: int
    steps: Steps


@dataclass(frozen=True)
class Column:
    """One column of a table. `dropped` means that the source no longer has it: it stays, and new rows hold null.
    `default` is the JSON text of the value for rows of files older than the column. `form` is how a source writes its
    texts: it is used to coerce the source's rows and is not stored."""

    id: int
    name: str
    type: Type
    nullable: bool = True
    dropped: bool = False
    default: str | None = None
    promoted: Promotion | None = None
    form: TextForm | None = None

    def as_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"id": self.id, "name": self.name, "type": str(self.type)}
        if not self.nullable:
            found["nullable"] = False
        if self.dropped:
            found["dropped"] = True
        if self.default is not None:
            found["default"] = self.default
        if self.promoted is not None:
            found["promoted"] = {"column": self.promoted.column_id, "path": list(self.promoted.steps)}
        return found

    @staticmethod
    def from_json(value: dict[str, Any]) -> Column:
        promoted = value.get("promoted")
        return Column(
            id=value["id"],
            name=value["name"],
            type=parse_type(value["type"]),
            nullable=value.get("nullable", True),
            dropped=value.get("dropped", False),
            default=value.get("default"),
            promoted=Promotion(promoted["column"], tuple(promoted["path"])) if promoted else None,
        )

    def source_in(self, written: TableSchema) -> Column | None:
        """The column of a file with the schema `written` from which this one is read where it is null. None if this one
        is not promoted, or the file has no such column, or it is not JSON."""
        if self.promoted is None or self.type.kind not in PROMOTABLE:
            return None
        found = written.by_id(self.promoted.column_id)
        return found if found is not None and found.type == DYNAMIC else None


@dataclass(frozen=True)
class TableSchema:
    """Columns in order, the key, and the next free column id."""

    columns: tuple[Column, ...] = ()
    primary_key: tuple[str, ...] = ()
    next_id: int = 1

    def column(self, name: str) -> Column | None:
        return next((column for column in self.columns if column.name == name), None)

    def by_id(self, column_id: int) -> Column | None:
        return next((column for column in self.columns if column.id == column_id), None)

    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def added(self, name: str, type_: Type, *, nullable: bool = True, default: str | None = None) -> TableSchema:
        """This schema with one more column at the end."""
        column = Column(self.next_id, name, type_, nullable=nullable, default=default)
        return replace(self, columns=(*self.columns, column), next_id=self.next_id + 1)

    def with_column(self, column: Column) -> TableSchema:
        """This schema with the column of the same id replaced."""
        return replace(self, columns=tuple(column if c.id == column.id else c for c in self.columns))

    def formed(self, forms: Mapping[str, TextForm | None]) -> TableSchema:
        """This schema with the forms of a source's texts, by which its rows are coerced. Forms are never stored."""
        if not any(forms.values()):
            return self
        return replace(self, columns=tuple(replace(c, form=forms.get(c.name)) for c in self.columns))

    @property
    def fingerprint(self) -> str:
        """`sha256:` and the hash of the canonical JSON form, which is the same on every machine and in every
        version."""
        text = json.dumps(self.as_json(), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()

    def as_json(self) -> dict[str, Any]:
        return {
            "columns": [column.as_json() for column in self.columns],
            "primary_key": list(self.primary_key),
            "next_id": self.next_id,
        }

    @staticmethod
    def from_json(value: dict[str, Any]) -> TableSchema:
        return TableSchema(
            columns=tuple(Column.from_json(column) for column in value["columns"]),
            primary_key=tuple(value["primary_key"]),
            next_id=value["next_id"],
        )

    def to_arrow(self) -> pa.Schema:
        """The user columns as Arrow fields, with the permanent ids as Parquet field ids."""
        import pyarrow as pa

        return pa.schema(
            [
                pa.field(c.name, to_arrow(c.type), nullable=c.nullable, metadata={"PARQUET:field_id": str(c.id)})
                for c in self.columns
            ]
        )
