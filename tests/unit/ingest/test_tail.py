"""What of a tail is merged, and what that costs: the rule alone, over files that are only sizes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import pytest

from headwater.base import limits
from headwater.base.table_schema import TableSchema
from headwater.base.types import STRING, parse_type
from headwater.catalog.table_state import TableState
from headwater.duck.merge_files import same_rows
from headwater.ingest.tail import choose, is_long
from headwater.storage.file_record import LiveFile
from schemas import schema_of

KIB, MIB = 1024, 1024 * 1024
SCHEMA = schema_of({"id": "long", "v": "string"}, ("id",))


@dataclass
class Table:
    """Files by their sizes. A file weighs `overhead` bytes besides its rows; a merged one has that once."""

    overhead: int = 2_500
    seq: int = 0
    files: list[LiveFile] = field(default_factory=list)
    schemas: dict[int, TableSchema] = field(default_factory=lambda: {1: SCHEMA})
    bytes_pushed: int = 0
    bytes_merged: int = 0
    most_files: int = 0

    def add(self, rows: int, *, schema_id: int = 1, files: int = 1) -> None:
        self.seq += 1
        for ordinal in range(files):
            self.files.append(self.file(rows, schema_id=schema_id, ordinal=ordinal))
            self.bytes_pushed += rows + self.overhead

    def file(self, rows: int, *, schema_id: int, ordinal: int = 0) -> LiveFile:
        return LiveFile(
            path=f"{self.seq}-{ordinal}",
            schema_id=schema_id,
            added_seq=self.seq,
            ordinal=ordinal,
            rows=rows,
            bytes=rows + self.overhead,
            run_id="r",
        )

    def state(self) -> TableState:
        now, newest = self.seq, max(self.schemas)
        schemas = {id_: self.schemas[id_] for id_ in {newest, *(file.schema_id for file in self.files)}}
        return TableState("t", "p", "append", newest, schemas[newest], schemas, tuple(self.files), now, now)

    def settle(self) -> None:
        """Merge until nothing is left to merge."""
        while (wanted := choose(self.state())) is not None:
            assert is_long(file.bytes for file in self.files), "the quick look misses nothing"
            gone = {file.path for file in wanted.files}
            assert len(gone) > 1
            self.files = [file for file in self.files if file.path not in gone]
            self.seq += 1
            self.files.append(self.file(sum(file.rows for file in wanted.files), schema_id=wanted.schema_id))
            self.bytes_merged += self.files[-1].bytes
        tail = [file for file in self.files if file.bytes < limits.TAIL_CLASS_BYTES[-1]]
        self.most_files = max(self.most_files, len(tail))


def constant(rows: int) -> Callable[[random.Random], int]:
    return lambda _chance: rows


PUSHES: dict[str, tuple[int, Callable[[random.Random], int], float]] = {
    "one row": (1_500, constant(60), 1.0),
    "a thousand rows": (2_000, constant(25 * KIB), 3.0),
    "large ones": (300, constant(900 * KIB), 2.5),
    "none that is small": (50, constant(9 * MIB), 0),
    "small and large in turn": (400, lambda chance: chance.choice([100, 2 * MIB]), 1.5),
    "any size": (600, lambda chance: int(2 ** (chance.random() * 22)), 2.0),
}
"""How many pushes, how large, and how often a pushed byte is written again at most."""


@pytest.mark.parametrize("name", PUSHES)
def test_a_tail_stays_short_and_no_byte_is_written_often(name: str) -> None:
    count, size, often = PUSHES[name]
    table, chance = Table(), random.Random(1)
    for _ in range(count):
        table.add(size(chance))
        table.settle()
    assert table.most_files <= len(limits.TAIL_CLASS_BYTES) * (limits.TAIL_CLASS_FILES - 1) <= limits.LIVE_TAIL_FILES
    assert table.bytes_merged <= often * table.bytes_pushed


def test_a_tail_that_grew_while_nobody_merged_is_merged_at_once() -> None:
    table = Table()
    for _ in range(500):
        table.add(1_000)
    wanted = choose(table.state())
    assert wanted is not None
    assert len(wanted.files) == 500
    assert [file.added_seq for file in wanted.files] == list(range(1, 501))


def test_one_merge_takes_no_more_than_it_may() -> None:
    table = Table()
    for _ in range(100):
        table.add(5 * MIB)
    wanted = choose(table.state())
    assert wanted is not None
    assert sum(file.bytes for file in wanted.files) <= limits.TAIL_MERGE_BYTES
    assert [file.added_seq for file in wanted.files] == list(range(1, 13)), "the oldest first"


def test_the_files_of_a_commit_are_merged_together() -> None:
    table = Table()
    for _ in range(limits.TAIL_CLASS_FILES):
        table.add(10, files=3)
    wanted = choose(table.state())
    assert wanted is not None
    assert len(wanted.files) == 3 * limits.TAIL_CLASS_FILES
    assert [(f.added_seq, f.ordinal) for f in wanted.files] == sorted((f.added_seq, f.ordinal) for f in table.files)


def test_files_of_other_columns_are_merged_by_themselves_while_the_tail_is_short() -> None:
    table = Table()
    table.schemas[2] = SCHEMA.added("new", STRING)
    for schema_id in [1] * (limits.TAIL_CLASS_FILES - 1) + [2] * limits.TAIL_CLASS_FILES:
        table.add(10, schema_id=schema_id)
    table.settle()
    assert [file.schema_id for file in table.files] == [1] * (limits.TAIL_CLASS_FILES - 1) + [2]


def test_a_tail_of_many_schemas_is_short_all_the_same() -> None:
    """Columns that are added again and again; and types that change, so that rows cannot be written together."""
    growing, changing = Table(), Table()
    for number in range(1, 120):
        growing.schemas[number + 1] = growing.schemas[number].added(f"c{number}", STRING)
        growing.add(1_000, schema_id=number + 1)
        growing.settle()
        if number % 40 == 0:
            kind = parse_type("decimal(9,2)" if number % 80 == 0 else "string")
            column = replace(SCHEMA.columns[1], type=kind)
            changing.schemas[max(changing.schemas) + 1] = SCHEMA.with_column(column)
        changing.add(1_000, schema_id=max(changing.schemas))
        changing.settle()
    assert growing.most_files <= limits.LIVE_TAIL_FILES
    assert changing.most_files <= limits.LIVE_TAIL_FILES


def changed(column_: str, **values: object) -> TableSchema:
    column = SCHEMA.column(column_)
    assert column is not None
    return SCHEMA.with_column(replace(column, **values))  # type: ignore[arg-type]


SAME: Iterable[tuple[TableSchema, tuple[bool, bool]]] = [
    (SCHEMA, (True, True)),
    (changed("v", name="w"), (True, True)),
    (changed("v", dropped=True), (True, True)),
    (changed("v", default='"x"'), (True, True)),
    (changed("id", name="key"), (False, False)),
    (replace(changed("id", name="key"), primary_key=("key",)), (True, True)),
    (replace(SCHEMA, primary_key=()), (False, False)),
    (changed("v", type=parse_type("dynamic")), (False, False)),
    (SCHEMA.added("new", STRING), (False, True)),
    (SCHEMA.added("new", STRING, default='"x"'), (False, False)),
]


@pytest.mark.parametrize(("new", "expected"), SAME)
def test_rows_are_written_with_a_schema_only_if_they_show_the_same(
    new: TableSchema, expected: tuple[bool, bool]
) -> None:
    """Without columns that were added, and with them."""
    assert tuple(same_rows(SCHEMA, new, columns_added=added) for added in (False, True)) == expected
