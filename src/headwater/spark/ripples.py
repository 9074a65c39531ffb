"""Runs one ripple's code over the tables of a cut.

While it runs, each run has a Spark session of its own (`run_session.py`): only this run sees its tables, whatever other
runs of the process do, and nothing of them is left afterwards. All sessions share the one Spark.

Code sees the table's own columns, as the store's view shows them. The view's further columns (the exact nanoseconds
`<name>_ns` of each time, and Headwater's `_run_id`, `_ingested_at`, `_content_hash`, `_source_id`, `_commit_seq`) are
there for a query that names them, and in Python by `context.every_column(table)`: so `SELECT *` and `SELECT DISTINCT *`
give only the table's own columns. A view is its query over the tables of the cut it was landed with.
"""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.base.errors import HeadwaterError, Position, nearest
from headwater.catalog.table_state import TableState
from headwater.duck.table_select import column_names
from headwater.spark.frame_schema import column_metadata, quoted
from headwater.spark.frames import further_columns, select_expressions, table_frame
from headwater.spark.nanoseconds import REMAINDER, WITH_REMAINDERS, remainder_of
from headwater.spark.run_session import java_of, new_session, show_as, sql_session
from headwater.spark.small_runs import is_small
from headwater.spark.small_tables import small_frame
from headwater.spark.sql_plan import checked_sql
from headwater.spark.user_code import Code, PythonCode, SqlCode, loaded
from headwater.spark.user_errors import python_errors, user_errors
from headwater.storage.system_columns import COMMIT_SEQ

if TYPE_CHECKING:
    from pyspark.sql import DataFrame as DataFrame  # the name that other packages use for it
    from pyspark.sql import SparkSession

CONTEXT = "context"
"""The parameter of a Python ripple that is not a table."""


@dataclass(frozen=True)
class TableInput:
    """A table at the run's cut. `since_seq` is the cut that the ripple's last successful execution read; None if
    there was none."""

    root: Path
    state: TableState
    since_seq: int | None = None


@dataclass(frozen=True)
class ViewInput:
    """A view at the run's cut: its query over its own inputs, at the cut that it was landed with. `seq` is the commit
    that landed it; `since_seq` as for a table."""

    sql: str
    inputs: Mapping[str, Input]
    seq: int
    since_seq: int | None = None


Input = TableInput | ViewInput


def tables_of(inputs: Iterable[Input]) -> Iterator[TableState]:
    """The tables that are read, also those that views read."""
    for given in inputs:
        if isinstance(given, ViewInput):
            yield from tables_of(given.inputs.values())
        else:
            yield given.state


@dataclass(frozen=True)
class RippleContext:
    """What a Python ripple can use of its run."""

    freshness_us: int
    previous_freshness_us: int | None
    spark: SparkSession
    _inputs: Mapping[str, Input] = field(repr=False)
    _frames: list[DataFrame] = field(default_factory=list, repr=False)
    """All frames of inputs that its code has received."""

    def changed_rows(self, table: str) -> DataFrame:
        """The rows of an input that arrived since this ripple last succeeded; all rows the first time, and after the
        input was rewritten. For an upsert table: the newest state of each key that was written. For a replaced table:
        all rows if it was replaced. For a view: all rows if anything that it reads has changed. Deleted rows are not in
        it."""
        given = self._input(table)
        if given.since_seq is None or (isinstance(given, TableInput) and given.since_seq < given.state.rewritten_seq):
            return self._own_columns(given)
        if isinstance(given, ViewInput):
            frame = self._own_columns(given)
            return frame if given.seq > given.since_seq else frame.limit(0)
        # A row that arrived later is in a file that arrived later, and wins over all that did not.
        newer = tuple(file for file in given.state.files if file.added_seq > given.since_seq)
        given = replace(given, state=replace(given.state, files=newer))
        if not any(file.merged for file in newer):
            return self._own_columns(given)
        arrived = table_frame(self.spark, given.root, given.state).where(f"`_commit_seq` > {given.since_seq}")
        return self._noted(_select(arrived, given))

    def every_column(self, table: str) -> DataFrame:
        """An input with the view's further columns: exact nanoseconds, and Headwater's own."""
        given = self._input(table)
        if isinstance(given, ViewInput):
            return self._own_columns(given)
        frame = table_frame(self.spark, given.root, given.state)
        return self._noted(_select(frame, given, further_columns(given.state)))

    def _own_columns(self, given: Input) -> DataFrame:
        return self._noted(_own_columns(self.spark, given))

    def _noted(self, frame: DataFrame) -> DataFrame:
        self._frames.append(frame)
        return frame

    def _uncache(self) -> None:
        """Drop everything that the code has cached of its inputs: Spark would keep it until it ends."""
        session = self.spark._jsparkSession
        cache = session.sharedState().cacheManager()
        if not cache.isEmpty():
            for frame in self._frames:
                cache.uncacheQuery(session, frame._jdf.queryExecution().analyzed(), True, False)

    def _input(self, table: str) -> Input:
        if table in self._inputs:
            return self._inputs[table]
        meant = nearest(table, self._inputs)
        hint = f"did you mean `{meant}`?" if meant else f"it reads: {', '.join(self._inputs) or 'no table'}"
        raise HeadwaterError("HW-R01", f"the ripple does not read a table `{table}`", hint=hint)


@contextmanager
def running(
    spark: SparkSession,
    ripple: str,
    code: Code,
    *,
    inputs: Mapping[str, Input],
    freshness_us: int,
    previous_freshness_us: int | None,
) -> Iterator[DataFrame]:
    """The result of a ripple, computed inside the block. Errors of the block are those of the user's code: HW-R01 with
    their file and line. Raises `TransientError` if Spark or its machine ended."""
    with user_errors(ripple, code, tables=list(inputs)):
        small = is_small(tables_of(inputs.values()))
        match code:
            case SqlCode():
                with sql_session(spark, small=small) as session:
                    try:
                        frame = run_sql(session, code.text, inputs, subject=f"`{ripple}`", send=small)
                    except HeadwaterError as error:
                        error.places = error.places or ((code.position,) if code.position is not None else ())
                        raise
                    yield frame
            case PythonCode():
                session = new_session(spark, small=small)
                _make_active(session)  # SQL has no lines of Python to record
                context = RippleContext(freshness_us, previous_freshness_us, session, inputs)
                try:
                    with run_python(ripple, code, context, inputs) as frame:
                        yield frame
                finally:
                    context._uncache()


def run_sql(
    session: SparkSession, sql: str, inputs: Mapping[str, Input], *, subject: str, send: bool = False
) -> DataFrame:
    """The query's result, with the inputs as tables of the session. Raises HW-R01 if it reads anything else. `send`: the
    session is one for small inputs, and no Python code runs in it."""
    named = _names_in(sql)
    # All frames before any gets its name: a view among them has its own names for what it reads.
    frames = {name: _own_columns(session, given, also=named, send=send) for name, given in inputs.items()}
    for name, frame in frames.items():
        show_as(frame, name)
    return checked_sql(session, sql, {name: _columns(given) for name, given in inputs.items()}, subject=subject)


def _columns(given: Input) -> Hashable:
    """What determines the columns of an input."""
    if isinstance(given, TableInput):
        return given.state.schema
    return given.sql, *((name, _columns(behind)) for name, behind in given.inputs.items())


@contextmanager
def run_python(
    ripple: str, code: PythonCode, context: RippleContext, inputs: Mapping[str, Input]
) -> Iterator[DataFrame]:
    """What the function returns when it is called with DataFrames by the names of its parameters. Its modules are
    loaded inside the block."""
    with _loaded(ripple, code, inputs) as function:
        with python_errors(ripple, code, tables=list(inputs)):
            result = function(**_arguments(code, function, context, inputs))
            frame = _as_frame(ripple, code, function, result, context.spark)
        yield frame


@contextmanager
def _loaded(ripple: str, code: PythonCode, inputs: Mapping[str, Input]) -> Iterator[Any]:
    """The function. Errors of loading its file are translated; errors of the block are not."""
    loading = loaded(code)
    with python_errors(ripple, code, tables=list(inputs)):
        function = loading.__enter__()
    try:
        yield function
    finally:
        loading.__exit__(None, None, None)


def _own_columns(
    spark: SparkSession, given: Input, *, also: frozenset[str] = frozenset(), send: bool = False
) -> DataFrame:
    """A table's own columns, and the view's further columns in `also`; for a view its result."""
    if isinstance(given, ViewInput):
        # Resolved at once: the names are not needed any longer.
        frame = run_sql(spark, given.sql, given.inputs, subject="a view that is read", send=send)
        for name in given.inputs:
            java_of(spark).catalog.dropTempView(name)
        return frame
    others = [name for name in further_columns(given.state) if name.lower() in also]
    if send and not others and (sent := small_frame(spark, given.root, given.state)) is not None:
        return sent
    frame = table_frame(spark, given.root, given.state, commit_seq=COMMIT_SEQ.name in also)
    return _select(frame, given, others)


def _select(frame: DataFrame, given: TableInput, others: Sequence[str] = ()) -> DataFrame:
    """Own columns, with metadata for what Spark's type does not say, and the columns in `others`. Beside each time is
    its remainder, hidden by a projection above: `carried_times.py` finds the two."""
    schema = given.state.schema
    names, exacts = column_names(schema)
    shown = [quoted(name) for name in (*(names[column.id] for column in schema.columns), *others)]
    if exacts:
        remainders = [f"{remainder_of(quoted(name))} as {quoted(REMAINDER + names[i])}" for i, name in exacts.items()]
        frame = select_expressions(frame, [*shown, *remainders])
        WITH_REMAINDERS.add(frame.sparkSession)
    frame = select_expressions(frame, shown)
    for column in schema.columns:
        if metadata := column_metadata(column.type):
            frame = frame.withMetadata(names[column.id], metadata)
    return frame


def _names_in(sql: str) -> frozenset[str]:
    """Every name in a query, in lower case; texts and comments are skipped."""
    from sqlglot import TokenType, tokenize
    from sqlglot.errors import SqlglotError

    try:
        tokens = tokenize(sql, read="spark")
    except SqlglotError:
        return frozenset()  # Spark will report the error
    return frozenset(t.text.lower() for t in tokens if t.token_type in (TokenType.VAR, TokenType.IDENTIFIER))


def _arguments(
    code: PythonCode, function: Any, context: RippleContext, inputs: Mapping[str, Input]
) -> dict[str, object]:
    """The arguments by the names of the function's parameters; `**tables` gets every input that is not named."""
    arguments: dict[str, object] = {}
    parameters = inspect.signature(function).parameters
    for name, parameter in parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            wanted = [table for table in inputs if table not in parameters]
        elif parameter.kind is parameter.VAR_POSITIONAL:
            continue
        elif name == CONTEXT:
            arguments[name] = context
            continue
        elif name in inputs and parameter.kind is not parameter.POSITIONAL_ONLY:
            wanted = [name]
        elif parameter.default is parameter.empty:
            raise _no_such_input(code, function, name, inputs)
        else:
            continue
        for table in wanted:
            arguments[table] = context._own_columns(inputs[table])
    return arguments


def _no_such_input(code: PythonCode, function: Any, parameter: str, inputs: Mapping[str, Input]) -> HeadwaterError:
    meant = nearest(parameter, [*inputs, CONTEXT])
    known = f"parameters are tables that it reads ({', '.join(inputs) or 'none'}) and `{CONTEXT}`"
    return HeadwaterError(
        "HW-R01",
        f"`{code.function}` has a parameter `{parameter}`, which is no table that the ripple reads",
        hint=f"did you mean `{meant}`?" if meant else known,
        places=(_defined_at(code, function),),
    )


def _as_frame(ripple: str, code: PythonCode, function: Any, result: object, spark: SparkSession) -> DataFrame:
    """The result as a DataFrame: Spark's as it is; an Arrow table or a pandas DataFrame is passed to Spark."""
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame

    if isinstance(result, DataFrame):
        return result
    if isinstance(result, pd.DataFrame):
        result = pa.Table.from_pandas(result, preserve_index=False)
    if isinstance(result, pa.Table):
        return spark.createDataFrame(result)
    hint = "return a Spark DataFrame, an Arrow table or a pandas DataFrame"
    if hasattr(result, "to_spark"):
        hint = "return `.to_spark()` of it"
    raise HeadwaterError(
        "HW-R01",
        f"`{code.function}` returned {'nothing' if result is None else f'a `{type(result).__name__}`'}"
        f", and `{ripple}` is a table",
        hint=hint,
        places=(_defined_at(code, function),),
    )


def _defined_at(code: PythonCode, function: Any) -> Position:
    found = getattr(inspect.unwrap(function), "__code__", None)
    place = code.position(found.co_filename, found.co_firstlineno) if found is not None else None
    return place or Position(code.shown)


def _make_active(session: SparkSession) -> None:
    """In this thread: only then does PySpark record the lines of the user's file where columns were made."""
    jvm = session._jvm  # the public way, createDataFrame, would plan a job
    assert jvm is not None
    type(session)._get_j_spark_session_class(jvm).setActiveSession(session._jsparkSession)
