"""Every command: `--json` is one object, an error is the same object, and `--help` costs nothing. No JVM."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer

import commands_once
from headwater.interfaces.cli.main import app
from unit.interfaces.landed import refuse_a_change
from unit.interfaces.played import keep_a_run

TESTS = str(Path(commands_once.__file__).parent)
HEAVY = ("pyarrow", "pyspark", "sqlalchemy", "duckdb", "numpy", "pandas", "headwater.manifest")
"""Not pydantic: typer itself uses it to read the arguments of a command."""

JSON_CALLS: dict[tuple[str, ...], Sequence[str]] = {
    ("validate",): (),
    ("plan",): (),
    ("apply",): (),
    ("run",): ("orders",),
    ("status",): (),
    ("tap",): ("orders",),
    ("pulse",): ("orders",),
    ("wave",): ("orders",),
    ("tide",): ("orders", "--max-staleness", "15m"),
    ("clear",): ("orders",),
    ("trigger", "list"): (),
    ("trigger", "remove"): ("orders",),
    ("why",): ("orders",),
    ("runs",): (),
    ("logs",): ("0",),
    ("simulate",): ("--pulse", "orders", "--until", "1s"),
    ("query",): ("SELECT 1",),
    ("ingest",): ("pushed", os.devnull),
    ("ledger", "list"): (),
    ("ledger", "clear"): ("pushed",),
    ("deadletters",): ("orders", "list"),
    ("schema", "export"): (),
    ("schema", "log"): ("orders",),
    ("schema", "accept"): ("orders",),
    ("schema", "promote"): ("orders", "j.a", "--as", "a:string"),
    ("schema", "regen-view"): (),
    ("context", "verify"): (),
    ("context", "rebuild-catalog"): (),
    ("context", "gc"): ("--dry-run",),
    ("pipeline", "list"): (),
    ("pipeline", "create"): ("more", "--connector", "flaky", "--table", "rows"),
    ("pipeline", "edit"): ("orders", "--set", "source.config.format=ndjson"),
    ("pipeline", "convert"): ("orders", "--to", "json"),
    ("doctor",): (),
    ("doctor", "crash-points"): (),
}
NEED_NO_PROJECT = {("doctor",), ("doctor", "crash-points")}
ELSEWHERE = {("init",), ("demo",), ("serve",), ("worker",)}
"""`init` has a test of its own; `demo` lands, so its test is among those of Spark; the daemons answer nothing."""


def commands(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command that can be called, as the words that call it."""
    command = command or typer.main.get_command(app)
    parts = getattr(command, "commands", None)
    if parts is None or (getattr(command, "invoke_without_command", False) and path):
        yield path
    for name, part in (parts or {}).items():
        yield from commands(part, (*path, name))


def test_every_command_is_tried_with_json() -> None:
    assert set(JSON_CALLS) | ELSEWHERE == set(commands())


@pytest.mark.parametrize("words", JSON_CALLS, ids=" ".join)
def test_json_is_one_object_with_a_schema_version(words: tuple[str, ...], project: Path, say: Any) -> None:
    if words == ("schema", "accept"):
        refuse_a_change(project)
    if words == ("logs",):
        keep_a_run(project)
    said = say("--project", project, *words, *JSON_CALLS[words], "--json")
    assert said.code == 0, said.err
    assert len(said.json()) > 1


@pytest.mark.parametrize("words", [words for words in JSON_CALLS if words not in NEED_NO_PROJECT], ids=" ".join)
def test_an_error_is_the_same_object_in_json(words: tuple[str, ...], tmp_path: Path, say: Any) -> None:
    said = say("--project", tmp_path / "nowhere", *words, *JSON_CALLS[words], "--json")
    assert said.code == 3
    error = said.json()["error"]
    assert set(error) == {"code", "message", "hint", "retryable", "detail"}
    assert error["code"] == "HW-M01"
    assert said.err.startswith("error[HW-M01]: ")


def test_help_of_every_command_imports_nothing_heavy() -> None:
    code = (
        f"import json, sys; sys.path.append({TESTS!r}); from commands_once import make_commands_once\n"
        "from headwater.interfaces.cli.main import main; make_commands_once()\n"
        "codes = [main([*words, '--help']) for words in json.loads(sys.argv[1])]\n"
        f"print(codes, sorted(name for name in {HEAVY!r} if name in sys.modules), file=sys.stderr)"
    )
    calls = [[], *commands()]
    done = subprocess.run([sys.executable, "-c", code, json.dumps(calls)], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == f"{[0] * len(calls)} []"
    assert done.stdout.count("Usage: ") == len(calls)
