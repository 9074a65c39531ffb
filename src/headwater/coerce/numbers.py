"""Decimal numbers from their text, exactly: the digits never pass through a double."""

from __future__ import annotations

import re
from decimal import Decimal

from headwater.base.types import Type
from headwater.coerce.row_errors import Refused

PLAIN_NUMBER = r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
"""The form of a text that counts as a number. Leading zeros are allowed, as a text may have them."""
PLAIN_INTEGER = r"-?[0-9]+"

BEYOND = 10**60
"""Represents every integer with more digits than any column type can hold."""
_BEYOND_DIGITS = 60
_EXPONENT_DIGITS = 9

is_plain_number = re.compile(PLAIN_NUMBER).fullmatch
is_plain_integer = re.compile(PLAIN_INTEGER).fullmatch
is_not_finite_word = re.compile(r"[+-]?(?:nan|inf|infinity)", re.IGNORECASE).fullmatch


def scaled(text: str) -> tuple[bool, str, int]:
    """Sign, digits and exponent of a plain number: its value is ±digits x 10^exponent, with no zero at either end of
    the digits; zero has no digits. Very long exponents are cut to a size that is still outside every range."""
    negative = text[0] == "-"
    mantissa, _, power = text.removeprefix("-").lower().partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    exponent = -len(fraction)
    if power:
        size = power.lstrip("+-").lstrip("0")[: _EXPONENT_DIGITS + 1]
        magnitude = 10**_EXPONENT_DIGITS if len(size) > _EXPONENT_DIGITS else int(size or "0")
        exponent += -magnitude if power[0] == "-" else magnitude
    kept = digits.rstrip("0")
    return negative, kept, exponent + len(digits) - len(kept) if kept else 0


def integer_of(text: str) -> int | None:
    """A plain number as an integer; None if it is not integral, ±`BEYOND` if it has too many digits."""
    if len(text) <= 18 and is_plain_integer(text):
        return int(text)
    negative, digits, exponent = scaled(text)
    if not digits:
        return 0
    if exponent < 0:
        return None
    size = BEYOND if len(digits) + exponent > _BEYOND_DIGITS else int(digits) * 10**exponent
    return -size if negative else size


def real_of(text: str, value_type: str) -> float:
    """The nearest double of a plain number; an integer has no negative zero."""
    found = float(text)
    if found in (float("inf"), float("-inf")):
        raise Refused("not_finite", value_type)
    return found + 0.0 if is_plain_integer(text) else found


def castable_decimal(type_: Type) -> str:
    """The pattern of numbers that Arrow's cast to a decimal type gets right or refuses. Beyond it the cast is wrong
    without an error: it takes `1e-41` for 0, and overflows where a number of many digits gets a large scale."""
    scale = type_.numbers[1]
    whole = rf"[0-9]{{1,{38 - scale}}}" if scale < 38 else "0"
    return rf"-?{whole}(?:\.[0-9]{{1,{max(scale, 1)}}})?"


def decimal_of(text: str, type_: Type, value_type: str) -> Decimal:
    """A plain number as a decimal type, by value: `1.500` fits scale 2, `1.505` does not."""
    precision, scale = type_.numbers
    negative, digits, exponent = scaled(text)
    if not digits:
        return Decimal(0)
    if -exponent > scale:
        raise Refused("decimal_scale", value_type, detail=f"scale is {scale}")
    if len(digits) + exponent > precision - scale:
        raise Refused("decimal_out_of_range", value_type, detail=str(type_))
    return Decimal((int(negative), tuple(map(int, digits)), exponent))
