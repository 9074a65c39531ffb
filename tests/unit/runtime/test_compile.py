"""From manifests to ponds, triggers and ripples, from the case files; and what makes a ripple due.

Beside the files of a case there are two Inlets: `orders` with the tables `orders` and `refunds`, and `currency` with
`rates`, which declares its columns.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headwater.base.errors import HeadwaterError
from headwater.freshness.graph import check_graph
from headwater.manifest.load import load_project
from headwater.runtime.compile import Compiled, CompiledPipeline, compile_pipelines

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios" / "compile"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOW = "2026-01-01T00:00:00+00:00"
INLETS = {
    "pipelines/orders.toml": [
        'id = "orders"',
        'source = { connector = "files", config = { path = "data/*.ndjson" } }',
        'tables = ["orders", "refunds"]',
    ],
    "pipelines/currency.toml": [
        'id = "currency"',
        'source = { connector = "files", config = { path = "rates.csv" } }',
        'tables = [{ name = "rates", columns = { id = "long", rate = "real" } }]',
        'poll = "10s"',
    ],
}


def cases(*names: str) -> list[Any]:
    return [case for name in names for case in json.loads((SCENARIOS / f"{name}.json").read_text(encoding="utf-8"))]


def ids(found: list[Any]) -> list[str]:
    return [case["claim"].replace(" ", "_") for case in found]


def compiled(root: Path, files: dict[str, list[str]], now: str = NOW) -> Compiled:
    for file, lines in {**INLETS, **files}.items():
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    project = load_project(root, connectors={"files"}, environ={})
    return compile_pipelines(project, now_us=in_us(now))


def in_us(text: str) -> int:
    return (datetime.fromisoformat(text) - EPOCH) // timedelta(microseconds=1)


def shown(pipeline: CompiledPipeline, now: str) -> dict[str, Any]:
    """A compiled pipeline as the case files write one."""
    pond = pipeline.pond
    window = pond.windows.current(in_us(now)) if pond.windows is not None else None
    return {
        "required": [*pond.required],
        "optional": [*pond.optional],
        "after": {ripple.name: [*ripple.after] for ripple in pond.ripples},
        "reads": {ripple.name: [*(ripple.reads or ())] for ripple in pond.ripples},
        "min_interval": pond.min_interval,
        "retry": [pond.retry_immediately, pond.retry_on_change],
        "always_run": pond.always_run,
        "window": window and [(EPOCH + timedelta(microseconds=time)).isoformat() for time in window],
        "triggers": [[t.id, t.kind, t.limit, t.owner] for t in pipeline.triggers],
        "crons": [[c.id, c.pipeline, c.at, c.timezone] for c in pipeline.crons],
        "models": {r.name: [r.kind, r.mode, {i.table: i.source for i in r.inputs}] for r in pipeline.ripples},
        "timeouts": {r.name: r.timeout_seconds for r in pipeline.ripples},
    }


WELL = cases("dependencies", "time")
WRONG = cases("errors")


@pytest.mark.parametrize("case", WELL, ids=ids(WELL))
def test_a_manifest_compiles_to_this(case: dict[str, Any], tmp_path: Path) -> None:
    now = case.get("now", NOW)
    found = compiled(tmp_path, case["files"], now)
    check_graph({pond.name: pond for pond in found.ponds})
    for name, expected in case["pipelines"].items():
        whole = shown(found.pipelines[name], now)
        assert {key: whole[key] for key in expected} == expected
    assert [*found.files] == case.get("read", [file for file in case["files"] if file.startswith("models/")])


@pytest.mark.parametrize("case", WRONG, ids=ids(WRONG))
def test_a_wrong_model_is_refused_in_these_words(case: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(HeadwaterError) as caught:
        compiled(tmp_path, case["files"])
    assert caught.value.render().splitlines() == case["errors"]


def model(*ripple: str) -> list[str]:
    return [
        "[[pipeline]]",
        'id = "daily"',
        'sources = ["orders"]',
        "[[pipeline.ripples]]",
        'name = "revenue"',
        *ripple,
    ]


def revenue_of(root: Path, files: dict[str, list[str]]) -> str:
    (ripple,) = compiled(root, files).pipelines["daily"].pond.ripples
    return ripple.fingerprint


SQL = 'sql = "select id, amount from orders"'
PYTHON = 'python = "models/revenue.py:revenue"'
FILE = "models/revenue.py"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([SQL, 'mode = "append"'], ['mode = "append" # for good', SQL]),
        ([SQL], ['sql = "\\n  select id, amount from orders\\n"']),
        ([SQL], [SQL, 'mode = "replace"', "primary_key = []"]),
        (
            [SQL, 'columns = { id = "long", a = "decimal(10,2)" }'],
            [SQL, 'columns = { a = "decimal(10, 2)", id = "long" }'],
        ),
        ([SQL, 'columns = { id = "long" }'], [SQL, 'columns = { id = { type = "long", nullable = true } }']),
        ([SQL], [SQL, 'agent_description = "money"', "compaction = { trigger_run_count = 3 }"]),
    ],
)
def test_what_a_ripple_does_is_the_same_however_it_is_written(
    before: list[str], after: list[str], tmp_path: Path
) -> None:
    assert revenue_of(tmp_path, {"headwater.toml": model(*before)}) == revenue_of(
        tmp_path, {"headwater.toml": model(*after)}
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([SQL], ['sql = "select id, 2 * amount as amount from orders"']),
        ([SQL], [SQL, 'mode = "append"']),
        ([SQL], [SQL, 'primary_key = ["id"]']),
        ([SQL], [SQL, 'columns = { id = "long" }']),
        ([SQL, 'columns = { id = "long" }'], [SQL, 'columns = { id = "string" }']),
        ([SQL], [SQL, 'materialize = "view"']),
        ([SQL], [PYTHON]),
        ([PYTHON], ['python = "models/revenue.py:other"']),
    ],
)
def test_a_ripple_that_does_something_else_has_another_fingerprint(
    before: list[str], after: list[str], tmp_path: Path
) -> None:
    python = {FILE: ["def revenue(orders): ...", "def other(orders): ..."]}
    assert revenue_of(tmp_path, {"headwater.toml": model(*before), **python}) != revenue_of(
        tmp_path, {"headwater.toml": model(*after), **python}
    )


def test_a_changed_file_changes_the_fingerprint_and_other_line_ends_do_not(tmp_path: Path) -> None:
    manifest = {"headwater.toml": model('sql = "models/revenue.sql"')}
    first = revenue_of(tmp_path, {**manifest, "models/revenue.sql": ["select *", "from orders"]})
    inline = revenue_of(tmp_path, {"headwater.toml": model('sql = """', "select *", 'from orders"""')})
    windows = revenue_of(tmp_path, {**manifest, "models/revenue.sql": ["\ufeffselect *\r", "from orders\r"]})
    changed = revenue_of(tmp_path, {**manifest, "models/revenue.sql": ["select id", "from orders"]})
    assert first == inline == windows != changed

    manifest = {"headwater.toml": model(PYTHON)}
    first = revenue_of(tmp_path, {**manifest, FILE: ["RATE = 1", "def revenue(orders): return orders"]})
    assert first != revenue_of(tmp_path, {**manifest, FILE: ["RATE = 2", "def revenue(orders): return orders"]})


def inlet_fingerprints(root: Path, *lines: str) -> dict[str, str]:
    files = {"headwater.toml": [], "pipelines/orders.toml": [*INLETS["pipelines/orders.toml"][:2], *lines]}
    return {ripple.name: ripple.fingerprint for ripple in compiled(root, files).pipelines["orders"].pond.ripples}


def test_a_changed_table_of_an_inlet_leaves_the_others_and_a_changed_time_leaves_all(tmp_path: Path) -> None:
    plain = inlet_fingerprints(tmp_path, 'tables = ["orders", "refunds"]')
    timed = inlet_fingerprints(tmp_path, 'tables = ["orders", "refunds"]', 'poll = "1m"', 'schedule = "every 1h"')
    keyed = inlet_fingerprints(tmp_path, 'tables = ["orders", { name = "refunds", primary_key = ["id"] }]')
    assert plain == timed
    assert plain["orders"] == keyed["orders"] and plain["refunds"] != keyed["refunds"]
    assert plain["orders"] != plain["refunds"]


def test_what_a_python_ripple_needs_to_be_called(tmp_path: Path) -> None:
    files = {
        "headwater.toml": model(PYTHON, 'columns = { id = "long" }', 'mode = "upsert"', 'primary_key = ["id"]'),
        FILE: ["", "def revenue(context, orders):", "    return orders"],
    }
    (ripple,) = compiled(tmp_path, files).pipelines["daily"].ripples
    assert (ripple.kind, ripple.file, str(ripple.position), ripple.function) == (
        "python",
        FILE,
        f"{FILE}:2:1",
        "revenue",
    )
    assert ripple.text == "\ndef revenue(context, orders):\n    return orders\n"
    assert [(name, str(column.type)) for name, column in ripple.columns.items()] == [("id", "long")]
    assert (ripple.mode, ripple.primary_key) == ("upsert", ("id",))


def test_what_a_sql_ripple_needs_to_be_run(tmp_path: Path) -> None:
    (ripple,) = compiled(tmp_path, {"headwater.toml": model(SQL)}).pipelines["daily"].ripples
    assert (ripple.text, ripple.file) == ("select id, amount from orders", "headwater.toml")
    assert (str(ripple.position), ripple.is_inline) == ("headwater.toml:6:8", True)
    assert ripple.function is None
    files = {"headwater.toml": model('sql = "models/revenue.sql"'), "models/revenue.sql": ["select * from orders"]}
    (ripple,) = compiled(tmp_path, files).pipelines["daily"].ripples
    assert (str(ripple.position), ripple.is_inline) == ("models/revenue.sql:1:1", False)


def test_no_user_code_is_run(tmp_path: Path) -> None:
    code = ["raise SystemExit('ran')", "def revenue(orders): ..."]
    assert revenue_of(tmp_path, {"headwater.toml": model(PYTHON), FILE: code})


def test_compiling_again_gives_equal_records(tmp_path: Path) -> None:
    files = {"headwater.toml": model(SQL)}
    assert compiled(tmp_path, files) == compiled(tmp_path, files, "2026-05-01T00:00:00+00:00")
