"""The position at which a text stops being JSON."""

from __future__ import annotations

import pytest

from headwater.coerce.malformed import Fault, fault_in


@pytest.mark.parametrize(
    ("text", "column", "reason"),
    [
        (b'{"id":5,"at":tru}', 17, "unexpected character"),
        (b'{"a":fal}', 9, "unexpected character"),
        (b"[nope,1]", 3, "unexpected character"),
        (b"[tr", 4, "the text ends too early"),
        (b'{"a":"t\x01r"}', 8, "unexpected character"),
        (b"[NaN, 1]", 2, "unexpected character"),
    ],
)
def test_a_word_is_wrong_at_its_first_wrong_letter(text: bytes, column: int, reason: str) -> None:
    assert fault_in(text) == Fault(1, column, reason)
