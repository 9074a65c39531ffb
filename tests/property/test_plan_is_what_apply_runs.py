"""What `plan` lists is what `apply` executes, but for the steps that depend on what is read. Over random projects and states."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.app.demand import ask
from headwater.runtime.plan import Plan
from property.random_project import CLOSED, Executed, Model, RandomProject, without_spark

__all__ = ["without_spark"]

PROJECTS, STATES = 8, 26
"""208 states. The fast part has a short life of one project."""

Install = Callable[[RandomProject], None]


def steps(plan: Plan, *, certain: bool = False) -> set[tuple[str, str]]:
    """The ripples that are to be executed; with `certain`, those that do not depend on what is read."""
    return {
        (pipeline.pipeline, table.table)
        for pipeline in plan.pipelines
        for table in pipeline.tables
        if table.runs and not (certain and table.depends_on_read)
    }


def landing(plan: Plan) -> set[str]:
    return {each.pipeline for each in plan.pipelines if each.action in ("land", "resume", "evolve")}


def lands_rows(plan: Plan, *, inlets: set[str]) -> bool:
    """Whether what these Inlets read holds rows."""
    found = [each for each in plan.pipelines if each.pipeline in inlets]
    return all(each.action != "resume" and any(table.estimated_bytes for table in each.tables) for each in found)


@pytest.mark.parametrize(
    ("seed", "states"), [(0, 8), *(pytest.param(seed, STATES, marks=pytest.mark.long) for seed in range(PROJECTS))]
)
def test_what_is_executed_is_what_was_planned(seed: int, states: int, tmp_path: Path, without_spark: Install) -> None:
    project = RandomProject(tmp_path, random.Random(seed))
    without_spark(project)
    for _ in range(3):
        project.add_model()
    for _ in range(states):
        draw = project.random
        project.change(draw.choice([0, 1, 1, 2, 3]))
        project.changes = draw.choice([True, False, None])
        project.interrupted_at = draw.choice([1, 2, 3]) if draw.random() < 0.1 else None
        names = [draw.choice(list(project.models))] if project.models and draw.random() < 0.3 else []
        plan = project.plan(names)
        check(project, plan, project.apply(names))


def check(project: RandomProject, plan: Plan, done: Executed) -> None:
    said = f"{plan}\n{done}\n{project}"
    assert done.ripples <= steps(plan), said
    if done.interrupted:
        assert done.inlets <= landing(plan), said
        return
    assert done.inlets == landing(plan), said
    if project.failing:
        missed = {pipeline for pipeline, _ in steps(plan, certain=True) - done.ripples}
        assert missed <= project.behind(project.failing), said
        return
    assert steps(plan, certain=True) <= done.ripples, said
    looks_again = any(project.inlet_retries[name] for name in project.unreachable)
    if project.changes is True and not looks_again and lands_rows(plan, inlets=done.inlets):
        assert done.ripples == steps(plan), said
    if project.changes is False and not done.inlets:
        assert done.ripples == steps(plan, certain=True), said


# --- which steps depend on what is read


@pytest.fixture
def project(tmp_path: Path, without_spark: Install) -> RandomProject:
    """Inlet `a` with rows, `first` reads it, `second` reads that; all is applied."""
    made = RandomProject(tmp_path, random.Random(0), changes=True)
    without_spark(made)
    made.models = {"first": Model(("a",)), "second": Model(("first",))}
    made.add_file("a", 1)
    made.write()
    made.apply()
    return made


def shown(plan: Plan) -> dict[str, tuple[str | None, bool]]:
    """The reason of each step, and whether it depends on what is read."""
    return {
        table.table: (table.reason, table.depends_on_read)
        for pipeline in plan.pipelines
        for table in pipeline.tables
        if table.runs
    }


def test_nothing_is_planned_and_nothing_is_asked_for_where_all_is_as_it_was(project: RandomProject) -> None:
    plan = project.plan()
    assert (shown(plan), plan.demand, plan.has_changes) == ({}, (), False)


def test_what_reads_new_rows_depends_on_them(project: RandomProject) -> None:
    project.add_file("a", 1)
    assert shown(project.plan()) == {"first_0": ("inputs changed", True), "second_0": ("inputs changed", True)}


def test_rows_that_landed_already_decide(project: RandomProject) -> None:
    project.add_file("a", 1)
    project.apply(["a"])
    assert shown(project.plan()) == {"first_0": ("inputs changed", False), "second_0": ("inputs changed", True)}


def test_a_changed_schema_decides_without_reading(project: RandomProject) -> None:
    project.columns["a"] += 1
    project.write()
    assert shown(project.plan()) == {"first_0": ("inputs changed", False), "second_0": ("inputs changed", True)}


def test_a_changed_definition_is_certain_and_its_readers_depend_on_its_result(project: RandomProject) -> None:
    project.models["first"].text += 1
    project.write()
    assert shown(project.plan()) == {"first_0": ("definition changed", False), "second_0": ("inputs changed", True)}


def test_a_new_model_is_certain_and_so_is_one_that_always_runs(project: RandomProject) -> None:
    project.models["second"].always_run = True
    project.models["third"] = Model(("second",))
    project.write()
    assert shown(project.plan()) == {"second_0": ("always_run", False), "third_0": ("new", False)}


def test_an_interrupted_execution_is_certain(project: RandomProject) -> None:
    project.models["first"].text += 1
    project.write()
    project.interrupted_at = 1
    assert project.apply().interrupted
    project.interrupted_at = None
    assert shown(project.plan()) == {"first_0": ("under way", False), "second_0": ("inputs changed", True)}


def test_what_is_behind_a_source_that_cannot_be_read_is_not_planned(project: RandomProject) -> None:
    project.models["first"].text += 1
    project.unreachable = {"a"}
    project.write()
    plan = project.plan()
    assert ([each.action for each in plan.pipelines if each.pipeline == "a"], shown(plan)) == (["fail"], {})
    assert not project.apply().ripples


def test_a_closed_window_is_waited_for(project: RandomProject) -> None:
    project.add_file("a", 1)
    project.windows["a"] = CLOSED
    project.write()
    plan = project.plan()
    (inlet,) = [each for each in plan.pipelines if each.pipeline == "a"]
    assert (inlet.action, inlet.waits_until is not None, shown(plan)) == ("wait", True, {})
    done = project.apply()
    assert (done.inlets, done.ripples, done.states["a"]) == (set(), set(), "waiting")


def test_what_failed_and_what_reads_an_optional_source_is_asked_for_after_what_it_reads(project: RandomProject) -> None:
    project.models["first"].text += 1
    project.models["beside"] = Model(("b",), optional=("second",))
    project.write()
    assert project.plan().demand == (("a", "b", "c", "first", "second"), ("beside",))
    project.failing = {"first"}
    project.apply()
    assert project.plan().demand == (("a", "b", "c"), ("first", "second"), ("beside",))


def test_demand_that_waits_is_part_of_the_plan_of_other_pipelines(project: RandomProject) -> None:
    project.models["other"] = Model(("b",))
    project.add_file("a", 1)
    project.add_file("b", 1)
    project.write()
    with project.opened() as opened:
        ask(opened, "other", "pulse")
    plan = project.plan(["first"])
    assert (landing(plan), shown(plan)) == (
        {"a", "b"},
        {"first_0": ("inputs changed", True), "other_0": ("new", False)},
    )
    done = project.apply(["first"])
    assert (done.inlets, done.ripples) == ({"a", "b"}, {("first", "first_0"), ("other", "other_0")})
