"""The content hash again, written from the words of `store/rowhash.py` and nothing else: one row at a time, in
plain Python integers. What the two disagree on is a bug in one of them."""

from __future__ import annotations

import struct
from decimal import Context, Decimal
from typing import Any

from headwater.base.types import Type

_MASK = (1 << 64) - 1
_SEEDS = (0x9E3779B97F4A7C15, 0xD1B54A32D192ED03)
_KINDS = {"int": 1, "long": 1, "real": 2, "bool": 3, "timestamp": 5, "date": 6}


def row_hash(row: dict[str, Any], types: dict[str, Type]) -> bytes:
    """Times are given as integers (ns, days), decimals as Decimal, dynamic as its text."""
    a, b = ((_SEEDS[lane] + _sum_named(row, types, lane)) & _MASK for lane in (0, 1))
    high = _mix(a ^ _mix(b))
    return high.to_bytes(8, "big") + _mix(b ^ high).to_bytes(8, "big")


def _mix(x: int) -> int:
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & _MASK
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & _MASK
    return x ^ (x >> 31)


def _tag(kind: int, lane: int) -> int:
    return _mix((_SEEDS[lane] + kind) & _MASK)


def _place(i: int, lane: int) -> int:
    return _mix(_SEEDS[lane] ^ ((i + 1) * 0xA0761D6478BD642F & _MASK))


def _sum_named(row: dict[str, Any], types: dict[str, Type], lane: int) -> int:
    total = 0
    for name, value in row.items():
        if value is not None:
            total += _mix(_bytes(name.encode(), lane) ^ _value(value, types[name], lane))
    return total & _MASK


def _bytes(data: bytes, lane: int) -> int:
    words = [data[i : i + 8].ljust(8, b"\0") for i in range(0, max(len(data), 1), 8)]
    total = sum(_mix(_place(i, lane) ^ int.from_bytes(word, "little")) for i, word in enumerate(words))
    return _mix(_tag(4, lane) ^ len(data) ^ (total & _MASK))


def _value(value: Any, type_: Type, lane: int) -> int:
    match type_.kind:
        case "int" | "long" | "bool" | "timestamp" | "date":
            return _mix(_tag(_KINDS[type_.kind], lane) ^ (int(value) & _MASK))
        case "real":
            return _real(value, lane)
        case "string" | "dynamic":
            return _bytes(value.encode(), lane)
        case "binary":
            return _bytes(value, lane)
        case "decimal":
            unscaled = int(Decimal(value).scaleb(type_.numbers[1], Context(prec=60))) & ((1 << 128) - 1)
            total = _mix(_place(0, lane) ^ (unscaled & _MASK)) + _mix(_place(1, lane) ^ (unscaled >> 64))
            return _mix(_tag(7, lane) ^ type_.numbers[1] ^ (total & _MASK))
        case "vector":
            return _list([_real(item, lane) for item in value], lane)
        case "list":
            part = type_.fields[0][1]
            return _list([_tag(10, lane) if item is None else _value(item, part, lane) for item in value], lane)
        case "struct":
            return _mix(_tag(9, lane) ^ _sum_named(value, dict(type_.fields), lane))
        case kind:
            raise AssertionError(kind)


def _real(value: float, lane: int) -> int:
    bits = 0x7FF8000000000000 if value != value else struct.unpack("<Q", struct.pack("<d", value + 0.0))[0]
    return _mix(_tag(2, lane) ^ bits)


def _list(items: list[int], lane: int) -> int:
    total = sum(_mix(_place(i, lane) ^ item) for i, item in enumerate(items))
    return _mix(_tag(8, lane) ^ len(items) ^ (total & _MASK))
