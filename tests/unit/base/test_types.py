from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.base.errors import HeadwaterError
from headwater.base.types import (
    SIMPLE,
    Type,
    converts,
    decimal,
    from_arrow,
    list_of,
    parse_type,
    struct_of,
    to_arrow,
    vector,
    widens,
)

FIELD_NAMES = st.text(min_size=1, max_size=8) | st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
DECIMALS = st.integers(1, 38).flatmap(lambda p: st.builds(decimal, st.just(p), st.integers(0, p)))
LEAVES = st.sampled_from(SIMPLE).map(Type) | DECIMALS | st.builds(vector, st.integers(1, 65_536))
TYPES = st.recursive(
    LEAVES,
    lambda inner: (
        st.builds(list_of, inner)
        | st.lists(st.tuples(FIELD_NAMES, inner), min_size=1, max_size=3, unique_by=lambda pair: pair[0])
        .map(tuple)
        .map(struct_of)
    ),
    max_leaves=6,
)


@given(TYPES)
def test_printing_and_parsing_are_inverse(type_: Type) -> None:
    assert parse_type(str(type_)) == type_


@given(TYPES)
def test_a_type_comes_back_from_arrow(type_: Type) -> None:
    assert from_arrow(to_arrow(type_)) == type_


def test_blanks_between_the_words_do_not_matter() -> None:
    spaced = parse_type(' struct < a : list< decimal( 5 , 2 ) > , "b c" : vector( 3 ) > ')
    assert str(spaced) == 'struct<a:list<decimal(5,2)>,"b c":vector(3)>'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "a type name is missing"),
        ("strng", "unknown word `strng`"),
        ("long long", "unexpected `long`"),
        ("decimal", "2 numbers in brackets expected"),
        ("decimal(5)", "2 numbers in brackets expected"),
        ("decimal(39,0)", "decimal(p,s) takes 1 <= p <= 38 and 0 <= s <= p"),
        ("decimal(5,6)", "decimal(p,s) takes 1 <= p <= 38 and 0 <= s <= p"),
        ("vector(0)", "vector(n) takes 1 <= n <= 65536"),
        ("vector(1,2)", "1 number in brackets expected"),
        ("list<long", "`>` expected"),
        ("list", "`<` expected"),
        ("struct<>", "a field name is missing"),
        ("struct<a long>", "`:` expected"),
        ("struct<a:long,a:int>", "a field name occurs twice"),
        ("x" * 10_001, "too long"),
    ],
)
def test_what_is_no_type_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(HeadwaterError) as refused:
        parse_type(text)
    assert refused.value.code == "HW-S03"
    assert refused.value.message.endswith(f"is not a type: {reason}")


def test_a_misspelt_type_gets_the_nearest_word() -> None:
    with pytest.raises(HeadwaterError) as refused:
        parse_type("strng")
    assert refused.value.hint == "did you mean `string`?"


WIDENING = {
    ("int", "long"),
    ("int", "real"),
    ("decimal(5,2)", "decimal(9,2)"),
}
CONVERTING = WIDENING | {
    ("long", "int"),
    ("long", "real"),
    ("real", "long"),
    ("real", "int"),
    ("decimal(9,2)", "decimal(5,2)"),
    ("decimal(9,2)", "decimal(9,3)"),
    ("decimal(9,3)", "decimal(9,2)"),
    ("decimal(5,2)", "decimal(9,3)"),
    ("decimal(9,3)", "decimal(5,2)"),
    ("date", "timestamp"),
    ("timestamp", "date"),
    ("bool", "int"),
    ("bool", "long"),
}
WORDS = (*SIMPLE, "decimal(5,2)", "decimal(9,2)", "decimal(9,3)", "vector(3)", "vector(4)", "list<int>", "list<long>")


def test_only_the_widenings_of_the_contract_happen_by_themselves() -> None:
    found = {(a, b) for a in WORDS for b in WORDS if widens(parse_type(a), parse_type(b))}
    assert found == WIDENING


def test_everything_else_that_can_be_shown_needs_a_person() -> None:
    decimals = {word for word in WORDS if word.startswith("decimal")}
    mixed = {pair for n in ("int", "long", "real") for d in decimals for pair in ((n, d), (d, n))}
    texts = {(word, "string") for word in WORDS}
    same = {(word, word) for word in WORDS}
    found = {(a, b) for a in WORDS for b in WORDS if converts(parse_type(a), parse_type(b))}
    assert found == CONVERTING | mixed | texts | same
