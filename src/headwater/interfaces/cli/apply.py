"""plan, apply, run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.base.errors import Exit
from headwater.interfaces.cli.output import (
    JsonOption,
    PipelinesArgument,
    answer,
    bad_rows_text,
    color,
    count_text,
    opened_project,
    say,
    seconds_text,
    show,
    show_dropped,
    show_error,
    show_warning,
    size_text,
)

if TYPE_CHECKING:
    from headwater.app.drop_folder import News

WaitOption = Annotated[
    bool, typer.Option("--wait", help="Wait until closed windows of sources have opened and all runs have ended.")
]


def register(app: typer.Typer) -> None:
    app.command()(plan)
    app.command()(apply)
    app.command()(run)


def plan(
    context: typer.Context,
    pipelines: PipelinesArgument = None,
    json_: JsonOption = False,
    detailed_exitcode: Annotated[
        bool, typer.Option("--detailed-exitcode", help="Exit 10 if there is something to do.")
    ] = False,
) -> int:
    """Show what apply would do, and why. Writes nothing."""
    from headwater.app import apply as app_apply

    with opened_project(context) as opened:
        found = app_apply.plan(opened, pipelines or [])
    if json_:
        answer(found.as_json())
    else:
        for pipeline in found.pipelines:
            _show_plan(pipeline)
        show(_plan_summary(found))
    return Exit.CHANGES if detailed_exitcode and found.has_changes else Exit.DONE


def apply(
    context: typer.Context,
    pipelines: PipelinesArgument = None,
    json_: JsonOption = False,
    plan_file: Annotated[
        Path | None, typer.Option("--plan", metavar="FILE", help="Apply only if this is still the plan.")
    ] = None,
    wait: WaitOption = False,
) -> int:
    """Bring the store up to the sources: read what is new, land it once."""
    return _apply(context, pipelines or [], json_=json_, plan_file=plan_file, trigger="apply", wait=wait)


def run(
    context: typer.Context,
    pipeline: Annotated[str, typer.Argument(metavar="PIPELINE")],
    json_: JsonOption = False,
    wait: WaitOption = False,
) -> int:
    """Run one pipeline; the exit code says how it ended."""
    return _apply(context, [pipeline], json_=json_, plan_file=None, trigger="run", wait=wait)


def _apply(
    context: typer.Context, pipelines: list[str], *, json_: bool, plan_file: Path | None, trigger: str, wait: bool
) -> int:
    from headwater.app import apply as app_apply
    from headwater.interfaces.cli.progress import progress

    failed: list[News] = []

    def on_dropped(news: News) -> None:
        if not show_dropped(news):
            failed.append(news)

    with opened_project(context) as opened, progress() as shown:
        result = app_apply.apply(
            opened,
            pipelines,
            plan_file=plan_file,
            trigger=trigger,
            wait=wait,
            on_event=shown.on_event,
            on_dropped=on_dropped,
        )
    exit_code = result.exit_code or (Exit.PARTLY if failed else Exit.DONE)
    if result.views_error is not None:
        show_warning("the views on disk are old", result.views_error)
    if json_:
        warnings = [result.views_error.as_json()] if result.views_error is not None else []
        landed = [p.as_json() for p in result.pipelines]
        answer({"pipelines": landed, "changed": result.changed, "warnings": warnings})
        return exit_code
    for p in result.pipelines:
        _show_result(p)
    if all(p.state == "unchanged" and p.seconds is None for p in result.pipelines):
        say("nothing to do: every source is as it was landed")
    return exit_code


def _show_result(result: Any) -> None:
    if result.state == "waiting":
        show(f"{result.pipeline}: {_waits_text(result)}")
        return
    for name in result.evolved:
        show(f"{result.pipeline}: the schema of {name} changed")
    if result.state == "unchanged" and result.seconds is not None:
        show(f"{result.pipeline}: ran in {seconds_text(result.seconds)}, same result")
        return
    if result.state == "unchanged" or (result.evolved and result.run_id is None and result.error is None):
        return
    rows, size = count_text(result.rows, "row"), size_text(result.bytes)
    mark = {"success": color("landed", "green"), "failed": color("failed", "red")}.get(result.state, result.state)
    show(f"{result.pipeline}: {mark}, {rows}, {size}, {count_text(result.slices, 'slice')}")
    for name, count in result.bad_rows.items():
        show(f"{result.pipeline}: {bad_rows_text(name, count)}")
    for note in result.notes:
        show(f"{result.pipeline}: {note}")
    if result.error is not None:
        show_error(result.error, as_json=False)


def _waits_text(waiting: Any) -> str:
    until = f"it opens at {waiting.waits_until}" if waiting.waits_until else "none will open any more"
    return f"waits for a window of its source: {until}"


def _show_plan(plan: Any) -> None:
    words = {
        "land": color("land", "green"),
        "resume": color("resume", "yellow"),
        "evolve": color("change the schema", "green"),
        "run": color("run", "green"),
        "refuse": color("needs a decision", "red"),
        "fail": color("its source cannot be read", "red"),
        "wait": _waits_text(plan),
        "nothing": "nothing to do",
    }
    new = " (new)" if plan.is_new and plan.action in ("land", "run") else ""
    show(f"{plan.pipeline}{new}: {words[plan.action]}")
    if plan.resumes_run is not None:
        done = f"{plan.units_done} done, {plan.units_pending} to go"
        show(f"  continues run {plan.resumes_run}: {done}")
    if plan.error is not None:
        show(f"  {plan.error['message']}")
        if plan.error["hint"]:
            show(f"  hint: {plan.error['hint']}")
    for table in plan.tables:
        _show_table_plan(table)


def _show_table_plan(table: Any) -> None:
    if table.runs:
        why = "depends on what is read" if table.depends_on_read else table.reason
        show(f"  {table.table} ({table.mode}): {why}")
    if table.slices:
        rows = f"about {count_text(table.estimated_rows, 'row')}, " if table.estimated_rows is not None else ""
        size = size_text(table.estimated_bytes)
        show(f"  {table.table} ({table.mode}): {count_text(table.slices, 'slice')}, {rows}{size}")
        for line in table.shown_slices:
            show(f"    {line}")
        if table.slices > len(table.shown_slices):
            show(f"    and {table.slices - len(table.shown_slices)} more")
        if table.excluded:
            show(f"    leave out {', '.join(table.excluded)}")
    for change in table.schema_changes:
        sure = "" if change.sure else " (guessed from a sample)"
        show(f"    {change.kind.replace('_', ' ')} {_change_text(change)}{sure}")
    for change in table.refused:
        show(f"    {color('refused', 'red')}: {change.note}")
    if table.refused:
        show(f"    hint: `headwater schema accept {table.table}` accepts it")
    for warning in table.warnings:
        show(f"    {color('warning', 'yellow')}: {warning}")


def _change_text(change: Any) -> str:
    match change.kind:
        case "rename_column":
            return f"{change.before} to {change.after}"
        case "add_column":
            return f"{change.column} {change.after}"
        case "widen_type":
            return f"{change.column} from {change.before} to {change.after}"
        case _:
            return str(change.column)


def _plan_summary(plan: Any) -> str:
    by_action: dict[str, int] = {}
    for p in plan.pipelines:
        by_action[p.action] = by_action.get(p.action, 0) + 1
    words = {
        "land": "to land",
        "resume": "to resume",
        "evolve": "to evolve",
        "run": "to run",
        "refuse": "to decide about",
        "fail": "with a source that cannot be read",
        "wait": "to wait for",
    }
    parts = [f"{count} {words[action]}" for action, count in by_action.items() if action != "nothing"]
    done = by_action.get("nothing", 0)
    return f"{', '.join(parts) or 'nothing to do'}; {done} up to date; plan {plan.hash[:19]}"
