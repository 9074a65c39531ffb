from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.base.errors import HeadwaterError, Position
from headwater.base.printable import printable, printable_lines

CASES = [
    ("plain, ünïcode 🌊 and \\ stay", "plain, ünïcode 🌊 and \\ stay"),
    ("a\x00b", "a\\x00b"),
    ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
    ("back\rspace\x08 del\x7f csi\x9b", "back\\rspace\\x08 del\\x7f csi\\x9b"),
    ("abc\u202egnp.exe\u2066", "abc\\u202egnp.exe\\u2066"),
    ("half \ud800 a pair", "half \\ud800 a pair"),
    ("two\u2028lines", "two\\u2028lines"),
]


@pytest.mark.parametrize(("text", "shown"), CASES)
def test_what_could_steer_a_terminal_is_shown_as_an_escape(text: str, shown: str) -> None:
    assert printable(text) == printable_lines(text) == shown


def test_a_name_is_one_line_and_a_text_keeps_its_lines() -> None:
    assert printable("a\nb\tc") == "a\\nb\\tc"
    assert printable_lines("a\nb\tc\r\n") == "a\nb\tc\\r\n"


@given(st.text(st.characters(codec=None)))
def test_no_control_character_is_left_in_any_text(text: str) -> None:
    for mark in printable(text):
        assert unicodedata.category(mark) not in ("Cc", "Cs", "Zl", "Zp")
        assert unicodedata.bidirectional(mark) not in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


def test_an_error_shows_no_control_character_and_no_second_error_in_a_name() -> None:
    error = HeadwaterError(
        "HW-S03", "the column `a\x00\nerror[HW-X01]: b`", hint="not \u202e", places=(Position("in/\x1b[2Jx", 3),)
    )
    assert error.render() == (
        "error[HW-S03]: the column `a\\x00\n  error[HW-X01]: b`\n  in/\\x1b[2Jx:3\nhint: not \\u202e"
    )
    assert error.as_json()["message"] == "the column `a\x00\nerror[HW-X01]: b`"  # JSON has escapes of its own
