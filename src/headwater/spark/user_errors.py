"""Errors of a ripple's code in terms of its author: their file, their line, never ours.

Spark's messages about a query's text are shown. Its messages about a row, and those of exceptions of user code, may
hold values; of these only the kind is shown, with the code that ran.
"""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headwater.base import limits
from headwater.base.errors import HeadwaterError, Position, SparkJobFailed, UserCodeFailed, nearest
from headwater.connectors.protocol import TransientError
from headwater.spark.failure import translated
from headwater.spark.frame_schema import refusal_in
from headwater.spark.user_code import Code, PythonCode, SqlCode

if TYPE_CHECKING:
    from pyspark.errors import PySparkException

_FRAME = re.compile(r'File "([^"]+)", line (\d+)(?:, in (\S+))?')
_KIND = re.compile(r"^((?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt|Warning))(?::|$)", re.MULTILINE)
_SAFE_PARAMETERS = ("sourceType", "targetType", "config", "ansiConfig", "functionName")
"""The parts of Spark's messages about rows that may be shown: types and settings."""
_SPARKS_OWN = ("INTERNAL_ERROR", "OPERATION_CANCELED", "FAILED_READ_FILE")


@contextmanager
def user_errors(ripple: str, code: Code, *, tables: Sequence[str]) -> Iterator[None]:
    """Translate what user code and its jobs raise. Errors with a code of their own, and those that another try may fix,
    pass."""
    from pyspark.errors import PySparkException

    _hush()
    try:
        with translated():
            try:
                yield
            except PySparkException as error:
                known = _known(ripple, code, error, tables)
                if known is None:
                    raise
                raise known from error
    except HeadwaterError as error:
        # A failed job was translated where it ran; the cause may still be the user's code.
        cause = error.__cause__
        known = None
        if isinstance(error, SparkJobFailed) and isinstance(cause, PySparkException):
            known = _known(ripple, code, cause, tables)
        if known is None:
            raise
        raise known from cause


@contextmanager
def python_errors(ripple: str, code: PythonCode, *, tables: Sequence[str]) -> Iterator[None]:
    """The same while the user's function is loaded and runs. Errors of Spark's gateway are left to `user_errors`."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (HeadwaterError, TransientError) as error:
        place = _raised_at(code, error)
        if isinstance(error, HeadwaterError) and not error.places and place is not None:
            error.places = (place,)
        raise
    except PySparkException as error:
        raise _spark_error(ripple, code, error, tables, place=_raised_at(code, error)) from error
    except SyntaxError as error:
        place = code.position(error.filename or "", error.lineno or 0) or Position(code.shown)
        message = f"`{ripple}` cannot be run: {place.file} is not valid Python: {error.msg}"
        raise HeadwaterError("HW-R01", message, places=(place,)) from error
    except Py4JError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, ConnectionError | EOFError) and _raised_in_gateway(error):
            raise
        raise _python_error(ripple, code, error) from error


def exception_text(code: Code, error: HeadwaterError) -> tuple[str, str]:
    """The message of the exception behind an error of user code, and the lines of the user's files that ran, the
    innermost last. Both may hold values of rows: they are for the user, and not for our messages. Empty for Spark's
    messages about a query's text: the error has them already."""
    from pyspark.errors import PySparkException

    cause = error.__cause__
    if (
        not isinstance(error, UserCodeFailed)
        or cause is None
        or (isinstance(cause, PySparkException) and _is_about_text(cause))
    ):
        return "", ""
    if isinstance(cause, PySparkException):
        text = str(cause).partition("\n\nJVM stacktrace")[0]
        frames = _FRAME.findall(text) if isinstance(code, PythonCode) else []
        if not frames:
            return text, _lines(code, cause)
        # A function that failed in a worker: its traceback is text, and the exception follows it.
        raised = [found.start() for found in _KIND.finditer(text)]
        return text[raised[-1] :].strip() if raised else text, _shown_lines(code, frames)
    return "".join(traceback.format_exception_only(cause)).strip(), _lines(code, cause)


def _lines(code: Code, error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return _shown_lines(code, [(frame.filename, str(frame.lineno or 0), frame.name) for frame in frames])


def _shown_lines(code: Code, frames: Sequence[tuple[str, str, str]]) -> str:
    """Those of the frames (file, line, function) that are in the user's files."""
    if not isinstance(code, PythonCode):
        return ""
    shown: list[str] = []
    for file, line, name in frames:
        place = code.position(file, int(line))
        if place is not None:
            source = _line_of(code, place)
            shown += [f"{place} in {name}", *([f"  {source}"] if source else [])]
    return "\n".join(shown)


def _python_error(ripple: str, code: PythonCode, error: BaseException) -> HeadwaterError:
    place = _raised_at(code, error)
    hint = ""
    if isinstance(error, ModuleNotFoundError) and error.name and (code.path.parent / f"{error.name}.py").is_file():
        hint = f"`{error.name}.py` is beside it: write `from .{error.name} import ...`"
    what = f"`{code.function}` raised {type(error).__name__}"
    if isinstance(error, ModuleNotFoundError) and error.name:
        what += f": there is no module `{error.name}`"
    elif place is not None:
        what += _at_code(code, place)
    return HeadwaterError("HW-R01", f"`{ripple}` failed: {what}", hint=hint, places=(place or Position(code.shown),))


def _known(ripple: str, code: Code, error: PySparkException, tables: Sequence[str]) -> HeadwaterError | None:
    """The error, if it is one of the user's code; None if it is Spark's or the machine's."""
    refused = refusal_in(str((error.getMessageParameters() or {}).get("errorMessage", "")))
    if refused is not None:
        text, hint = refused
        return HeadwaterError(
            "HW-R01", f"the result of `{ripple}` was not landed: {text}", hint=hint, places=_places(code, None)
        )
    condition = error.getCondition()
    if condition is not None and not condition.startswith(_SPARKS_OWN):
        return _spark_error(ripple, code, error, tables, place=None)
    return _worker_error(ripple, code, str(error)) if isinstance(code, PythonCode) else None


def _spark_error(
    ripple: str, code: Code, error: PySparkException, tables: Sequence[str], *, place: Position | None
) -> HeadwaterError:
    """What Spark says about the user's query or DataFrame."""
    about_text = _is_about_text(error)
    words = _words(error) if about_text else _without_values(error)
    if isinstance(code, SqlCode):
        position = _sql_position(code, error)
        where = f" at line {position[0]}, column {position[1]}" if position else ""
        fragment = "" if about_text else _fragment(error)
        message = f"the SQL of `{ripple}` {'cannot be run' if about_text else 'failed'}{where}{fragment}: {words}"
        place = _sql_place(code, position)
    else:
        place = place or _called_at(code, error)
        at = _at_code(code, place) if place is not None else _fragment(error)
        message = f"`{ripple}` failed: `{code.function}`{at}: {words}"
    return HeadwaterError("HW-R01", message, hint=_hint(error, tables), places=_places(code, place))


def _worker_error(ripple: str, code: PythonCode, text: str) -> HeadwaterError | None:
    """A function of the user that failed in one of Spark's workers, which return only the text of the traceback."""
    found = [code.position(file, int(line)) for file, line, _ in _FRAME.findall(text)]
    places = [place for place in found if place is not None]
    if not places:
        return None
    kinds = _KIND.findall(text)
    kind = kinds[-1] if kinds else "an exception"
    message = f"`{ripple}` failed: a function for rows raised {kind}{_at_code(code, places[-1])}"
    return HeadwaterError("HW-R01", message, places=(places[-1],))


def _raised_at(code: PythonCode, error: BaseException) -> Position | None:
    """The innermost line of the user's files that ran."""
    frames = traceback.extract_tb(error.__traceback__)
    places = [code.position(frame.filename, frame.lineno or 0) for frame in frames]
    return next((place for place in reversed(places) if place is not None), None)


def _raised_in_gateway(error: BaseException) -> bool:
    """True if the connection to Spark broke, and not one of the user's."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and f"{os.sep}py4j{os.sep}" in frames[-1].filename


def _called_at(code: PythonCode, error: PySparkException) -> Position | None:
    """The line that called what failed, if Spark recorded it."""
    from pyspark.errors.exceptions.base import QueryContextType

    for context in error.getQueryContext():
        if context.contextType() == QueryContextType.DataFrame:
            file, _, line = context.callSite().rpartition(":")
            place = code.position(file, int(line)) if line.isdigit() else None
            if place is not None:
                return place
    return None


def _at_code(code: PythonCode, place: Position) -> str:
    text = _line_of(code, place)
    return f" at `{text}`" if text else ""


def _line_of(code: PythonCode, place: Position) -> str:
    """The text of a line of the user, as it is on disk now."""
    try:
        lines = (code.path.parent / _inside(code, place)).read_text().splitlines()
        return lines[place.line - 1].strip()[: limits.USER_CODE_CHARACTERS]
    except (OSError, IndexError, UnicodeDecodeError):
        return ""


def _inside(code: PythonCode, place: Position) -> str:
    parent = code.shown.rpartition("/")[0]
    return place.file.removeprefix(f"{parent}/") if parent else place.file


def _is_about_text(error: PySparkException) -> bool:
    """True for errors that Spark reports before it has read a row."""
    from pyspark.errors import AnalysisException, ParseException

    return isinstance(error, AnalysisException | ParseException)


def _words(error: PySparkException) -> str:
    """The first line of Spark's message, without its codes and what follows them."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    text = re.sub(r"^\[[A-Z0-9_.]+\] ", "", lines[0] if lines else type(error).__name__)
    text = re.sub(r"\s*(SQLSTATE: \w+|\(line \d+, pos \d+\)|; line \d+ pos \d+).*$", "", text)
    return text[: limits.MESSAGE_CHARACTERS]


def _without_values(error: PySparkException) -> str:
    """The same without everything that could come from a row: Spark's messages name such parts."""
    text = _words(error)
    for name, value in (error.getMessageParameters() or {}).items():
        if value and name not in _SAFE_PARAMETERS:
            text = text.replace(value, "...")
    return f"{error.getCondition()}: {text}"


def _sql_position(code: SqlCode, error: PySparkException) -> tuple[int, int] | None:
    """Line and column in the query's text, counted from 1."""
    context = _sql_context(error)
    if context is not None:
        start, fragment = context
        # Otherwise it is in the query of a view that this one reads.
        if fragment and code.text.startswith(fragment, start):
            before = code.text[:start]
            return before.count("\n") + 1, start - (before.rfind("\n") + 1) + 1
    found = re.search(r"\(line (\d+), pos (\d+)\)", str(error))
    return (int(found[1]), int(found[2]) + 1) if found else None


def _sql_context(error: PySparkException) -> tuple[int, str] | None:
    """The position in a query, and the text there."""
    from pyspark.errors.exceptions.base import QueryContextType

    for context in error.getQueryContext():
        if context.contextType() == QueryContextType.SQL:
            return context.startIndex(), context.fragment()
    return None


def _fragment(error: PySparkException) -> str:
    """The part of the query that failed."""
    from pyspark.errors.exceptions.base import QueryContextType

    for context in error.getQueryContext():
        if context.contextType() == QueryContextType.SQL:
            return f" (`{' '.join(context.fragment().split())[: limits.USER_CODE_CHARACTERS]}`)"
    return ""


def _sql_place(code: SqlCode, position: tuple[int, int] | None) -> Position | None:
    begins = code.position
    if begins is None or position is None or not begins.line:
        return begins
    line, column = position
    return Position(begins.file, begins.line + line - 1, column + (max(begins.column, 1) - 1 if line == 1 else 0))


def _places(code: Code, place: Position | None) -> tuple[Position, ...]:
    if place is not None:
        return (place,)
    if isinstance(code, PythonCode):
        return (Position(code.shown),)
    return (code.position,) if code.position is not None else ()


def _hint(error: PySparkException, tables: Sequence[str]) -> str:
    if error.getCondition() == "TABLE_OR_VIEW_NOT_FOUND":
        name = str((error.getMessageParameters() or {}).get("relationName", "")).strip("`")
        meant = nearest(name, tables)
        return f"did you mean `{meant}`?" if meant else f"it can read: {', '.join(tables) or 'no table'}"
    return "" if _is_about_text(error) else "fix the rows at their source, or make the code accept them"


def _hush() -> None:
    """pyspark also writes the errors that it raises to stderr, whole, with the values of rows."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
