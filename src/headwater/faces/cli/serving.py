"""serve and worker."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from headwater.faces.cli.output import Face, say, show_error


def register(app: typer.Typer) -> None:
    app.command()(serve)
    app.command()(worker)


def serve(
    context: typer.Context,
    host: Annotated[str | None, typer.Option("--host", help="Where to listen (default: [serve] host).")] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65535, help="0 takes a free one (default: [serve] port).")
    ] = None,
    no_http: Annotated[bool, typer.Option("--no-http", help="The engine and workers alone.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say only what goes wrong.")] = False,
) -> None:
    """Keep every pipeline as fresh as demand asks: engine, workers, HTTP API. Ends with Ctrl-C or SIGTERM."""
    from headwater.app.serving import open_service
    from headwater.app.workspace import workspace

    face: Face = context.obj
    with workspace(face.start) as opened:
        served = open_service(
            opened, tell=lambda error: show_error(error, as_json=False), on_run=_nothing if quiet else _narrate
        )
        section = opened.project.spec.serve
        listening, where = None, ""
        with until_signal(served.stop):
            if not no_http:
                from headwater.faces.http.access import access_of
                from headwater.faces.http.api import api
                from headwater.faces.http.server import HttpServer

                bind = host or section.host
                access = access_of(opened.project, host=bind)
                listening = HttpServer()
                bound = listening.start(
                    api(lambda: opened, access=access), bind, section.port if port is None else port
                )
                where = f" on http://{f'[{bind}]' if ':' in bind else bind}:{bound}"
            try:
                served.run(on_ready=lambda: say(f"serving {opened.project.name}{where}"))
            finally:
                if listening is not None:
                    listening.stop()
    say("stopped; what was under way goes on when it is started again")


def worker(context: typer.Context) -> None:
    """Workers alone, on any machine that reaches the catalog and the store: they do the jobs of a `serve` elsewhere."""
    from headwater.app.serving import open_worker
    from headwater.app.workspace import workspace

    face: Face = context.obj
    with workspace(face.start) as opened:
        process = open_worker(opened, tell=lambda error: show_error(error, as_json=False))
        with until_signal(process.stop):
            say(f"working for {opened.project.name}")
            process.run()
    say("stopped; the jobs in hand were given back")


@contextmanager
def until_signal(stop: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C and SIGTERM end it in good order; a second one ends it at once."""
    asked = False

    def handle(number: int, _frame: Any) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        stop()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _nothing(_pipeline: str, _state: str) -> None:
    """Says nothing."""


def _narrate(pipeline: str, state: str) -> None:
    """One line for each run; a look at a source that found nothing new is none."""
    say(f"{pipeline}: {state}" + (f"; see `headwater why {pipeline}`" if state == "failed" else ""))
