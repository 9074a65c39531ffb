"""The content hash of a row: 128 bits over its non-null user columns, the same on every door and for ever.

The algorithm, so that others can implement it. All numbers are unsigned 64-bit and wrap; a hash is a pair of
them, lanes `a` and `b`, and everything below is done once in each lane.

    mix(x)          splitmix64's finaliser: x ^= x>>30; x *= 0xBF58476D1CE4E5B9; x ^= x>>27;
                    x *= 0x94D049BB133111EB; x ^= x>>31
    seed            a: 0x9E3779B97F4A7C15, b: 0xD1B54A32D192ED03
    tag(t)          mix(seed + t), with t: integer 1, real 2, bool 3, bytes 4, timestamp 5, date 6, decimal 7,
                    list 8, struct 9, null 10
    place(i)        mix(seed ^ (i + 1) * 0xA0761D6478BD642F), i counts from 0

    integer         mix(tag(1) ^ value)                       any width, two's complement in 64 bits
    real            mix(tag(2) ^ IEEE bits of the double)     -0.0 as 0.0, every NaN as 0x7FF8000000000000
    bool            mix(tag(3) ^ (0 or 1))
    timestamp       mix(tag(5) ^ nanoseconds since the epoch, UTC)
    date            mix(tag(6) ^ days since the epoch)
    bytes           (string as UTF-8, binary, JSON text) cut into little-endian words of 8 bytes, the last one
                    padded with zeros, at least one word: mix(tag(4) ^ length ^ sum of mix(place(i) ^ word_i))
    decimal         mix(tag(7) ^ scale ^ (mix(place(0) ^ low word) + mix(place(1) ^ high word)))
                    of the 128-bit two's complement unscaled value
    list, vector    mix(tag(8) ^ length ^ sum of mix(place(i) ^ element_i)); a null element is tag(10)
    struct          mix(tag(9) ^ sum of named(field)) over its non-null fields
    named(column)   mix(name ^ value), where name and value are the hashes of the column's name (as bytes) and value
    row             s = seed + sum of named(column) over the non-null columns;
                    a' = mix(s_a ^ mix(s_b)), b' = mix(s_b ^ a'); the hash is a' * 2^64 + b', written big-endian

So the hash does not depend on the order of columns, on columns that are null, on an integer's width, a decimal's
precision, or on how Arrow lays the values out (slices, chunks, dictionaries, large or small offsets). It is made
to tell rows apart, not to resist an attacker who builds two rows with one hash on purpose.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as at

from headwater.base.errors import HeadwaterError

if TYPE_CHECKING:
    Words = npt.NDArray[np.uint64]
    Lanes = tuple[Words, Words]

HASH_BYTES = 16
BLOCK_ROWS = 32_768
"""Rows hashed at a time: few enough that what is in flight stays in the processor's cache."""
BLOCK_BYTES = 16 * 1024 * 1024
"""And about this many bytes of them, so that long texts cost time but not memory."""

_SEEDS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD1B54A32D192ED03))
_M1, _M2, _PLACE = (np.uint64(m) for m in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0xA0761D6478BD642F))
_S27, _S30, _S31, _S63 = (np.uint64(s) for s in (27, 30, 31, 63))
_NAN = np.uint64(0x7FF8000000000000)
_INTEGER, _REAL, _BOOL, _BYTES, _TIMESTAMP, _DATE, _DECIMAL, _LIST, _STRUCT, _NULL = range(1, 11)


def content_hash(batch: pa.RecordBatch) -> pa.Array:
    """The rows' hashes as `fixed_size_binary(16)`. Column names are the caller's: system columns must not be
    among them. Raises HW-S03 for a column that no type of the house holds."""
    columns = [(name, _plain(batch.column(at_), name)) for at_, name in enumerate(batch.schema.names)]
    out = np.empty((batch.num_rows, 2), dtype=">u8")
    step = max(1, min(BLOCK_ROWS, BLOCK_BYTES * batch.num_rows // max(batch.nbytes, 1)))
    with np.errstate(over="ignore"):
        for start in range(0, batch.num_rows, step):
            rows = min(step, batch.num_rows - start)
            sum_a, sum_b = _sum_named([(name, column.slice(start, rows)) for name, column in columns], rows)
            sum_a += _SEEDS[0]
            sum_b += _SEEDS[1]
            a = _mix(sum_a ^ _mix(sum_b.copy()))
            out[start : start + rows, 0] = a
            out[start : start + rows, 1] = _mix(sum_b ^ a)
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(HASH_BYTES), batch.num_rows, [None, pa.py_buffer(out)])


def content_sum(hashes: pa.Array | pa.ChunkedArray) -> str:
    """The sum of the hashes modulo 2^128 as 32 hex digits: equal for equal rows in any order."""
    total = 0
    for chunk in hashes.chunks if isinstance(hashes, pa.ChunkedArray) else [hashes]:
        if len(chunk):
            halves = np.frombuffer(chunk.buffers()[1], dtype=">u4")[chunk.offset * 4 : (chunk.offset + len(chunk)) * 4]
            for column in range(4):
                total += int(halves[column::4].sum(dtype=np.uint64)) << (32 * (3 - column))
    return _hex(total)


def add_sums(sums: Iterable[str]) -> str:
    """The content sum of several sets of rows together."""
    return _hex(sum(int(text, 16) for text in sums))


def _hex(total: int) -> str:
    return f"{total % (1 << 128):032x}"


def _mix(x: Words) -> Words:
    """In place, and returned."""
    x ^= x >> _S30
    x *= _M1
    x ^= x >> _S27
    x *= _M2
    x ^= x >> _S31
    return x


def _tag(kind: int, lane: int) -> np.uint64:
    return np.uint64(_mix(np.array([_SEEDS[lane] + np.uint64(kind)]))[0])


with np.errstate(over="ignore"):
    _TAGS = [(_tag(kind, 0), _tag(kind, 1)) for kind in range(_NULL + 1)]


def _places(count: int, lane: int) -> Words:
    return _mix((np.arange(1, count + 1, dtype=np.uint64) * _PLACE) ^ _SEEDS[lane])


def _sum_named(columns: list[tuple[str, pa.Array]], rows: int) -> Lanes:
    """The sum of `named` over the columns, a null counting nothing."""
    sums = np.zeros(rows, np.uint64), np.zeros(rows, np.uint64)
    for name, column in columns:
        if column.null_count == rows:
            continue
        valid = _valid(column)
        for total, value, of_name in zip(sums, _hash_values(column), _hash_name(name)):
            value ^= of_name
            _mix(value)
            if valid is not None:
                value *= valid
            total += value
    return sums


@lru_cache(maxsize=4096)
def _hash_name(name: str) -> tuple[np.uint64, np.uint64]:
    a, b = _hash_bytes(pa.array([name.encode()], pa.binary()))
    return a[0], b[0]


def _valid(column: pa.Array) -> Words | None:
    """1 for a value and 0 for a null, or None where there is no null."""
    if column.null_count == 0:
        return None
    if at.is_null(column.type):
        return np.zeros(len(column), np.uint64)
    return _bits(column.buffers()[0], column.offset, len(column))


def _bits(buffer: pa.Buffer, offset: int, length: int) -> Words:
    packed = np.frombuffer(buffer, np.uint8)[offset // 8 : (offset + length + 7) // 8]
    return np.unpackbits(packed, bitorder="little")[offset % 8 : offset % 8 + length].astype(np.uint64)


def _hash_values(column: pa.Array) -> Lanes:
    """The hash of each value; the one of a null is arbitrary."""
    kind = column.type
    if len(column) == 0 or at.is_null(kind):
        return np.zeros(len(column), np.uint64), np.zeros(len(column), np.uint64)
    if at.is_int64(kind):
        return _hash_words(_numbers(column, np.uint64), _INTEGER)
    if at.is_float64(kind):
        return _hash_words(_real_bits(_numbers(column, np.float64)), _REAL)
    if at.is_boolean(kind):
        return _hash_words(_bits(column.buffers()[1], column.offset, len(column)), _BOOL)
    if at.is_timestamp(kind):
        return _hash_words(_numbers(column, np.uint64), _TIMESTAMP)
    if at.is_date32(kind):
        return _hash_words(_numbers(column, np.int32).astype(np.int64).view(np.uint64), _DATE)
    if at.is_decimal128(kind):
        return _hash_decimals(column)
    if at.is_large_list(kind):
        return _hash_lists(column)
    if at.is_struct(kind):
        fields = [(kind.field(i).name, _plain(column.field(i), kind.field(i).name)) for i in range(kind.num_fields)]
        sums = _sum_named(fields, len(column))
        return _mix(sums[0] ^ _TAGS[_STRUCT][0]), _mix(sums[1] ^ _TAGS[_STRUCT][1])
    return _hash_bytes(column)


_Number = TypeVar("_Number", bound=np.generic)


def _numbers(column: pa.Array, dtype: type[_Number]) -> npt.NDArray[_Number]:
    return np.frombuffer(column.buffers()[1], dtype)[column.offset : column.offset + len(column)]


def _real_bits(values: npt.NDArray[np.float64]) -> Words:
    bits = (values + 0.0).view(np.uint64)
    nan = np.isnan(values)
    if nan.any():
        bits[nan] = _NAN
    return bits


def _hash_words(words: Words, kind: int) -> Lanes:
    return _mix(words ^ _TAGS[kind][0]), _mix(words ^ _TAGS[kind][1])


def _hash_decimals(column: pa.Array) -> Lanes:
    words = np.frombuffer(column.buffers()[1], np.uint64)[column.offset * 2 : (column.offset + len(column)) * 2]
    scale = np.uint64(column.type.scale)
    lanes = []
    for lane in (0, 1):
        places = _places(2, lane)
        total = _mix(words[0::2] ^ places[0]) + _mix(words[1::2] ^ places[1])
        lanes.append(_mix(total ^ scale ^ _TAGS[_DECIMAL][lane]))
    return lanes[0], lanes[1]


def _hash_lists(column: pa.Array) -> Lanes:
    """Lists of any length, also none: an empty list has no segment of its own, so the sums are differences of
    running totals, which wrap as the sums do."""
    offsets = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column) + 1]
    first, lengths = int(offsets[0]), np.diff(offsets)
    items = _plain(column.values.slice(first, int(offsets[-1]) - first), "item")
    valid = _valid(items)
    position = np.arange(len(items)) - np.repeat(offsets[:-1] - first, lengths)
    lanes = []
    for lane, value in enumerate(_hash_values(items)):
        if valid is not None:
            value = np.where(valid == 1, value, _TAGS[_NULL][lane])
        value ^= _places(int(lengths.max(initial=0)), lane)[position]
        running = np.zeros(len(items) + 1, np.uint64)
        np.cumsum(_mix(value), out=running[1:])
        total = running[offsets[1:] - first] - running[offsets[:-1] - first]
        lanes.append(_mix(total ^ lengths.astype(np.uint64) ^ _TAGS[_LIST][lane]))
    return lanes[0], lanes[1]


def _hash_bytes(column: pa.Array) -> Lanes:
    """Strings and binaries. Every value has at least one word, so that no segment of the sums is empty."""
    _, offsets_buffer, data = column.buffers()
    offset_type = np.int64 if at.is_large_binary(column.type) or at.is_large_string(column.type) else np.int32
    offsets = np.frombuffer(offsets_buffer, offset_type)[column.offset : column.offset + len(column) + 1]
    starts, lengths = offsets[:-1].astype(np.int64), np.diff(offsets).astype(np.int64)
    counts = np.maximum((lengths + 7) >> 3, 1)
    firsts = np.cumsum(counts) - counts
    position = np.arange(int(counts.sum())) - np.repeat(firsts, counts)
    words = _load_words(data, np.repeat(starts, counts) + (position << 3), lengths, firsts + counts - 1)
    lanes = []
    for lane in (0, 1):
        value = _places(int(counts.max()), lane)[position]
        value ^= words
        total = np.add.reduceat(_mix(value), firsts)
        total ^= lengths.view(np.uint64)
        total ^= _TAGS[_BYTES][lane]
        lanes.append(_mix(total))
    return lanes[0], lanes[1]


def _load_words(
    data: pa.Buffer | None,
    at_bytes: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    lasts: npt.NDArray[np.int64],
) -> Words:
    """The 8 bytes at each position, little-endian; the last word of each value cut to the value's length."""
    size = data.size if data is not None else 0
    first = int(at_bytes[0]) & ~7 if len(at_bytes) else 0
    end = min(int(at_bytes[-1]) + 16, size)
    padded = np.zeros(((max(end - first, 0) + 7) >> 3) + 2, np.uint64)
    if data is not None and end > first:
        padded.view(np.uint8)[: end - first] = np.frombuffer(data, np.uint8)[first:end]
    at_bytes -= first
    slots = at_bytes >> 3
    shifts = ((at_bytes & 7) << 3).astype(np.uint64)
    words: Words = padded[slots] >> shifts
    slots += 1
    # Shifting by 64 is undefined, so the upper part goes in two steps: by 1 and by the rest.
    upper = padded[slots]
    upper <<= np.uint64(1)
    upper <<= _S63 - shifts
    words |= upper
    tail = lengths - ((np.maximum((lengths + 7) >> 3, 1) - 1) << 3)
    keep = np.array([(1 << (8 * n)) - 1 for n in range(9)], np.uint64)
    words[lasts] &= keep[tail]
    return words


def _plain(column: pa.Array, name: str) -> pa.Array:
    """The column in the one layout of its kind that is hashed: int64, double, ns, large lists and so on."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return _plain(column.storage, name)
    if at.is_dictionary(kind):
        return _plain(column.dictionary_decode(), name)
    if at.is_integer(kind):
        return column.cast(pa.int64())
    if at.is_floating(kind):
        return column.cast(pa.float64())
    if at.is_timestamp(kind):
        return column.cast(pa.timestamp("ns", kind.tz))
    if at.is_date(kind):
        return column.cast(pa.date32())
    if at.is_decimal32(kind) or at.is_decimal64(kind):
        return column.cast(pa.decimal128(kind.precision, kind.scale))
    if at.is_list(kind) or at.is_fixed_size_list(kind):
        return column.cast(pa.large_list(kind.value_field))
    if at.is_string_view(kind) or at.is_binary_view(kind) or at.is_fixed_size_binary(kind):
        return column.cast(pa.binary())
    if at.is_null(kind) or any(
        check(kind)
        for check in (
            at.is_boolean,
            at.is_decimal128,
            at.is_large_list,
            at.is_struct,
            at.is_string,
            at.is_large_string,
            at.is_binary,
            at.is_large_binary,
        )
    ):
        return column
    raise HeadwaterError(
        "HW-S03",
        f"column `{name}` of Arrow type `{kind}` cannot be hashed: no type of a table holds it",
        hint="cast it at the source, or leave the column out",
    )
