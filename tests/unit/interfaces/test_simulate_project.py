"""`headwater simulate` without a file: the project's own graph, its demand, and the durations that its runs had."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from unit.interfaces.played import played

MANIFEST = """\
[project]
name = "shop"

[[pipeline]]
id = "orders"
source = { connector = "files", config = { path = "data/orders/*.ndjson" } }
tables = ["orders"]
poll = "1ms"

[[pipeline]]
id = "totals"
sources = ["orders"]
[[pipeline.ripples]]
name = "by_day"
sql = "select count(*) as n from orders"
[[pipeline.ripples]]
name = "all_days"
sql = "select sum(n) as n from by_day"
"""
TIDE = '[[pipeline.triggers]]\nkind = "tide"\nmax_staleness = "10m"\n'
CRON = '[[pipeline.triggers]]\nkind = "cron"\nat = "*/15 * * * *"\n'


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "data" / "orders").mkdir(parents=True)
    (tmp_path / "headwater.toml").write_text(MANIFEST)
    return tmp_path


def answer(say: Any, root: Path, *arguments: str) -> dict[str, Any]:
    said = say("--project", root, "simulate", *arguments, "--json")
    assert said.code == 0, said.err
    found: dict[str, Any] = json.loads(said.out)
    return found


def test_an_execution_takes_as_long_as_the_last_ones_did(shop: Path, say: Any) -> None:
    with played(shop) as engine:
        for seconds in (3.0, 5.0, 100.0):
            engine.pulse("totals")
            assert engine.work(seconds={"orders": seconds, "totals": 2.0})[0] == "orders"
    found = answer(say, shop, "--pulse", "totals")
    assert found["pipelines"]["orders"]["completions"] == [5.0]
    assert found["pipelines"]["totals"]["completions"] == [9.0]


def test_the_start_of_spark_is_no_part_of_how_long_an_execution_takes(shop: Path, say: Any) -> None:
    from dataclasses import replace

    with played(shop) as engine:
        engine.pulse("totals")
        engine.work(seconds={"orders": 9.0, "totals": 2.0}, ends=lambda end: replace(end, spark_start_us=1_500_000))
        assert answer(say, shop, "--pulse", "totals")["pipelines"]["orders"]["completions"] == [7.5]
        engine.pulse("totals")
        engine.work(seconds={"orders": 3.0, "totals": 2.0})
    found = answer(say, shop, "--pulse", "totals")["pipelines"]
    assert found["orders"]["completions"] == [3.0], "one that found Spark running says more than one that started it"


def test_what_was_never_measured_takes_a_second_and_is_named(shop: Path, say: Any) -> None:
    said = say("--project", shop, "simulate", "--tap", "totals")
    assert said.err == "never measured, assumed to take 1 s: orders, totals.by_day, totals.all_days\n"
    assert answer(say, shop, "--pulse", "totals")["pipelines"]["totals"]["completions"] == [3.0]


def test_whole_runs_tell_when_their_jobs_are_forgotten(shop: Path, say: Any) -> None:
    from sqlalchemy import delete, update

    from headwater.catalog import sql_tables as t

    with played(shop) as engine:
        engine.pulse("totals")
        engine.work()
        with engine.workspace.store().catalog.transaction() as connection:
            connection.execute(delete(t.job))
            connection.execute(update(t.pond_run).values(started_us=t.pond_run.c.ended_us - 8_000_000))
    found = answer(say, shop, "--pulse", "totals")
    assert found["pipelines"]["totals"]["completions"] == [16.0], "8 s of the source, then twice 4 s"


def test_the_triggers_of_the_manifest_and_of_users_stand(shop: Path, say: Any) -> None:
    (shop / "headwater.toml").write_text(MANIFEST + TIDE)
    said = say("--project", shop, "wave", "orders", "--for", "10m")
    assert said.code == 0
    found = answer(say, shop, "--until", "30m")
    assert found["pipelines"]["totals"]["runs"] == 3
    asked = {entry["kind"] for entry in found["timeline"] if entry["event"] == "demand"}
    assert asked == {"tide", "wave"}
    ran = found["pipelines"]["orders"]["completions"]
    assert len([at for at in ran if at < 600]) > 100 > len([at for at in ran if at > 610]), "the wave has expired"


def test_demand_that_is_tried_comes_on_top_or_alone(shop: Path, say: Any) -> None:
    (shop / "headwater.toml").write_text(MANIFEST + TIDE)
    both = answer(say, shop, "--tide", "totals=1m", "--until", "10m")
    assert both["pipelines"]["totals"]["runs"] == 10
    alone = answer(say, shop, "--alone", "--pulse", "orders", "--until", "10m")
    assert (alone["pipelines"]["orders"]["runs"], alone["pipelines"]["totals"]["runs"]) == (1, 0)


def test_a_ripple_whose_own_sources_have_not_moved_passes(shop: Path, say: Any) -> None:
    quiet = """
[[pipeline]]
id = "rates"
source = { connector = "files", config = { path = "data/rates/*.csv" } }
poll = "1h"
[[pipeline.tables]]
name = "rates"
columns = { rate = "real" }

[[pipeline]]
id = "both"
sources = ["orders", { pipeline = "rates", required = false }]
[[pipeline.ripples]]
name = "from_orders"
sql = "select count(*) as n from orders"
[[pipeline.ripples]]
name = "from_rates"
sql = "select max(rate) as rate from rates"
"""
    (shop / "headwater.toml").write_text(MANIFEST.replace('"1ms"', '"1m"') + quiet)
    ripples = answer(say, shop, "--wave", "both", "--until", "10m")["pipelines"]["both"]["ripples"]
    assert ripples["from_orders"]["starts"] == 10
    assert ripples["from_rates"]["starts"] <= 2, "once before the rates were there, once with them"


def test_cron_is_a_pulse_at_each_tick(shop: Path, say: Any) -> None:
    (shop / "headwater.toml").write_text(MANIFEST + CRON)
    found = answer(say, shop, "--until", "1h")
    demanded = [entry["at"] for entry in found["timeline"] if entry["event"] == "demand"]
    assert len(demanded) == 4
    assert [round(later - at, 3) for at, later in pairwise(demanded)] == [900.0] * 3


def test_a_source_is_read_in_its_windows_only(shop: Path, say: Any, tmp_path: Path) -> None:
    window = '[[pipeline.windows]]\nstart = "00:00"\nevery = "10m"\nduration = "1m"\n'
    head, tail = MANIFEST.split('\n[[pipeline]]\nid = "totals"')
    (shop / "headwater.toml").write_text(f'{head}{window}[[pipeline]]\nid = "totals"{tail}')
    found = answer(say, shop, "--wave", "totals", "--until", "1h", "--svg", str(tmp_path / "picture.svg"))
    starts = [entry["at"] for entry in found["timeline"] if entry["event"] == "run_started"]
    runs = found["pipelines"]["orders"]["runs"]
    assert runs in (6, 7), "one in each window; a seventh if one is open now"
    assert 'x="-' not in (tmp_path / "picture.svg").read_text()
    assert starts == sorted(starts)


def test_without_demand_nothing_runs_and_it_says_so(shop: Path, say: Any) -> None:
    said = say("--project", shop, "simulate")
    assert said.code == 0
    assert "no demand is set" in said.err
    assert [line.split()[2] for line in said.out.splitlines()[2:]] == ["0", "0"]


def test_simulating_writes_nothing(project: Path, say: Any) -> None:
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    assert answer(say, project, "--wave", "orders", "--until", "1m")["pipelines"]["orders"]["runs"] > 1
    assert {path: path.read_bytes() for path in project.rglob("*") if path.is_file()} == before


def test_a_project_without_a_store_gets_none(shop: Path, say: Any) -> None:
    answer(say, shop, "--pulse", "totals")
    assert not (shop / ".headwater").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (["--tide", "totals"], 2, "HW-U01"),
        (["--tide", "totals=soon"], 2, "HW-U01"),
        (["--tide", "totals=0s"], 2, "HW-U01"),
        (["--wave", "totals=5m"], 2, "HW-U01"),
        (["--until", "later"], 2, "HW-U01"),
        (["--pulse", "totels"], 3, "HW-M11"),
        (["scenario.json", "--until", "5m"], 2, "HW-U01"),
        (["scenario.json", "--pulse", "totals"], 2, "HW-U01"),
    ],
)
def test_what_cannot_be_tried_is_refused(arguments: list[str], code: int, error: str, shop: Path, say: Any) -> None:
    said = say("--project", shop, "simulate", *arguments)
    assert (said.code, said.err.partition("]")[0]) == (code, f"error[{error}")
