"""Runs a scenario of `tests/scenarios/landing`: a manifest and steps, done by the command line in this process.

| step                                         | does                                                             |
|----------------------------------------------|------------------------------------------------------------------|
| `{"write": {path: content}}`                 | writes source files; `.gz` and `.zst` are compressed             |
| `{"touch": [path]}`, `{"delete": [path]}`    | gives files another mtime; removes them                          |
| `{"manifest": lines}`                        | replaces `headwater.toml`                                        |
| `{"apply": expected}`, `{"run": expected}`   | what each pipeline must answer; `args`, `writes_nothing`         |
| `{"plan": expected}`                         | what the plan must say                                           |
| `{"query": sql, "rows": rows, "as_of": mark}`| the answer of a query                                            |
| `{"command": arguments, "exit": code, ...}`  | any command; `stdout_has`, `stderr_has`, `stderr_lacks`;         |
|                                              | `save` keeps stdout                                              |
| `{"crash": point}`                           | an apply in a process of its own that is killed at a crash point |
| `{"mark": name}`                             | remembers the sequence that the store is at                      |

A text is a string or a list of lines, `{"text": ..., "encoding": ...}` if it is not UTF-8; a Parquet file is `{"columns": {name: Arrow type}, "rows": [[...]]}`. Files
get mtimes that are old and grow, so that size and mtime are proof enough. At the end of every scenario the store
must verify, and every table must be the same to Spark (`table_frame`) as it is to DuckDB (its view).
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.app.query import reader
from headwater.app.workspace import Workspace, workspace
from headwater.catalog.lookup import current_seq, table_states
from headwater.interfaces.cli.main import main
from headwater.spark.frames import table_frame
from spark.children import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from serve.serving import Warm

SCENARIOS = Path(__file__).parents[1] / "scenarios" / "landing"
_FIRST_MTIME_NS = 1_700_000_000_000_000_000
_MTIME_STEP_NS = 10_000_000_000

HEADWATER = "from headwater.interfaces.cli.main import run; run()"
"""The program, for a child process."""

Json = Any


@dataclass(frozen=True)
class Answer:
    """What a command said and how it ended."""

    exit: int
    out: str
    err: str

    def json(self) -> Json:
        value = json.loads(self.out)
        assert value["schema_version"] == 1
        return value


def command(project: Path, *arguments: str) -> Answer:
    """A command in this process, with the Spark session that is there."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["--project", str(project), *arguments])
    return Answer(code, out.getvalue(), err.getvalue())


def scenarios() -> Iterator[tuple[str, Json]]:
    """Every scenario with the claim that it makes."""
    for path in sorted(SCENARIOS.glob("*.json")):
        for claim, scenario in json.loads(path.read_text()).items():
            yield f"{path.stem}: {claim}", scenario


@dataclass
class Project:
    """A project that a scenario works on."""

    root: Path
    warm: Warm | None = None
    """Where the processes of its crashes come from, if there are any."""
    marks: dict[str, int] = field(default_factory=dict)
    written: int = 0

    def play(self, scenario: Json) -> None:
        self.write_manifest(scenario["manifest"])
        for step in scenario["steps"]:
            self._step(step)

    def write_manifest(self, text: str | list[str]) -> None:
        (self.root / "headwater.toml").write_text('[project]\nname = "scenario"\n' + _text(text))

    def command(self, *arguments: str) -> Answer:
        """`{root}` in an argument is the project's directory."""
        return command(self.root, *(argument.replace("{root}", str(self.root)) for argument in arguments))

    def query(self, sql: str, *arguments: str) -> list[list[Json]]:
        answer = self.command("query", sql, "--json", *arguments)
        assert answer.exit == 0, answer.err
        return [list(row.values()) for row in answer.json()["rows"]]

    def write(self, path: str, content: Json) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(_bytes(path, content))
        self.touch(path)

    def touch(self, path: str) -> None:
        self.written += 1
        mtime = _FIRST_MTIME_NS + self.written * _MTIME_STEP_NS
        os.utime(self.root / path, ns=(mtime, mtime))

    def _step(self, step: Json) -> None:
        match step:
            case {"write": files}:
                for path, content in files.items():
                    self.write(path, content)
            case {"touch": paths}:
                for path in paths:
                    self.touch(path)
            case {"delete": paths}:
                for path in paths:
                    (self.root / path).unlink()
            case {"manifest": text}:
                self.write_manifest(text)
            case {"crash": point}:
                self._crash(point)
            case {"mark": name}:
                with workspace(self.root) as opened:
                    self.marks[name] = _sequence(opened)
            case {"query": sql, "rows": rows}:
                as_of = ["--as-of", str(self.marks[step["as_of"]])] if "as_of" in step else []
                found = self.query(sql, *as_of)
                assert found == rows, f"{sql}\nfound:  {found}\nwanted: {rows}"
            case {"apply": expected}:
                self._land("apply", expected)
            case {"run": expected}:
                self._land("run", expected)
            case {"plan": expected}:
                self._plan(expected)
            case {"command": arguments}:
                self._command(arguments, step)
            case _:
                raise AssertionError(f"no such step: {step}")

    def _land(self, verb: str, expected: Json) -> None:
        before = tree(self.root / ".headwater") if expected.get("writes_nothing") else None
        answer = self.command(verb, *expected.get("args", ()), "--json")
        assert answer.exit == expected.get("exit", 0), answer.out + answer.err
        value = answer.json()
        found = {result["pipeline"]: result for result in value.get("pipelines", ())}
        for pipeline, facts in expected.get("pipelines", {}).items():
            shown = {key: found[pipeline][key] for key in facts}
            assert shown == facts, found[pipeline]
        errors = [result["error"] for result in found.values() if result["error"]]
        _check_error(expected, [value["error"]] if "error" in value else errors)
        for text in expected.get("stderr_has", ()):
            assert text in answer.err, answer.err
        if before is not None:
            assert value["changed"] is False
            after = tree(self.root / ".headwater")
            assert after == before, sorted(after.items() ^ before.items())

    def _crash(self, point: str) -> None:
        assert self.warm is not None
        out, err = self.root / "crash.out", self.root / "crash.err"
        armed = {"HEADWATER_CRASH_AT": point}
        child = self.warm.start(["--project", str(self.root), "apply"], out=out, err=err, environment=armed)
        wait_until(lambda: child.poll() is not None, "the apply ends")
        assert child.poll() == -signal.SIGKILL, err.read_text()

    def _plan(self, expected: Json) -> None:
        answer = self.command("plan", *expected.get("args", ()), "--json")
        assert answer.exit == expected.get("exit", 0), answer.out + answer.err
        plans = {plan["pipeline"]: plan for plan in answer.json()["pipelines"]}
        for pipeline, action in expected.get("actions", {}).items():
            assert plans[pipeline]["action"] == action, plans[pipeline]
        tables = [table for plan in plans.values() for table in plan["tables"]]
        for key in ("schema_changes", "refused"):
            if key in expected:
                shown = [[change["kind"], change["column"]] for table in tables for change in table[key]]
                assert shown == expected[key], tables
        if "warning_has" in expected:
            assert any(expected["warning_has"] in text for table in tables for text in table["warnings"]), tables

    def _command(self, arguments: Sequence[str], step: Json) -> None:
        answer = self.command(*arguments)
        assert answer.exit == step.get("exit", 0), answer.out + answer.err
        for stream, text in (("stdout_has", answer.out), ("stderr_has", answer.err)):
            for part in step.get(stream, ()):
                assert part in text, text
        for part in step.get("stderr_lacks", ()):
            assert part not in answer.err, answer.err
        if "save" in step:
            (self.root / step["save"]).write_text(answer.out)


def check_store(project: Path, spark: SparkSession) -> None:
    """The store is whole, and each table is the same to Spark as it is to DuckDB."""
    answer = command(project, "context", "verify", "--json")
    assert answer.exit == 0, answer.out
    with workspace(project) as opened, reader(opened) as session:
        store = opened.landed_store()
        with store.catalog.snapshot() as connection:
            states = table_states(connection)
        for state in states:
            view: pa.Table = session.sql(f'SELECT * FROM meta."{state.name}"').to_arrow_table()
            frame = table_frame(spark, store.root, state).toArrow()
            assert frame.schema.names == view.schema.names, f"{frame.schema.names} {view.schema.names}"
            ours, theirs = _rows(frame), _rows(view)
            assert ours == theirs, f"{state.name} in Spark:\n{ours}\nin DuckDB:\n{theirs}"


def tree(root: Path) -> dict[str, str]:
    """Every file below a directory, with its mtime and a hash of its bytes."""
    return {
        str(path.relative_to(root)): f"{path.stat().st_mtime_ns} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def _check_error(expected: Json, errors: list[Json]) -> None:
    codes = [error["code"] for error in errors]
    assert codes == ([expected["error"]] if "error" in expected else expected.get("errors", [])), errors
    for text in expected.get("message_has", ()):
        assert any(text in error["message"] for error in errors), errors
    for text in expected.get("hint_has", ()):
        assert any(text in error["hint"] for error in errors), errors
    if "places" in expected:
        places = [f"{p['file']}:{p['line']}" for error in errors for p in error["detail"].get("places", ())]
        assert places == expected["places"], errors


def _sequence(opened: Workspace) -> int:
    with opened.landed_store().catalog.snapshot() as connection:
        return current_seq(connection)


def _text(value: str | list[str]) -> str:
    return value if isinstance(value, str) else "".join(line + "\n" for line in value)


def _bytes(path: str, content: Json) -> bytes:
    if isinstance(content, dict) and "text" in content:
        return _text(content["text"]).encode(content["encoding"])
    if isinstance(content, dict):
        schema = pa.schema([(name, _arrow(type_)) for name, type_ in content["columns"].items()])
        columns = list(zip(*content["rows"])) or [()] * len(schema)
        arrays = [_array(list(column), field_.type) for column, field_ in zip(columns, schema)]
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_arrays(arrays, schema=schema), sink)
        return bytes(sink.getvalue())
    data = _text(content).encode()
    if path.endswith(".gz"):
        return gzip.compress(data)
    return bytes(pa.compress(data, codec="zstd", asbytes=True)) if path.endswith(".zst") else data


def _arrow(type_: str) -> pa.DataType:
    if type_.startswith("decimal"):
        precision, scale = type_.removeprefix("decimal(").rstrip(")").split(",")
        return pa.decimal128(int(precision), int(scale))
    if type_.startswith("map<"):
        return pa.map_(*map(_arrow, type_[4:-1].split(",")))
    if type_.startswith("list<"):
        return pa.list_(_arrow(type_[5:-1]))
    return pa.timestamp("ns", tz="UTC") if type_ == "timestamp" else pa.type_for_alias(type_)


def _array(values: list[Json], type_: pa.DataType) -> pa.Array:
    if pa.types.is_map(type_):
        values = [None if value is None else list(value.items()) for value in values]
    return pa.array(values, pa.string()).cast(type_) if pa.types.is_decimal(type_) else pa.array(values, type_)


def _rows(table: pa.Table) -> list[str]:
    """Rows as texts, in an order of their own: what Arrow calls a type is not the point here, the values are."""
    return sorted(repr(row) for row in zip(*(_values(column) for column in table.columns)))


def _values(column: pa.ChunkedArray) -> list[Json]:
    if isinstance(column.type, pa.BaseExtensionType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", tz="UTC"))
    return column.to_pylist()
