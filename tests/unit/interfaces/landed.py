"""A project with one landed table, made without Spark: the store's own parts, one commit after the other."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

from headwater.app.workspace import workspace
from headwater.base.ids import RunId, uuid7
from headwater.base.table_schema import TableSchema
from headwater.base.types import STRING
from headwater.catalog import records as r
from headwater.catalog.commit import Store
from headwater.catalog.evolution import DeclaredColumn, Shown, evolve
from headwater.catalog.schema_decisions import refuse_change
from headwater.storage.layout import attempt_directory
from headwater.storage.part_writer import PartWriter
from schemas import schema_of
from unit.storage.batches import batch_of

COLUMNS = {"id": "long", "name": "string", "amount": "decimal(8,2)", "ts": "timestamp", "j": "dynamic"}
ROWS = [
    {"id": 1, "name": "one, two", "amount": Decimal("1.50"), "ts": 1_700_000_000_123_456_789, "j": '{"a": [1, 2]}'},
    {"id": 2, "name": None, "amount": None, "ts": None, "j": None},
]
MANIFEST = """\
[project]
name = "shop"

[[pipeline]]
id = "orders"
source = { connector = "files", config = { path = "data/*.ndjson" } }
tables = ["orders"]                # no file matches: there is nothing to land
"""


def landed_project(root: Path) -> Path:
    """Table `orders` with two rows, at the sequence 3; its source has nothing new."""
    (root / "data").mkdir(parents=True)
    (root / "headwater.toml").write_text(MANIFEST)
    with workspace(root) as opened:
        _land(opened.store(), schema_of(COLUMNS))
    return root


def refuse_a_change(root: Path) -> None:
    """Somebody wants `id` to be a text."""
    with workspace(root) as opened:
        evolution = evolve(schema_of(COLUMNS), Shown({}), declared={"id": DeclaredColumn(STRING)}, primary_key=())
        refuse_change(opened.store(), "orders", evolution, mode="append", actor="operator:ada")


def _land(store: Store, schema: TableSchema) -> None:
    run_id, unit_id = RunId(uuid7()), uuid7()
    directory = attempt_directory("orders", run_id=run_id, node="node", unit_id=unit_id, attempt=1)
    writer = PartWriter(
        store.root, directory, schema=schema, partition=0, task_attempt=0, run_id=run_id, ingested_at_us=1
    )
    with writer:
        writer.write(batch_of(ROWS, COLUMNS))
    body = schema.as_json()
    started = r.RunStarted(
        run_id=run_id, pipeline="orders", freshness_us=1, trigger="apply", connector="files@1", definition="sha256:0"
    )
    unit = r.UnitSpec(unit_id=unit_id, table="orders", ordinal=0, payload={})
    _commit(store, started, r.UnitsPlanned(run_id=run_id, pipeline="orders", units=(unit,)))
    _commit(
        store,
        r.TableCreated(table="orders", pipeline="orders", mode="append"),
        r.SchemaSet(table="orders", schema_id=1, schema=body, events=(r.SchemaEvent(kind="created", after=body),)),
    )
    added = r.FilesAdded(table="orders", schema_id=1, run_id=run_id, files=writer.close())
    _commit(store, added, r.UnitDone(unit_id=unit_id, rows=len(ROWS)), r.RunSettled(run_id=run_id))


def _commit(store: Store, *changes: r.Change) -> None:
    store.commit(r.Commit(changes=changes, actor="operator:ada"))
