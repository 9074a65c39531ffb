"""The ripples of a pipeline that reads pipelines: what each one does, and which tables it reads.

A table that a ripple names is made by another ripple of its pipeline, or by one of the pipeline's sources; anything
else is an error at the position of the name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path as FilePath
from typing import Literal

from headwater.base import limits
from headwater.base.errors import HeadwaterError, Position, nearest
from headwater.catalog.evolution import DeclaredColumn
from headwater.manifest.checks import LoadedPipeline, arrows, circles
from headwater.manifest.durations import SECOND_US, duration_us
from headwater.manifest.positions import Path
from headwater.manifest.spec import Mode, RippleSpec, TableSettings
from headwater.runtime.model_python import PythonFault, PythonFunction, python_parameters
from headwater.runtime.model_sql import tables_read
from headwater.runtime.model_text import ModelText, SqlFault, python_text, sql_text
from headwater.runtime.model_view import duck_query
from headwater.runtime.ripple_fingerprint import declared_columns, ripple_fingerprint

Kind = Literal["sql", "python", "view"]
PlaceOf = Callable[[], Position]
"""The position of something, computed when it is needed."""


@dataclass(frozen=True)
class RippleInput:
    """A table that a ripple reads. `source` is the pipeline that makes it, None for a ripple of its own pipeline."""

    table: str
    source: str | None


@dataclass(frozen=True)
class ModelRipple:
    """One ripple, ready to be run. `text` is the SQL, or the whole Python file of `function`; `file` is where it is
    written, relative to the project: a manifest, if it `is_inline`. `inputs` are in the order in which they are named,
    `after` are the ripples that must have run: those it reads, and those it names. `timeout_seconds` limits an
    execution; None: no limit."""

    name: str
    kind: Kind
    text: str
    file: str
    is_inline: bool
    function: str | None
    inputs: tuple[RippleInput, ...]
    after: tuple[str, ...]
    mode: Mode
    primary_key: tuple[str, ...]
    columns: Mapping[str, DeclaredColumn]
    fingerprint: str
    timeout_seconds: float | None
    position_of: PlaceOf = field(repr=False, compare=False)

    @property
    def position(self) -> Position:
        """Where its SQL or its function begins; computed when it is needed."""
        return self.position_of()


@dataclass(frozen=True, eq=False)
class MadeTable:
    """A table or view of the project: the pipeline that makes it, and where that is written."""

    pipeline: LoadedPipeline
    path: Path
    settings: TableSettings


@dataclass(frozen=True, eq=False)
class _RippleText:
    """A ripple's text, and the names in it that must be tables."""

    spec: RippleSpec
    text: ModelText
    names: tuple[tuple[str, PlaceOf], ...]
    function: PythonFunction | None = None


def project_tables(pipelines: Iterable[LoadedPipeline]) -> dict[str, MadeTable]:
    """Every table and view that the manifest makes, by name."""
    made: dict[str, MadeTable] = {}
    for pipeline in pipelines:
        for index, table in enumerate(pipeline.spec.tables):
            made[table.table] = MadeTable(pipeline, ("tables", index), table)
        for index, ripple in enumerate(pipeline.spec.ripples):
            made[ripple.name] = MadeTable(pipeline, ("ripples", index), ripple)
    return made


def read_ripples(
    pipeline: LoadedPipeline, *, root: FilePath, tables: Mapping[str, MadeTable]
) -> tuple[tuple[ModelRipple, ...], list[HeadwaterError]]:
    """The ripples of one pipeline, and all errors in them. Reads the files they name; runs nothing."""
    errors: list[HeadwaterError] = []
    ripples: list[ModelRipple] = []
    edges: dict[str, dict[str, PlaceOf]] = {}
    for index, spec in enumerate(pipeline.spec.ripples):
        try:
            reading = _read(pipeline, index, root)
        except HeadwaterError as error:
            errors.append(error)
            continue
        inputs: list[RippleInput] = []
        parents = edges[spec.name] = {}
        for name, place in reading.names:
            try:
                inputs.append(_resolve(name, pipeline, reading, tables, place))
            except HeadwaterError as error:
                errors.append(error)
                continue
            if inputs[-1].source is None:
                parents[name] = place
        for position, name in enumerate(spec.after):
            parents.setdefault(name, partial(pipeline.part.position, ("ripples", index, "after", position)))
        timeout = spec.timeout or pipeline.spec.timeout
        ripples.append(_ripple(reading, tuple(inputs), tuple(parents), timeout=timeout))
    errors += _check_circles(pipeline, edges)
    errors += _check_optional(pipeline, ripples, tables)
    return tuple(ripples), errors


def _read(pipeline: LoadedPipeline, index: int, root: FilePath) -> _RippleText:
    """One ripple's text and names. Raises HW-M02 for a file that cannot be read, HW-M03 for an error in it."""
    part, spec = pipeline.part, pipeline.spec.ripples[index]
    subject = f"the ripple `{spec.name}` of {part.subject}"
    if spec.sql is not None:
        text = sql_text(root, part, ("ripples", index, "sql"), spec.sql)
        try:
            reads = tables_read(text.text)
            if spec.materialize == "view":
                duck_query(text.text)
        except SqlFault as fault:
            message = f"{subject}: {fault.message}"
            raise text.error("HW-M03", message, hint=fault.hint, place=text.position(fault.offset)) from fault
        return _RippleText(spec, text, tuple((read.name, partial(text.position, read.offset)) for read in reads))
    assert spec.python is not None
    text, function = python_text(root, part, ("ripples", index, "python"), spec.python)
    try:
        found = python_parameters(text.text, function)
    except PythonFault as bad:
        message, place = f"{subject}: {bad.message}", Position(text.file, bad.line, bad.column)
        raise text.error("HW-M03", message, hint=bad.hint, place=place) from bad
    names = tuple((name, partial(Position, text.file, line, column)) for name, line, column in found.tables)
    return _RippleText(spec, text, names, found)


def _resolve(
    name: str, pipeline: LoadedPipeline, reading: _RippleText, tables: Mapping[str, MadeTable], place: PlaceOf
) -> RippleInput:
    """The maker of the table of that name. Raises HW-M07 if there is none, or the ripple may not read it."""
    spec = pipeline.spec
    subject = f"the ripple `{reading.spec.name}` of {pipeline.part.subject}"
    sources = [source.pipeline for source in spec.sources]
    made = tables.get(name)
    if name == reading.spec.name:
        message = f"{subject} reads itself"
        hint = "a Python ripple that appends or upserts gets only new rows by `context.changed_rows(table)`"
    elif made is None:
        message = f"{subject} reads `{name[:80]}`, which no source and no other ripple of its pipeline makes"
        readable = [table for table, by in tables.items() if by.pipeline.spec.id in (spec.id, *sources)]
        readable.remove(reading.spec.name)
        meant = nearest(name, readable) or nearest(name, tables)
        listed = ", ".join(f"`{table}`" for table in readable[: limits.TABLE_NAMES_SHOWN])
        hint = f"did you mean `{meant}`?" if meant else f"it can read {listed}" if listed else ""
    elif made.pipeline.spec.id == spec.id:
        return RippleInput(name, None)
    elif made.pipeline.spec.id in sources:
        return RippleInput(name, made.pipeline.spec.id)
    else:
        maker = made.pipeline.spec.id
        message = f"{subject} reads `{name}` of the pipeline `{maker}`, which is not among its sources"
        hint = f"add `{maker}` to the `sources` of {pipeline.part.subject}"
    raise reading.text.error("HW-M07", message, hint=hint, place=place())


def _ripple(
    reading: _RippleText, inputs: tuple[RippleInput, ...], after: tuple[str, ...], *, timeout: str | None
) -> ModelRipple:
    spec, text, function = reading.spec, reading.text, reading.function
    kind: Kind = "view" if spec.materialize == "view" else "python" if function else "sql"
    # By default a ripple's table is exactly the result of its text: rows of an earlier run that are no longer in the
    # result are removed.
    mode: Mode = spec.mode or "replace"
    name = function.name if function else None
    return ModelRipple(
        name=spec.name,
        kind=kind,
        text=text.text,
        file=text.file,
        is_inline=text.is_inline,
        function=name,
        inputs=inputs,
        after=after,
        mode=mode,
        primary_key=spec.primary_key,
        columns=declared_columns(spec),
        fingerprint=ripple_fingerprint(spec, kind=kind, text=text.text, function=name, mode=mode),
        timeout_seconds=duration_us(timeout) / SECOND_US if timeout else None,
        position_of=partial(Position, text.file, function.line, 1) if function else partial(text.position, 0),
    )


def _check_circles(pipeline: LoadedPipeline, edges: Mapping[str, Mapping[str, PlaceOf]]) -> Iterator[HeadwaterError]:
    for circle in circles({name: tuple(parents) for name, parents in edges.items()}):
        places = tuple(edges[reader][parent]() for reader, parent in zip(circle, circle[1:] + circle[:1]))
        message = f"ripples of {pipeline.part.subject} wait for each other in a circle: {arrows(circle)}"
        yield HeadwaterError("HW-M07", message, hint="make one of them not need the other", places=places)


def _check_optional(
    pipeline: LoadedPipeline, ripples: Iterable[ModelRipple], tables: Mapping[str, MadeTable]
) -> Iterator[HeadwaterError]:
    """A source that is not required may never have run: its tables are then empty, and must have columns."""
    optional = {source.pipeline: index for index, source in enumerate(pipeline.spec.sources) if not source.required}
    reads = dict.fromkeys(read for ripple in ripples for read in ripple.inputs if read.source in optional)
    for read in reads:
        made = tables[read.table]
        if made.settings.columns:
            continue
        assert read.source is not None
        message = f"{pipeline.part.subject} reads `{read.table}` of `{read.source}`, which is not required and declares no columns"
        hint = f"declare the `columns` of `{read.table}`: while `{read.source}` has not run, it is an empty table"
        places = (pipeline.part.position(("sources", optional[read.source])), made.pipeline.part.position(made.path))
        yield HeadwaterError("HW-M03", message, hint=hint, places=places)
