"""serve and worker."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.base import limits
from headwater.base.clock import now_us, to_text
from headwater.base.errors import error_of
from headwater.interfaces.cli import operations
from headwater.interfaces.cli.output import count_text, opened_project, say, seconds_text, show_dropped, show_error

if TYPE_CHECKING:
    from headwater.app.drop_folder import News
    from headwater.app.serve import PondRun
    from headwater.app.workspace import Workspace
    from headwater.interfaces.http.request_context import Context

_STOP, _OVER = b"s", b"o"


def serve(
    context: typer.Context,
    host: Annotated[str | None, typer.Option("--host", help="Where to listen (default: [serve] host).")] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65535, help="0 takes a free one (default: [serve] port).")
    ] = None,
    no_http: Annotated[bool, typer.Option("--no-http", help="Only the engine and workers.")] = False,
    otlp: Annotated[bool, typer.Option("--otlp", help="Receive OTLP too, as with [serve.otlp].")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show only errors.")] = False,
) -> None:
    """Keep every pipeline as fresh as demand asks: engine, workers, HTTP API. Ends with Ctrl-C or SIGTERM."""

    def narrate(line: str) -> None:
        if not quiet:
            say(f"{time_of_day()} {line}")

    def on_run(run: PondRun) -> None:
        places = error_of(run.error).places if run.error is not None else ()
        narrate("\n  ".join([f"{run.pond}: {outcome_text(run)}", *map(str, places)]))

    def on_dropped(news: News) -> None:
        show_dropped(news, quiet=quiet)

    with opened_project(context) as opened, closing(operations.ingest.Ingestor()) as ingestor:
        served = operations.serve.open_service(
            opened,
            ingestor,
            tell=show_error,
            on_run=None if quiet else on_run,
            on_pass=lambda pipeline: narrate(f"{pipeline}: nothing new"),
            on_dropped=on_dropped,
        )
        listening = nullcontext("") if no_http else _http(opened, ingestor, host, port, otlp=otlp)
        with until_signal(served.stop), listening as where:
            served.run(on_ready=lambda: say(f"serving {opened.project.name}{where}"))
    say("stopped; unfinished work continues at the next start")


def worker(context: typer.Context) -> None:
    """Only workers, on any machine that reaches the catalog and the store: they do the jobs of a `serve` elsewhere."""
    with opened_project(context) as opened:
        process = operations.serve.open_worker(opened, tell=show_error)
        with until_signal(process.stop):
            say(f"working for {opened.project.name}")
            process.run()
    say("stopped; unfinished jobs were given back")


@contextmanager
def _http(
    opened: Workspace, ingestor: operations.ingest.Ingestor, host: str | None, port: int | None, *, otlp: bool
) -> Iterator[str]:
    """Runs the HTTP API; the address as text."""
    from headwater.interfaces.http.api import api
    from headwater.interfaces.http.server import HttpServer

    section = opened.project.spec.serve
    bind = host or section.host
    access = operations.access.access_of(opened.project, host=bind)
    server = HttpServer()
    app = api(lambda: opened, access=access, ingestor=ingestor)
    bound = server.start(app, bind, section.port if port is None else port)
    try:
        with _otlp(app.state.context, bind, operations.serve.otlp_ports(opened, asked=otlp)) as also:
            yield f" on http://{operations.access.joined(bind, bound)}{also}"
    finally:
        server.stop()


@contextmanager
def _otlp(context: Context, host: str, ports: tuple[int, int] | None) -> Iterator[str]:
    """Runs OTLP, if it is enabled, with the same ingestor as the HTTP API; the address as text."""
    if ports is None:
        yield ""
        return
    from headwater.interfaces.otlp.receive import Receiver
    from headwater.interfaces.otlp.servers import taking_otlp

    receiver = Receiver(context.current, context.access, context.ingestor, context.memory)
    with taking_otlp(receiver, host, *ports) as listening:
        yield f", OTLP on {listening}"


@contextmanager
def until_signal(stop: Callable[[], None]) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM calls `stop`; a later one ends the process at once. A handler interrupts the main
    thread anywhere, even while it holds a lock, so it only writes to a pipe: another thread reads it and stops."""
    asked_at: float | None = None
    reading, writing = os.pipe()

    def handle(number: int, _frame: Any) -> None:
        nonlocal asked_at
        if asked_at is None:
            asked_at = time.monotonic()
            os.write(writing, _STOP)
        elif time.monotonic() - asked_at > limits.SIGNAL_ECHO_SECONDS:
            raise KeyboardInterrupt

    def listen() -> None:
        if os.read(reading, 1) == _STOP:
            stop()

    listener = threading.Thread(target=listen, name="signals", daemon=True)
    listener.start()
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.write(writing, _OVER)
        listener.join()
        os.close(reading)
        os.close(writing)


def time_of_day() -> str:
    """In UTC."""
    return to_text(now_us())[11:19]


def outcome_text(run: PondRun) -> str:
    """How a run ended: its outcome, rows, seconds."""
    seconds = seconds_text((run.took_us or 0) / 1e6)
    if run.spark_start_us:
        seconds += f" after Spark's start of {seconds_text(run.spark_start_us / 1e6)}"
    match run.state:
        case "success" if run.changed:
            return f"landed, {count_text(run.rows, 'row')}, {seconds}"
        case "success":
            return f"same result, {seconds}"
        case "failed":
            return f"failed, {seconds}; see `headwater logs {run.pond}`"
        case _:
            return f"{run.state}, {seconds}"
