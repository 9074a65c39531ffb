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
from headwater.interfaces.cli.output import count_text, opened_project, say, seconds_text, show_dropped, show_error

if TYPE_CHECKING:
    from headwater.app.ingest import Ingestor
    from headwater.app.serve import EndedRun
    from headwater.app.workspace import Workspace
    from headwater.interfaces.http.request_context import Context

_STOP, _OVER = b"s", b"o"


def register(app: typer.Typer) -> None:
    app.command()(serve)
    app.command()(worker)


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
    from headwater.app.ingest import Ingestor
    from headwater.app.serve import open_service

    with opened_project(context) as opened, closing(Ingestor()) as ingestor:
        served = open_service(
            opened,
            ingestor,
            tell=lambda error: show_error(error, as_json=False),
            on_run=_nothing if quiet else _narrate,
            on_dropped=lambda news: show_dropped(news, quiet=quiet),
        )
        listening = nullcontext("") if no_http else _http(opened, ingestor, host, port, otlp=otlp)
        with until_signal(served.stop), listening as where:
            served.run(on_ready=lambda: say(f"serving {opened.project.name}{where}"))
    say("stopped; unfinished work continues at the next start")


def worker(context: typer.Context) -> None:
    """Only workers, on any machine that reaches the catalog and the store: they do the jobs of a `serve` elsewhere."""
    from headwater.app.serve import open_worker

    with opened_project(context) as opened:
        process = open_worker(opened, tell=lambda error: show_error(error, as_json=False))
        with until_signal(process.stop):
            say(f"working for {opened.project.name}")
            process.run()
    say("stopped; unfinished jobs were given back")


@contextmanager
def _http(opened: Workspace, ingestor: Ingestor, host: str | None, port: int | None, *, otlp: bool) -> Iterator[str]:
    """Runs the HTTP API; the address as text."""
    from headwater.app.access import access_of, joined
    from headwater.app.serve import otlp_ports
    from headwater.interfaces.http.api import api
    from headwater.interfaces.http.server import HttpServer

    section = opened.project.spec.serve
    bind = host or section.host
    access = access_of(opened.project, host=bind)
    server = HttpServer()
    app = api(lambda: opened, access=access, ingestor=ingestor)
    bound = server.start(app, bind, section.port if port is None else port)
    try:
        with _otlp(app.state.context, bind, otlp_ports(opened, asked=otlp)) as also:
            yield f" on http://{joined(bind, bound)}{also}"
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


def _nothing(_run: EndedRun) -> None:
    """Says nothing."""


def _narrate(run: EndedRun) -> None:
    """One line for each run, with the time of day (UTC). A scan of a source that found nothing new gets none, unless a
    user asked for it."""
    say(f"{to_text(now_us())[11:19]} {run.pipeline}: {outcome_text(run)}")
    if run.error is not None:
        for place in run.error.places:
            say(f"  {place}")


def outcome_text(run: EndedRun) -> str:
    """How a run ended: its outcome, rows, seconds."""
    seconds = seconds_text(run.seconds)
    if run.spark_start_seconds:
        seconds += f" after Spark's start of {seconds_text(run.spark_start_seconds)}"
    match run.state:
        case "success" if run.changed:
            return f"landed, {count_text(run.rows, 'row')}, {seconds}"
        case "success":
            return f"same result, {seconds}"
        case "passed":
            return "nothing new"
        case "failed":
            return f"failed, {seconds}; see `headwater logs {run.pipeline}`"
        case _:
            return f"{run.state}, {seconds}"
