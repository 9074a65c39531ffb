"""What holds for every input: the quick ways and the exact rules agree, and nothing passes through a double."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from headwater.base.table_schema import TableSchema
from headwater.base.types import parse_type
from headwater.coerce.batches import Coerced, coerce_document, coerce_lines, coerce_objects
from headwater.coerce.infer import infer_document, infer_lines, merge_inferred
from headwater.coerce.numbers import BEYOND, integer_of
from headwater.coerce.objects import read_document, read_lines, without_bom
from headwater.coerce.row_errors import Refused
from headwater.coerce.text_columns import coerce_strings, infer_csv_strings
from headwater.coerce.time_columns import timestamps
from headwater.coerce.times import nanoseconds_of
from schemas import schema_of

TYPES = [
    "bool", "int", "long", "real", "string", "timestamp", "date", "decimal(7,2)", "decimal(38,10)", "binary", "dynamic",
    "vector(1)", "vector(2)", "list<vector(2)>", "list<long>", "list<dynamic>", "list<timestamp>", "struct<a:long,b:struct<c:dynamic,d:decimal(5,1)>>",
    "list<struct<a:real,b:list<string>>>",
]  # fmt: skip

digits = st.text("0123456789", min_size=1, max_size=25)
number_texts = st.builds(
    lambda sign, whole, fraction, power: sign + (whole.lstrip("0") or "0") + fraction + power,
    st.sampled_from(["", "-"]),
    digits,
    st.one_of(st.just(""), digits.map(lambda text: "." + text), st.sampled_from([".0", ".50", ".00"])),
    st.one_of(
        st.just(""), st.integers(-420, 420).map(lambda n: f"e{n}"), st.sampled_from(["E+3", "e-0", "e99999999999"])
    ),
)
edges = st.sampled_from([2**53 + 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**31 - 1, 2**31, 2**64, 10**40]).map(str)
times = st.one_of(
    st.datetimes().map(lambda at: at.isoformat()),
    st.builds(
        lambda date, mark, clock, fraction, zone: date + mark + clock + fraction + zone,
        st.sampled_from(["2024-02-29", "1970-01-01", "1677-09-21", "2262-04-11", "2023-02-29", "0000-01-01", "2016-12-31"]),
        st.sampled_from("Tt _"),
        st.sampled_from(["00:12:43", "23:47:16", "23:59:59", "23:59:60", "24:00:00", "12:60:00", "1a:00:00", "00:00:00"]),
        st.sampled_from(["", ".1", ".123", ".145224192", ".145224191", ".854775807", ".854775808", ".1234567891", ".", ",5"]),
        st.sampled_from(["", "Z", "z", "+00:00", "-05:30", "+23:59", "+24:00", "+0100", " Z", "+01"]),
    ),
    st.dates().map(lambda day: day.isoformat()),
)  # fmt: skip
strings = st.one_of(
    st.text(max_size=8), times, number_texts, st.sampled_from(["", "aGk=", "true", "NaN", "-Infinity", "1_0"])
)
json_strings = st.one_of(strings.filter(lambda text: text.isprintable()).map(json.dumps), strings.map(json.dumps))
scalars = st.one_of(st.sampled_from(["null", "true", "false"]), number_texts, edges, json_strings)
containers = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: "[" + ", ".join(items) + "]"),
        st.lists(st.tuples(st.sampled_from("abcd"), inner), max_size=3).map(
            lambda members: "{" + ",".join(f'"{key}": {value}' for key, value in members) + "}"
        ),
    ),
    max_leaves=6,
)
odd_vectors = st.sampled_from(
    ["null", "[null]", "5", "[]", "[[1]]", "[[1],2]", "[1,[2]]", '"["', '"[1,2]"', '["1,2"]', '["1;[2"]', '{"a":[1,2]}',
     "[true]", "[-0, -0.0]", "[1e39]", "[1\t, 2]", '";["', "[-0]"]
)  # fmt: skip
deep = st.sampled_from([99, 101, 199, 200, 201, 400]).map(lambda n: "[" * n + "]" * n)
values = st.one_of(containers, containers, containers, deep, st.just('"\\ud800"'), st.just('["\\udc00x"]'))
objects = st.lists(st.tuples(st.sampled_from(["x", "x", "y", "z", "\\u0078"]), values), max_size=4).map(
    lambda members: "{" + ", ".join(f'"{key}":{value}' for key, value in members) + "}"
)
junk = st.sampled_from(["", " ", "null", "[]", "7", '{"x":', "1}", '{"x":1}{"x":2}', '{"x":NaN}', "\x00", '{"x":1} ,'])
lines = st.lists(st.one_of(objects, objects, objects, junk), max_size=6)
schemas = st.lists(st.sampled_from(TYPES), min_size=1, max_size=3).map(
    lambda types: schema_of(dict(zip("xyw", types)), ("y",) if len(types) == 3 else ())
)


def array(items: list[str]) -> str:
    return "[" + ",".join(items) + "]"


def same(first: Coerced, second: Coerced) -> bool:
    return (
        first.batch.schema.equals(second.batch.schema, check_metadata=True)
        and repr(first.batch.to_pydict()) == repr(second.batch.to_pydict())
        and first.batch.equals(second.batch)
        and (first.rows, first.lines, first.errors, first.error_total, len(first.bad))
        == (second.rows, second.lines, second.errors, second.error_total, len(second.bad))
        and list(first.unknown_seen.items()) == list(second.unknown_seen.items())
    )


def exactly(data: bytes, schema: TableSchema) -> Coerced:
    return coerce_objects(read_lines(without_bom(data), first_line=1, place=""), schema, exactly=True)


@given(lines, schemas, st.sampled_from(["\n", "\r\n"]))
def test_all_ways_give_the_same_verdict(rows: list[str], schema: TableSchema, end: str) -> None:
    data = end.join(rows).encode()
    found = coerce_lines(data, schema)
    found.batch.validate(full=True)
    assert same(found, exactly(data, schema))


@given(st.data(), st.sampled_from(TYPES))
def test_a_column_of_one_type_is_the_same_on_all_ways(data: st.DataObject, type_text: str) -> None:
    """Mostly good values, so that the quick way over a whole piece is really taken."""
    good = {
        "bool": st.sampled_from(["true", "false"]),
        "int": st.integers(-(2**31), 2**31 - 1).map(str),
        "long": st.integers(-(2**63), 2**63 - 1).map(str),
        "real": number_texts,
        "string": st.text(max_size=5).map(json.dumps),
        "timestamp": st.one_of(times.map(json.dumps), st.integers(-(2**63), 2**63 - 1).map(str)),
        "date": st.dates().map(lambda day: f'"{day}"'),
        "decimal(7,2)": st.one_of(st.decimals(-10000, 10000, places=2).map(str), number_texts),
        "decimal(38,10)": st.decimals(-(10**27), 10**27, places=10).map(lambda number: f'"{number:f}"'),
        "binary": st.sampled_from(['"aGk="', '""']),
        "vector(1)": st.one_of(number_texts.map(lambda number: f"[ {number} ]"), odd_vectors),
        "vector(2)": st.one_of(st.lists(number_texts, min_size=2, max_size=2).map(array), odd_vectors),
        "list<vector(2)>": st.lists(st.one_of(st.just("[1,2]"), odd_vectors), max_size=3).map(array),
    }.get(type_text, containers)
    column = data.draw(st.lists(st.one_of(good, good, good, st.just("null")), min_size=1, max_size=8))
    text = "\n".join(f'{{"x":{value}}}' for value in column).encode()
    schema = schema_of({"x": type_text})
    assert same(coerce_lines(text, schema), exactly(text, schema))
    document = ("[" + ",".join(f'{{"x":{value}}}' for value in column) + "]").encode()
    assert coerce_document(document, schema).batch.equals(exactly(text, schema).batch)


@given(lines, schemas)
def test_each_line_alone_has_the_verdict_it_has_among_others(rows: list[str], schema: TableSchema) -> None:
    whole = coerce_lines("\n".join(rows).encode(), schema)
    alone = [coerce_lines(row.encode(), schema, first_line=number) for number, row in enumerate(rows, 1)]
    assert whole.errors == tuple(error for one in alone for error in one.errors)
    assert pa.Table.from_batches([whole.batch]).equals(
        pa.Table.from_batches([one.batch for one in alone], schema.to_arrow()).combine_chunks()
    )


@given(st.lists(st.one_of(objects, junk), max_size=5), schemas)
def test_documents_are_judged_the_same_on_all_ways(rows: list[str], schema: TableSchema) -> None:
    data = ("[" + ",\n".join(rows) + "]").encode()
    taken_apart = read_document(data, place="")
    assert same(coerce_document(data, schema), coerce_objects(taken_apart, schema, exactly=True))


@given(st.lists(st.one_of(st.binary(max_size=12), objects.map(str.encode), junk.map(str.encode)), max_size=5), schemas)
def test_any_bytes_are_taken_or_refused_line_by_line(rows: list[bytes], schema: TableSchema) -> None:
    data = b"\n".join(rows)
    found = coerce_lines(data, schema)
    assert same(found, exactly(data, schema))
    blank = sum(not line.strip(b" \t\r") for line in without_bom(data).split(b"\n"))
    assert found.rows + len(found.bad) + blank == without_bom(data).count(b"\n") + 1


@given(st.binary(max_size=30))
@example(b'{"a":"\\ud83d\\ude00"}')
def test_a_line_is_valid_json_if_a_strict_reader_says_so(line: bytes) -> None:
    line = line.replace(b"\n", b" ")

    def strict(constant: str) -> None:
        raise ValueError(constant)

    try:
        value = json.loads(line.decode(), parse_constant=strict)
        json.dumps(value, ensure_ascii=False).encode()
    except ValueError:
        expected = "refused" if line.strip(b" \t\r") else "blank"
    else:
        expected = "row" if isinstance(value, dict) else "expected_object"
    found = coerce_lines(line, TableSchema(), first_line=2)
    if expected in ("row", "blank"):
        assert (found.rows, found.error_total) == (int(expected == "row"), 0)
    else:
        (error,) = found.errors
        assert (error.reason == "expected_object") == (expected == "expected_object")


@given(number_texts)
def test_an_integer_is_exact_whatever_its_notation(text: str) -> None:
    found = integer_of(text)
    mantissa, _, power = text.lower().partition("e")
    if len(power) > 4:
        assert found in (0, None, BEYOND, -BEYOND)
        return
    value = Fraction(mantissa) * Fraction(10) ** int(power or 0)
    if value.denominator != 1:
        assert found is None
    elif abs(value) < BEYOND:
        assert found == value
    else:
        assert found == (BEYOND if value > 0 else -BEYOND)


@given(st.lists(number_texts, min_size=1, max_size=5))
def test_a_real_is_the_nearest_double(texts: list[str]) -> None:
    finite = [text for text in texts if math.isfinite(float(text))]
    data = "\n".join(f'{{"x":{text}}}' for text in finite).encode()
    assert coerce_lines(data, schema_of({"x": "real"})).batch.column(0).to_pylist() == [float(text) for text in finite]


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**30), max_value=10**30, places=6))
def test_a_decimal_keeps_every_digit(value: Decimal) -> None:
    data = f'{{"x":{value:f}}}\n{{"x":"{value:f}"}}'.encode()
    assert coerce_lines(data, schema_of({"x": "decimal(38,6)"})).batch.column(0).to_pylist() == [value, value]


@given(st.integers(1, 38), st.integers(0, 38), digits, st.text("0019", max_size=45), st.sampled_from(["", '"']))
def test_a_decimal_is_exact_or_refused_in_every_precision(
    precision: int, scale: int, whole: str, fraction: str, quote: str
) -> None:
    scale = min(scale, precision)
    text = (whole.lstrip("0") or "0") + ("." + fraction if fraction else "")
    data = f'{{"x":{quote}{text}{quote}}}'.encode()
    found = coerce_lines(data, schema_of({"x": f"decimal({precision},{scale})"}))
    value = Fraction(text)
    if (value * 10**scale).denominator == 1 and value * 10**scale < 10**precision:
        assert [Fraction(got) for got in found.batch.column(0).to_pylist()] == [value]
    else:
        assert next(error.reason for error in found.errors) in ("decimal_scale", "decimal_out_of_range")


@given(st.lists(st.one_of(times, times, st.none()), max_size=6))
def test_many_timestamps_at_once_are_as_each_alone(texts: list[str | None]) -> None:
    try:
        expected: list[int | None] | None = [None if text is None else nanoseconds_of(text) for text in texts]
    except Refused:
        expected = None
    try:
        found = timestamps(pa.array(texts, pa.string())).view(pa.int64()).to_pylist()
    except Refused:
        found = None
    assert found == expected


@given(st.lists(st.one_of(st.datetimes(), st.datetimes(timezones=st.timezones())), min_size=1, max_size=5))
def test_timestamps_are_what_python_says(moments: list) -> None:  # type: ignore[type-arg]
    from datetime import UTC, datetime

    for moment in moments:
        if moment.tzinfo is not None and moment.utcoffset().total_seconds() % 60:
            continue
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        since = aware - datetime(1970, 1, 1, tzinfo=UTC)
        expected = ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1000
        try:
            found = timestamps(pa.array([moment.isoformat()])).view(pa.int64())[0].as_py()
        except Refused as refused:
            assert refused.reason == "timestamp_out_of_range"
            assert not -(2**63) <= expected < 2**63
        else:
            assert found == expected


@given(lines)
def test_every_good_row_fits_the_types_inferred_from_it(rows: list[str]) -> None:
    data = "\n".join(rows).encode()
    inferred = infer_lines(data)
    schema = schema_of({name: str(type_ or "string") for name, type_ in inferred.columns.items()})
    found = coerce_lines(data, schema)
    assert found.errors == inferred.errors
    assert found.rows == inferred.rows
    assert not found.unknown_seen


@given(lines, st.integers(0, 6), st.integers(0, 130))
def test_inference_does_not_depend_on_how_the_input_is_cut(rows: list[str], at: int, copies: int) -> None:
    rows = rows[:1] * copies + rows
    at += copies
    first, second = ("".join(row + "\n" for row in part).encode() for part in (rows[:at], rows[at:]))
    merged = merge_inferred(infer_lines(first), infer_lines(second, first_line=len(rows[:at]) + 1))
    whole = infer_lines(first + second)
    assert list(whole.columns.items()) == list(merged.columns.items())
    assert (whole.rows, whole.errors) == (merged.rows, merged.errors)


@given(st.lists(objects, max_size=5))
def test_a_document_is_inferred_as_its_rows_on_lines(rows: list[str]) -> None:
    document = infer_document(("[" + ",".join(rows) + "]").encode())
    on_lines = infer_lines("\n".join(rows).encode())
    assert list(document.columns.items()) == list(on_lines.columns.items())
    assert document.errors == on_lines.errors


texts = st.one_of(
    strings, number_texts, edges, st.sampled_from(["007", "+1", "-0", "-00", "TRUE", "0x1", ".5", "5.", " 1", "1\n"])
)


@given(st.lists(texts, max_size=6), st.sampled_from(TYPES))
def test_a_text_has_the_verdict_of_the_json_string_with_it(column: list[str], type_text: str) -> None:
    """For scalar types but bool, where CSV takes more; and the text alone is as among others."""
    type_ = parse_type(type_text)
    array, errors = coerce_strings(pa.array(column, pa.string()), type_)
    array.validate(full=True)
    for index, text in enumerate(column):
        alone, alone_errors = coerce_strings(pa.array([text], pa.string()), type_)
        assert repr(alone[0]) == repr(array[index])
        assert [replace(each, line=index) for each in alone_errors] == [each for each in errors if each.line == index]
        if type_.kind in ("bool", "dynamic", "vector", "list", "struct") or (text == "" and type_.kind != "string"):
            continue
        as_json = coerce_lines(json.dumps({"x": text}).encode(), schema_of({"x": type_text}))
        assert as_json.errors == tuple(replace(each, line=1, column="x") for each in alone_errors)
        if not alone_errors:
            assert repr(as_json.batch.column(0)[0]) == repr(array[index])


@given(st.lists(texts, max_size=6))
def test_every_text_fits_the_type_inferred_from_it(column: list[str]) -> None:
    array = pa.array(column, pa.string())
    type_ = infer_csv_strings(array)
    if type_ is not None:
        assert coerce_strings(array, type_)[1] == ()
