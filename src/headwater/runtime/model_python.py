"""The parameters of a ripple's Python function, found in the text alone: no user code is imported.

Each parameter is a table, passed by its name as a DataFrame; one called `context` is the run's context. So the names
must be plain: no `*args`, no `**kwargs`, none before a `/`, and no defaults, except that `context` may have one.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from headwater.base.errors import did_you_mean

CONTEXT = "context"


@dataclass(frozen=True)
class PythonFunction:
    """A function at the top of a file. `tables` are its parameters without `context`, each with the line and column of
    its name; lines and columns count from 1."""

    name: str
    line: int
    tables: tuple[tuple[str, int, int], ...]


class PythonFault(Exception):
    """Why a text has no function of that name that a ripple can call; `line` 0 is the whole file."""

    def __init__(self, message: str, *, hint: str, line: int = 0, column: int = 0):
        super().__init__(message)
        self.message, self.hint, self.line, self.column = message, hint, line, column


def python_parameters(text: str, function: str) -> PythonFunction:
    """The parameters of the function of that name at the top level of the text: of the last one, as in Python. A
    decorator is assumed to keep them. Raises PythonFault."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        message = f"the Python cannot be read: {error.msg}"
        raise PythonFault(message, hint="", line=error.lineno or 0, column=error.offset or 0) from error
    except (ValueError, RecursionError, MemoryError) as error:
        message = "the Python cannot be read: it holds a null character, or is nested too deeply"
        raise PythonFault(message, hint="") from error
    lines = re.split(r"\r\n?|\n", text)  # as Python counts them; `splitlines` splits at more characters
    for node in reversed(tree.body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name == function:
            return _function(node, lines)
    raise _no_such_function(tree, function)


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, lines: list[str]) -> PythonFunction:
    if not isinstance(node, ast.FunctionDef):
        kind = "a class" if isinstance(node, ast.ClassDef) else "an `async` function"
        hint = f"write `def {node.name}(...)`"
        raise PythonFault(f"`{node.name}` is {kind}, not a plain function", hint=hint, line=node.lineno, column=1)
    asked = node.args
    for argument, stars in ((asked.vararg, "*"), (asked.kwarg, "**")):
        if argument is not None:
            message = f"`{node.name}` takes `{stars}{argument.arg}`, which names no table"
            raise _at(argument, lines, message, "name each table that it reads as a parameter")
    for argument in asked.posonlyargs:
        message = f"`{node.name}` takes `{argument.arg}` by position; tables are given by name"
        raise _at(argument, lines, message, "remove the `/`")
    with_default = asked.args[len(asked.args) - len(asked.defaults) :]
    with_default += [argument for argument, default in zip(asked.kwonlyargs, asked.kw_defaults) if default is not None]
    for argument in with_default:
        if argument.arg != CONTEXT:
            message = f"the parameter `{argument.arg}` of `{node.name}` has a default; every parameter is a table"
            raise _at(argument, lines, message, "remove the default, or make it a constant of the file")
    named = [argument for argument in (*asked.args, *asked.kwonlyargs) if argument.arg != CONTEXT]
    tables = tuple((argument.arg, argument.lineno, _column(argument, lines)) for argument in named)
    return PythonFunction(node.name, node.lineno, tables)


def _no_such_function(tree: ast.Module, function: str) -> PythonFault:
    defined = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    if any(function in _bound(node) for node in tree.body):
        hint = f"define it in this file: `def {function}(...)`"
        return PythonFault(f"`{function}` is not defined with `def`", hint=hint)
    hint = "it defines no function" if not defined else "it defines " + ", ".join(f"`{name}`" for name in defined[:8])
    return PythonFault(f"no function `{function}`", hint=did_you_mean(function, defined, hint))


def _bound(node: ast.stmt) -> set[str]:
    """The names that an import or an assignment at the top level of a file makes."""
    match node:
        case ast.Import() | ast.ImportFrom():
            return {alias.asname or alias.name for alias in node.names}
        case ast.Assign():
            return {target.id for target in node.targets if isinstance(target, ast.Name)}
        case _:
            return set()


def _at(argument: ast.arg, lines: list[str], message: str, hint: str) -> PythonFault:
    return PythonFault(message, hint=hint, line=argument.lineno, column=_column(argument, lines))


def _column(argument: ast.arg, lines: list[str]) -> int:
    """The column in characters: Python counts bytes."""
    return len(lines[argument.lineno - 1].encode()[: argument.col_offset].decode()) + 1
