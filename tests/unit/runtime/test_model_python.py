"""What a function asks for, from its text."""

from __future__ import annotations

import pytest

from headwater.runtime.model_python import PythonFault, python_parameters


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("def f(): ...", []),
        ("def f(orders): ...", ["orders"]),
        ("def f(orders, refunds): ...", ["orders", "refunds"]),
        ("def f(orders: DataFrame, *, refunds: DataFrame) -> DataFrame: ...", ["orders", "refunds"]),
        ("def f(*, orders): ...", ["orders"]),
        ("def f(orders, context): ...", ["orders"]),
        ("def f(context, orders): ...", ["orders"]),
        ("def f(orders, context=None): ...", ["orders"]),
        ("def f(orders, *, context: Context | None = None, refunds): ...", ["orders", "refunds"]),
        ("@cache\ndef f(orders): ...", ["orders"]),
        # the last one counts
        ("def f(a): ...\ndef f(b): ...", ["b"]),
        # inside something else it is another one
        ("class A:\n    def f(a): ...\ndef f(b):\n    def f(c): ...", ["b"]),
        # none of it runs
        ("import nothing_of_that_name\n1 / 0\ndef f(orders): ...", ["orders"]),
    ],
)
def test_the_parameters_of_a_function(text: str, tables: list[str]) -> None:
    found = python_parameters(text, "f")
    assert [name for name, _, _ in found.tables] == tables
    assert found.name == "f"


def test_lines_and_columns_count_characters_from_one() -> None:
    found = python_parameters("# \x0c a page\r\n\ndef f(\n    größe, orders,\n): ...", "f")
    assert (found.line, found.tables) == (3, (("größe", 4, 5), ("orders", 4, 12)))


@pytest.mark.parametrize(
    ("text", "message", "hint", "place"),
    [
        ("def f(*orders): ...", "`f` takes `*orders`, which names no table", "name each table", (1, 8)),
        ("def f(a, **rest): ...", "`f` takes `**rest`, which names no table", "name each table", (1, 12)),
        ("def f(a, /, b): ...", "`f` takes `a` by position; tables are given by name", "remove the `/`", (1, 7)),
        ("def f(a, b=1): ...", "the parameter `b` of `f` has a default; every", "remove the default", (1, 10)),
        ("def f(a, *, b=1): ...", "the parameter `b` of `f` has a default; every", "remove the default", (1, 13)),
        ("\nasync def f(a): ...", "`f` is an `async` function, not a plain", "write `def f(...)`", (2, 1)),
        ("class f: ...", "`f` is a class, not a plain function", "write `def f(...)`", (1, 1)),
        ("f = lambda a: a", "`f` is not defined with `def`", "define it in this file: `def f(...)`", (0, 0)),
        ("from x import f", "`f` is not defined with `def`", "define it in this file: `def f(...)`", (0, 0)),
        ("from x import g as f", "`f` is not defined with `def`", "define it in this file: `def f(...)`", (0, 0)),
        ("def ff(a): ...", "no function `f`", "did you mean `ff`?", (0, 0)),
        ("def top(a): ...\ndef low(a): ...", "no function `f`", "it defines `top`, `low`", (0, 0)),
        ("x = 1", "no function `f`", "it defines no function", (0, 0)),
        ("", "no function `f`", "it defines no function", (0, 0)),
        ("def f(a:\n", "the Python cannot be read: ", "", (1, 6)),
        ("def f(a, a): ...\0", "the Python cannot be read: ", "", (0, 0)),
    ],
)
def test_what_a_ripple_cannot_call_is_refused(text: str, message: str, hint: str, place: tuple[int, int]) -> None:
    with pytest.raises(PythonFault) as caught:
        python_parameters(text, "f")
    assert caught.value.message.startswith(message)
    assert caught.value.hint.startswith(hint)
    assert (caught.value.line, caught.value.column) == place


def test_what_python_cannot_hold_is_refused() -> None:
    with pytest.raises(PythonFault, match="the Python cannot be read: "):
        python_parameters("x = " + "(" * 1000 + ")" * 1000, "f")
