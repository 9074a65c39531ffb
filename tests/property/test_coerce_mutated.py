"""Lines that were good until somebody broke them, byte by byte: each is a row or a named error, on every way in."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.base.errors import HeadwaterError
from headwater.base.table_schema import TableSchema
from headwater.base.types import to_arrow
from headwater.coerce import row_errors as errors
from headwater.coerce.batches import coerce_document, coerce_lines
from headwater.coerce.infer import infer_document, infer_lines
from headwater.ingest.first_columns import DEFAULT_COLUMNS
from headwater.ingest.prepare import prepare
from property.test_coerce import exactly, lines, same, schemas
from schemas import schema_of

BREAKS = (b"", b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"\n", b"\r", b"\0", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf",
          b"-", b"0", b"1e9999", b"\\u", b"\\ud800", b" ", b"null", b"NaN")  # fmt: skip
TWO_MARKS = b"\xef\xbb\xbf" * 2
MADE = schema_of({name: str(type_) for name, type_ in DEFAULT_COLUMNS.items()})
REASONS = frozenset(errors.__doc__.replace("`", " ").split()) if errors.__doc__ else frozenset()

mutations = st.lists(
    st.tuples(st.floats(0, 1), st.integers(0, 3), st.one_of(st.sampled_from(BREAKS), st.binary(max_size=3))),
    min_size=1,
    max_size=4,
)


def broken(text: list[str], changes: list[tuple[float, int, bytes]]) -> bytes:
    """The lines with bytes taken out here and others put in there."""
    data = "\n".join(text).encode("utf-8", "surrogatepass")
    for share, cut, put in changes:
        at = int(share * len(data))
        data = data[:at] + put + data[at + cut :]
    return data


@settings(max_examples=200)
@given(lines, mutations, schemas)
def test_a_broken_line_is_a_row_or_a_named_error(
    text: list[str], changes: list[tuple[float, int, bytes]], schema: TableSchema
) -> None:
    data = broken(text, changes)
    found = coerce_lines(data, schema)
    found.batch.validate(full=True)
    assert same(found, exactly(data, schema))
    assert {error.reason for error in found.errors} <= REASONS
    assert infer_lines(data).rows <= found.rows + len(found.bad)


@given(lines, mutations, schemas)
def test_a_broken_document_is_rows_or_named_errors(
    text: list[str], changes: list[tuple[float, int, bytes]], schema: TableSchema
) -> None:
    data = broken(["[", ",\n".join(text), "]"], changes)
    found = coerce_document(data, schema)
    found.batch.validate(full=True)
    assert {error.reason for error in found.errors} <= REASONS
    infer_document(data)


@settings(max_examples=200)
@given(lines, mutations, st.one_of(schemas, st.just(MADE)), st.booleans(), st.sampled_from([0, 100, None]))
def test_a_broken_batch_is_prepared_or_refused_as_bad_rows(
    text: list[str],
    changes: list[tuple[float, int, bytes]],
    schema: TableSchema,
    evolve: bool,
    most_bad: int | None,
) -> None:
    data = broken(text, changes)
    pure = coerce_lines(data, schema)
    if most_bad == 0 and pure.bad:
        with pytest.raises(HeadwaterError) as refused:
            prepare(data, schema, table="t", evolve=evolve, most_bad=most_bad)
        assert refused.value.code == "HW-I02"
        return
    found = prepare(data, schema, table="t", evolve=evolve, most_bad=most_bad)
    found.batch.validate(full=True)
    assert (found.rows, found.batch.num_rows, len(found.bad)) == (pure.rows, pure.rows, len(pure.bad))
    assert all(found.batch.schema.field(c.name).type.equals(to_arrow(c.type)) for c in schema.columns)
    kept = data.split(b"\n")
    assert [row.error.line for row in found.bad] == sorted({row.error.line for row in found.bad})
    assert all(row.source.strip() in kept[row.error.line - 1] for row in found.bad)


def test_a_second_byte_order_mark_is_no_part_of_a_row_for_a_push_either() -> None:
    data = TWO_MARKS + b'{"x": 1}'
    schema = schema_of({"x": "long"})
    assert len(coerce_lines(data, schema).bad) == 1
    with pytest.raises(HeadwaterError):
        prepare(data, schema, table="t", evolve=True)
