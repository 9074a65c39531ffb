from __future__ import annotations

import pickle
import re

import pytest

from headwater.base.errors import CODES, ErrorList, Exit, HeadwaterError, Position, nearest, raise_all

TWICE = HeadwaterError(
    "HW-M04",
    "pipeline `github-issues` is defined twice",
    hint="keep one of them; `headwater pipeline convert github-issues --to json` migrates it",
    places=(Position("headwater.toml", 42, 1), Position("pipelines/github-issues.json", 1, 1)),
)


def test_an_error_is_shown_as_the_house_style_says() -> None:
    assert str(TWICE) == (
        "error[HW-M04]: pipeline `github-issues` is defined twice\n"
        "  headwater.toml:42:1\n"
        "  pipelines/github-issues.json:1:1\n"
        "hint: keep one of them; `headwater pipeline convert github-issues --to json` migrates it"
    )


def test_an_error_without_place_or_hint_is_one_line() -> None:
    assert HeadwaterError("HW-X01", "it broke").render() == "error[HW-X01]: it broke"


@pytest.mark.parametrize(
    ("place", "text"),
    [(Position("f"), "f"), (Position("f", 3), "f:3"), (Position("f", 3, 7), "f:3:7"), (Position("f", 0, 7), "f")],
)
def test_a_place_says_no_more_than_is_known(place: Position, text: str) -> None:
    assert str(place) == text


def test_every_face_gets_the_same_object() -> None:
    assert TWICE.as_json() == {
        "code": "HW-M04",
        "message": "pipeline `github-issues` is defined twice",
        "hint": TWICE.hint,
        "retryable": False,
        "detail": {
            "places": [
                {"file": "headwater.toml", "line": 42, "column": 1},
                {"file": "pipelines/github-issues.json", "line": 1, "column": 1},
            ]
        },
    }
    assert TWICE.detail == {}


def test_errors_survive_the_way_from_one_process_to_another() -> None:
    several = ErrorList([TWICE, HeadwaterError("HW-M05", "unknown key `x`", retryable=True, detail={"a": 1})])
    for error in (TWICE, several):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), again.as_json(), again.render()) == (type(error), error.as_json(), error.render())


def test_several_errors_are_shown_one_after_the_other() -> None:
    other = HeadwaterError("HW-M05", "unknown key `x`")
    with pytest.raises(ErrorList) as raised:
        raise_all([TWICE, other])
    assert raised.value.render() == f"{TWICE.render()}\n\n{other.render()}"
    assert (raised.value.code, raised.value.message) == ("HW-M10", "2 errors in the manifest")
    with pytest.raises(HeadwaterError) as one:
        raise_all([other])
    assert one.value is other
    raise_all([])


def test_every_code_has_its_form_its_words_and_an_exit_code() -> None:
    for code, (words, exit_code) in CODES.items():
        assert re.fullmatch(r"HW-[A-Z]\d\d", code)
        assert words
        assert exit_code not in (Exit.DONE, Exit.CHANGES, Exit.INTERRUPTED)
        assert HeadwaterError(code, "m").exit_code is exit_code


def test_a_code_that_is_not_listed_cannot_be_raised() -> None:
    with pytest.raises(AssertionError):
        HeadwaterError("HW-Z99", "m")


def test_the_nearest_name_is_offered_only_if_it_is_near() -> None:
    assert nearest("Ordrs", ["orders", "rates"]) == "orders"
    assert nearest("xyz", ["orders", "rates"]) is None
    assert nearest("xyz", []) is None
