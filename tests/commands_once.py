"""Commands without the cost of their start: Typer makes all of them anew whenever it is called."""

from __future__ import annotations

from functools import cache

import typer.main


def make_commands_once() -> None:
    """A program is called once and does not care; a test run calls it thousands of times. What Typer makes of an
    application depends on nothing else, and keeps nothing of a call."""
    if not hasattr(typer.main.get_command, "cache_clear"):
        typer.main.get_command = cache(typer.main.get_command)
