"""Brings derived files (views, `duck.db`, schema files) up to the catalog."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from headwater.app.declared_tables import declared_states
from headwater.base.clock import to_text
from headwater.base.errors import HeadwaterError
from headwater.catalog.commit import Store
from headwater.catalog.lookup import (
    TableEntry,
    current_seq,
    freshness_by_pipeline,
    last_view_change,
    schema_events,
    table_states,
    view_names,
)
from headwater.catalog.table_state import TableState
from headwater.duck.view_mark import digest_of, views_seq, views_shown
from headwater.manifest.load import Project
from headwater.storage.store_files import cannot_write, make_directory, read_text, write_text

_refreshing = threading.Lock()
"""Two threads of a process would build one `duck.db` under one name. The second finds nothing left to do."""


def refresh(store: Store, project: Project | None, *, force: bool = False) -> list[str]:
    """Write views and schema files that differ from the catalog; returns the tables whose view changed. A table of
    `project` that has not landed gets empty views. If there is nothing to do, nothing is written. Without `force`, a
    view of a later commit is not changed. Raises HW-T05 if the disk cannot be written."""
    with _refreshing:
        try:
            return _refresh(store, project, force=force)
        except OSError as error:
            raise cannot_write(store.layout.views, error) from error


def _refresh(store: Store, project: Project | None, *, force: bool) -> list[str]:
    from headwater.duck.ripple_views import view_states
    from headwater.duck.view_files import refresh_views, table_infos

    with store.catalog.snapshot() as connection:
        states, views = table_states(connection), view_states(connection)
        landed = {state.name for state in states} | {view.name for view in views}
        declared = declared_states(project, landed, seq=current_seq(connection))
        infos = table_infos([*states, *declared], freshness_by_pipeline(connection), views=views)
        events = defaultdict(list)
        for event in schema_events(connection, [state.name for state in states]):
            events[event["table_name"]].append(event)
    for state in states:
        _write_schema_files(store, state, events[state.name])
    return refresh_views(store.root, [*states, *declared], tables_info=infos, views=views, force=force)


def refresh_landed(store: Store, project: Project) -> HeadwaterError | None:
    """Refresh after rows have landed. A view that cannot be made, even of another table, undoes no landing: the error
    is returned, to be shown as a warning. The next apply or query makes the views again."""
    try:
        refresh(store, project)
    except HeadwaterError as error:
        return error
    return None


def is_current(store: Store, project: Project | None, tables: Mapping[str, TableEntry]) -> bool:
    """True if the derived files were made after the last change of any table, its files or a view, and show the tables
    of the manifest that have not landed. One small file records this, so a crash between a commit and its views is seen
    here."""
    with store.catalog.snapshot() as connection:
        last, views = last_view_change(connection), view_names(connection)
    landed = {*tables, *views}
    empty, shown = declared_states(project, landed, seq=0), views_shown(store.root, landed)
    if empty or shown:
        from headwater.duck.view_files import view_file_text

        if shown != {state.name: digest_of(view_file_text(state)) for state in empty}:
            return False
    return max([last, *(entry.files_seq for entry in tables.values())]) <= views_seq(store.root)


def event_json(event: Mapping[str, Any], *, kind: str) -> dict[str, Any]:
    """A schema event of the catalog for users; `kind` is the key for its kind."""
    return {
        "seq": event["seq"],
        "at": to_text(event["at_us"]),
        kind: event["kind"],
        "column": event["column_name"],
        "before": json.loads(event["before_json"]),
        "after": json.loads(event["after_json"]),
        "note": event["note"],
        "decided_by": event["decided_by"],
    }


def _write_schema_files(store: Store, state: TableState, events: Sequence[Mapping[str, Any]]) -> None:
    """`schema.json` (the latest schema) and `schema-history.jsonl` (every event), for users and other tools."""
    current = {
        "table": state.name,
        "schema_id": state.schema_id,
        "fingerprint": state.schema.fingerprint,
        "mode": state.mode,
        **state.schema.as_json(),
        "arrow": {field.name: str(field.type) for field in state.schema.to_arrow()},
    }
    directory = store.layout.tables / state.name
    make_directory(directory)
    texts = {
        "schema.json": json.dumps(current, indent=2) + "\n",
        "schema-history.jsonl": "".join(json.dumps(event_json(event, kind="change_kind")) + "\n" for event in events),
    }
    for name, text in texts.items():
        path = directory / name
        if read_text(path) != text:
            write_text(path, text, durable=False)
