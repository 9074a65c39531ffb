"""Land one execution of a ripple that makes a view: nothing is computed and no file is written.

Spark resolves the query over the inputs at the cut, DuckDB binds it, and one commit records the view and its cut. A
view changes when its query or anything that it reads changes: its readers run then, as those of a changed table do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headwater.base.errors import HeadwaterError, Position
from headwater.base.types import Type
from headwater.catalog import records as r
from headwater.catalog.landing import Landing
from headwater.catalog.lookup import table_entries, table_states
from headwater.duck.ripple_views import Visible, view_cut, view_states
from headwater.runtime.cut_inputs import cut_of, parent_runs, read_inputs
from headwater.runtime.land_ripple import LandedRipple, RippleOutcome, RippleWork, commit_outcome, running_code
from headwater.runtime.model_view import duck_query
from headwater.runtime.traced import traced_ripple

if TYPE_CHECKING:
    from headwater.spark.ripples import Input
    from headwater.spark.user_code import SqlCode


@traced_ripple
def land_view(work: RippleWork) -> LandedRipple:
    """Resolve, bind and commit. Raises HW-R01 with the user's file and line for a query that Spark or DuckDB rejects,
    HW-S03 for columns that cannot be used, HW-M04 if a table has the name, HW-T03 if the lease was lost,
    `TransientError` if Spark went away. Nothing has changed then."""
    name, reads = work.ripple.table, cut_of(work.inputs)
    _check_name(work)
    inputs = read_inputs(work.store, name, work.inputs)
    definition = _definition(work, _columns(work, inputs))
    _check_in_duckdb(work, definition)
    with work.store.catalog.snapshot() as connection:
        before = view_cut(connection, name)
    owned = before is not None and before.view.pipeline == work.ripple.pipeline
    changed = before is None or not owned or (before.view.definition, dict(before.reads)) != (definition, reads)
    made = r.ViewSet(view=name, pipeline=work.ripple.pipeline, definition=definition, reads=reads)
    outcome = RippleOutcome(rows=0, bytes=0, changed=changed, schema_events=(), parent_runs=parent_runs(inputs))
    landing = Landing(work.store, work.actor, [made] if changed else [], [r.SchemaIs(table=name, schema_id=0)])
    return commit_outcome(work, landing, outcome)


def _check_name(work: RippleWork) -> None:
    """A view never replaces a table of the same name: the table's rows could not be read any more."""
    name = work.ripple.table
    with work.store.catalog.snapshot() as connection:
        entry = table_entries(connection, [name]).get(name)
    if entry is not None:
        message = f"`{name}` is a table of pipeline `{entry.pipeline}`, and a view cannot take its place"
        raise HeadwaterError("HW-M04", message, hint="give the view another name; the table stays as it is")


def _columns(work: RippleWork, inputs: Mapping[str, Input]) -> dict[str, Type]:
    """The columns that Spark finds for the query. If some are declared, all declared ones must have their types."""
    from headwater.spark.frame_schema import frame_columns

    ripple = work.ripple
    declared = {name: column.type for name, column in ripple.declared.items()}
    with running_code(work, inputs, work.spark()) as frame:
        found = frame_columns(frame.schema, subject=ripple.table, known=declared)
    for name, type_ in declared.items():
        if found.get(name) != type_:
            gives = f"gives it as {found[name]}" if name in found else "does not give it"
            message = f"the view `{ripple.table}` declares `{name}` as {type_}, and its query {gives}"
            hint = "cast it in the query, or declare what it gives"
            raise HeadwaterError("HW-S03", message, hint=hint, places=_places(work))
    return found


def _definition(work: RippleWork, columns: Mapping[str, Type]) -> r.ViewDefinition:
    code = _code(work)
    duck = duck_query(code.text)
    return r.ViewDefinition(
        sql=code.text,
        shown=duck.text,
        reads=tuple(given.table for given in work.inputs),
        columns=_pairs(columns),
        declared={given.table: _pairs(given.declared) for given in work.inputs if given.as_of_seq is None},
        named=duck.named,
    )


def _check_in_duckdb(work: RippleWork, definition: r.ViewDefinition) -> None:
    """Bind the view over the tables as they are now, as a query of it will."""
    import duckdb

    with work.store.catalog.snapshot() as connection:
        views = view_states(connection)
        behind = Visible.of((), views).behind(view for view in views if view.name in definition.reads)
        states = table_states(connection, {*behind, *definition.reads})
    select = Visible.of(states, views).select_files(definition, root=str(work.store.root.resolve()))
    with duckdb.connect(":memory:", config={"python_enable_replacements": False}) as session:
        try:
            session.execute(f"DESCRIBE {select}")
        except (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException) as error:
            reason = str(error).splitlines()[0]
            raise HeadwaterError(
                "HW-R01",
                f"the view `{work.ripple.table}` works in Spark, and DuckDB cannot show it: {reason}",
                hint='write it in a way that both have, or leave out `materialize = "view"`',
                places=_places(work),
            ) from error


def _code(work: RippleWork) -> SqlCode:
    from headwater.spark.user_code import SqlCode

    assert isinstance(work.ripple.code, SqlCode), "the manifest lets only SQL be a view"
    return work.ripple.code


def _places(work: RippleWork) -> tuple[Position, ...]:
    return tuple(filter(None, [_code(work).position]))


def _pairs(columns: Mapping[str, Type]) -> tuple[tuple[str, str], ...]:
    return tuple((name, str(type_)) for name, type_ in columns.items())
