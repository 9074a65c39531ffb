"""`logs`, `runs` and `why`: which run is meant, and what is said of it. No JVM."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import insert, select, update

from headwater.app.workspace import workspace
from headwater.base.errors import HeadwaterError, Position
from headwater.catalog import sql_tables as t
from headwater.catalog.engine_records import JobEnd, JobOutput
from headwater.catalog.history import forget_outputs
from unit.interfaces.played import played

BROKEN = HeadwaterError(
    "HW-R01", "`orders` failed: `make` raised KeyError", hint="see it", places=(Position("models/weather.py", 7),)
)


def keep_runs(root: Path, *run_ids: str, pond: str = "orders", state: str = "success") -> None:
    with workspace(root) as opened, opened.store().catalog.transaction() as connection:
        for run_id in run_ids:
            run = {"run_id": run_id, "pond": pond, "freshness_us": 1, "cause": "apply", "actor": "operator:ada"}
            ended = {"state": state, "started_us": 1, "ended_us": 2, "rows": 0, "bytes": 0}
            connection.execute(insert(t.pond_run), run | ended)


def test_logs_of_a_pipeline_are_those_of_its_newest_run(project: Path, say: Any) -> None:
    newest, other = "01998a60-0000-7000-8000-0000000000a1", "01998a60-0000-7000-8000-0000000000b2"
    keep_runs(project, "01998a5f-0000-7000-8000-0000000000c3", newest)
    keep_runs(project, other, pond="gone")
    assert say("--project", project, "logs", "orders", "--json").json()["run"]["run_id"] == newest
    assert say("--project", project, "logs", "gone", "--json").json()["run"]["run_id"] == other


def test_a_pipeline_that_never_ran_has_no_logs(project: Path, say: Any) -> None:
    keep_runs(project, "01998a60-0000-7000-8000-00000000cafe", pond="other")
    said = say("--project", project, "logs", "orders")
    assert said.code == 3 and "no run of `orders` is kept" in said.err


def test_a_run_is_named_by_its_end_its_beginning_or_its_id(project: Path, say: Any) -> None:
    first, second = "01998a60-0000-7000-8000-0000000000a1", "01998a60-0000-7000-8000-0000000000b2"
    keep_runs(project, first, second)
    listed = [run["short_id"] for run in say("--project", project, "runs", "--json").json()["runs"]]
    assert listed == ["000000b2", "000000a1"]
    assert "000000b2" in say("--project", project, "runs").out and second not in say("--project", project, "runs").out
    for name in (first, first[-8:], "A1", first[-20:], first.upper()):
        assert say("--project", project, "logs", name, "--json").json()["run"]["run_id"] == first
    (older,) = say("--project", project, "runs", "--before", "b2", "--json").json()["runs"]
    assert older["run_id"] == first


def test_the_short_id_of_a_run_is_one_that_no_other_run_ends_with(project: Path, say: Any) -> None:
    twins = ["01998a60-0000-7000-8000-000100000001", "01998a60-0000-7000-8000-000200000001"]
    keep_runs(project, *twins)
    (newest,) = say("--project", project, "runs", "--limit", "1", "--json").json()["runs"]
    assert newest["short_id"] == "200000001"
    assert say("--project", project, "logs", "200000001", "--json").json()["run"]["run_id"] == twins[1]


def test_a_part_of_an_id_that_several_runs_have_is_answered_with_those_runs(project: Path, say: Any) -> None:
    keep_runs(project, "01998a60-0000-7000-8000-0000000000a1", state="failed")
    keep_runs(project, "01998a60-0000-7000-8000-0000000000b2", pond="totals")
    said = say("--project", project, "logs", "0199", "--json")
    assert said.code == 3
    assert [(run["short_id"], run["pipeline"], run["state"]) for run in said.json()["error"]["detail"]["runs"]] == [
        ("000000b2", "totals", "success"),
        ("000000a1", "orders", "failed"),
    ]
    assert "2 runs have an id that begins or ends with `0199`" in said.err
    assert "\n  000000a1  orders  1970-01-01T00:00:00" in said.err
    for nothing in ("ffff", "%", "no-such"):
        assert "no run has the id" in say("--project", project, "logs", nothing).err


def test_logs_and_why_say_in_which_file_and_line_it_failed(project: Path, say: Any) -> None:
    with played(project) as engine:
        engine.pulse("orders")
        engine.work(fails={"orders": BROKEN})
    for command in ("logs", "why"):
        said = say("--project", project, command, "orders").out
        assert "models/weather.py:7\n" in said, said
        assert "`make` raised KeyError" in said and "hint: see it" in said


def test_logs_show_what_a_model_wrote_and_raised_without_a_rerun(project: Path, say: Any) -> None:
    said = JobOutput(
        output="read 3 rows\nof \x00 them", exception="KeyError: 'b'", traceback="models/weather.py:7 in make\n  x['b']"
    )
    with played(project) as engine:
        engine.pulse("orders")
        engine.work(fails={"orders": BROKEN}, ends=lambda end: replace(end, output=said))
    shown = say("--project", project, "logs", "orders").out
    assert "output of :\n  read 3 rows\n  of \\x00 them\n" in shown
    assert "raised:\n  models/weather.py:7 in make\n    x['b']\n  KeyError: 'b'\n" in shown
    (kept,) = say("--project", project, "logs", "orders", "--json").json()["output"]
    assert (kept["exception"], kept["output"]) == ("KeyError: 'b'", "read 3 rows\nof \\x00 them")
    assert "KeyError: 'b'" not in say("--project", project, "why", "orders", "--json").out


def test_what_models_said_is_kept_for_the_newest_executions_of_each_pipeline(project: Path) -> None:
    with workspace(project) as opened, opened.store().catalog.transaction() as connection:
        for number, pond in enumerate(["a", "a", "a", "b"]):
            run = {"run_id": f"r{number}", "pond": pond, "freshness_us": 1, "cause": "", "actor": "", "state": "failed"}
            connection.execute(insert(t.pond_run), run | {"started_us": 1, "rows": 0, "bytes": 0})
            job = {"job_id": f"j{number}", "run_id": f"r{number}", "pond": pond, "ripple": pond, "output": "x"}
            connection.execute(insert(t.job_output), job | {"exception": "", "traceback": ""})
        gone = {"job_id": "j9", "run_id": "r9", "pond": "c", "ripple": "c", "output": "x"}
        connection.execute(insert(t.job_output), gone | {"exception": "", "traceback": ""})
        assert forget_outputs(connection, kept=2) == 2
        assert connection.execute(select(t.job_output.c.job_id)).scalars().all() == ["j1", "j2", "j3"]


def test_the_time_of_a_run_is_without_the_start_of_spark(project: Path, say: Any) -> None:
    def waited(end: JobEnd) -> JobEnd:
        return replace(end, spark_start_us=3_600_000_000)

    with played(project) as engine:
        engine.pulse("orders")
        engine.work(seconds={"orders": 3_602}, ends=waited)
    found = say("--project", project, "logs", "orders", "--json").json()
    assert found["jobs"][0]["seconds"] == 2.0
    assert found["jobs"][0]["spark_start_seconds"] == found["run"]["spark_start_seconds"] == 3_600
    assert 2.0 <= found["run"]["seconds"] < 60
    assert "(after Spark had started in 3,600 s)" in say("--project", project, "logs", "orders").out


def test_the_time_of_a_run_is_without_the_wait_for_a_worker(project: Path, say: Any) -> None:
    with played(project) as engine:
        engine.pulse("orders")
        engine.engine.advance()
        with engine.workspace.store().catalog.transaction() as connection:
            begun = t.pond_run.c.started_us - 3_600_000_000
            assert connection.execute(update(t.pond_run).values(started_us=begun)).rowcount == 1
        engine.work()
    run = say("--project", project, "logs", "orders", "--json").json()["run"]
    assert 0 <= run["seconds"] < 60
