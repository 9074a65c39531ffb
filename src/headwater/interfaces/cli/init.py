"""init, demo."""

from __future__ import annotations

import shutil
import sys
import threading
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.base.errors import HeadwaterError
from headwater.interfaces.cli import operations
from headwater.interfaces.cli.output import (
    JsonOption,
    age_text,
    answer,
    answered,
    count_text,
    say,
    show,
    show_error,
    table,
)
from headwater.interfaces.cli.serve import outcome_text, time_of_day, until_signal

if TYPE_CHECKING:
    from headwater.app.apply import ApplyResult
    from headwater.app.workspace import Workspace

DirectoryArgument = Annotated[Path, typer.Argument(metavar="DIR")]


def init(directory: DirectoryArgument = Path(), json_: JsonOption = False) -> None:
    """Write a project that applies as it is."""
    written = operations.init.init(directory)
    if answered(json_, {"written": written}):
        return
    for path in written:
        show(str(path))
    here = "" if directory == Path() else f"cd {directory} && "
    say(f"next: {here}headwater plan, then headwater apply")


def demo(
    directory: DirectoryArgument = Path("headwater-demo"),
    serve: Annotated[
        bool, typer.Option("--serve", help="Keep serving: new orders arrive, and runs are shown as they end.")
    ] = False,
    for_: Annotated[
        str | None, typer.Option("--for", metavar="DURATION", help="With --serve: how long (default: until Ctrl-C).")
    ] = None,
    json_: JsonOption = False,
) -> int:
    """Write the demo project, apply it, query it, and show why it is as fresh as it is."""
    from headwater.interfaces.cli.progress import progress

    if for_ is not None and not serve:
        raise HeadwaterError("HW-U01", "`--for` says how long to serve", hint="headwater demo --serve --for 60s")
    seconds = operations.init.duration_seconds(for_) if for_ is not None else threading.TIMEOUT_MAX
    if not operations.init.is_demo(directory):
        operations.init.write_demo(directory)
    say(f"the demo project is in {directory}/")
    with operations.workspace.workspace(directory) as opened:
        with progress() as on_event:
            result = operations.apply.apply(opened, on_event=on_event)
        for pipeline in result.pipelines:
            if pipeline.error is not None:
                raise pipeline.error
        _show(opened, directory, result, json_=json_, serves=serve)
        if serve:
            _serve(opened, directory, seconds)
    return result.exit_code


def _show(opened: Workspace, directory: Path, result: ApplyResult, *, json_: bool, serves: bool) -> None:
    """Shows what has landed, the answer to a query, the status, and one `why`."""
    with operations.query.reader(opened) as session:
        found = operations.query.run_query(session, operations.init.DEMO_QUESTION)
        columns, rows = list(found.columns), list(found.rows())
    status = operations.status.status(opened)
    why = operations.why_runs_logs.why(opened, operations.init.DEMO_PIPELINE)
    if json_:
        pipelines = [p.as_json() for p in result.pipelines]
        answer({"directory": directory, "pipelines": pipelines, "rows": rows, "status": status, "why": why})
        return
    landed = sum(p.rows for p in result.pipelines)
    say(f"landed {landed:,} rows" if result.changed else "nothing new to land")
    show(f"\n{operations.init.DEMO_QUESTION}\n")
    show(table(columns, rows))
    show("")
    states = [
        [p.pipeline, p.state, age_text(p.staleness_seconds), ", ".join(p.triggers) or None, len(p.tables)]
        for p in status
    ]
    show(table(("pipeline", "state", "staleness", "standing demand", "tables"), states))
    show(f"\nwhy {why.pipeline}: {why.sentence}\n")
    if serves:
        return
    program = f"{_program()} --project {directory}"
    show("Try next:")
    show(f"  {_program()} demo {directory} --serve")
    show(f"  {program} simulate --until 2m")
    show(f'  {program} query "FROM goods ORDER BY sold DESC"')
    show(f"  {program} plan")


def _serve(opened: Workspace, directory: Path, seconds: float) -> None:
    """New orders arrive, and the demand in the manifest is met."""
    runs: Counter[str] = Counter()

    def tell(pipeline: str, outcome: str) -> None:
        runs[pipeline] += 1
        say(f"{time_of_day()}  {pipeline:9}  {outcome}")

    ingestor = operations.ingest.Ingestor()
    served = operations.serve.open_service(
        opened,
        ingestor,
        tell=show_error,
        on_run=lambda run: tell(run.pond, f"{outcome_text(run)}, asked by {run.cause}"),
        on_pass=lambda pipeline: tell(pipeline, "nothing new"),
    )
    say("")
    say("new orders arrive; `sales` has a Wave on it, `goods` a Tide of 20 s. Ctrl-C ends it. In another terminal:")
    say(f"  {_program()} --project {directory} why {operations.init.DEMO_PIPELINE}")
    say("")
    with (
        closing(ingestor),
        until_signal(served.stop),
        operations.demo_orders.Arrivals(directory / "data" / "orders") as arrivals,
    ):
        clock = threading.Timer(seconds, served.stop)
        clock.daemon = True
        clock.start()
        try:
            served.run()
        finally:
            clock.cancel()
    counted = ", ".join(f"{name} {count}" for name, count in sorted(runs.items()))
    arrived = f"{count_text(arrivals.files, 'file')} with {count_text(arrivals.orders, 'order')}"
    say(f"\n{arrived} arrived; runs: {counted or 'none'}. Start it again to continue")


def _program() -> str:
    """How to call this program from the current directory: `make demo` puts nothing on PATH."""
    return "headwater" if shutil.which("headwater") else sys.argv[0]
