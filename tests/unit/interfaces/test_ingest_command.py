"""`headwater ingest` and `headwater ledger`: rows from files and stdin, each file whole or not at all. No JVM."""

from __future__ import annotations

import gzip
import io
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

HEADWATER = [sys.executable, "-c", "from headwater.interfaces.cli.main import run; run()"]
ROW = b'{"label": "a", "user": "ada"}\n'


def labels(say: Any, project: Path, table: str = "events") -> list[str]:
    found = say("--project", project, "query", "--format", "json", f"SELECT label FROM {table} ORDER BY label")
    assert found.code == 0, found.err
    return [row["label"] for row in found.json()["rows"]]


def test_files_land_each_with_an_answer_of_its_own(project: Path, say: Any, tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_bytes(ROW)
    (tmp_path / "b.ndjson.gz").write_bytes(gzip.compress(b'{"label": "b"}\n'))
    (tmp_path / "C.JSONL.ZST").write_bytes(pa.compress(b'{"label": "c"}\n{"label": "d"}', "zstd", asbytes=True))
    names = [tmp_path / name for name in ("a.ndjson", "b.ndjson.gz", "C.JSONL.ZST")]
    found = say("--project", project, "ingest", "events", *names, "--json").json()
    assert [batch["rows_ingested"] for batch in found["batches"]] == [1, 1, 2]
    assert [batch["file"] for batch in found["batches"]] == [str(name) for name in names]
    assert labels(say, project) == ["a", "b", "c", "d"]
    views = project / ".headwater" / "context" / "shop" / "views"
    assert (views / "events.sql").read_text().count(".parquet") == 3, "the views are those of the last push"


def test_a_key_lands_once_until_it_is_cleared(project: Path, say: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def ingest(body: bytes = ROW) -> Any:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(body)))
        return say("--project", project, "ingest", "events", "--key", "k")

    assert "nothing was written" not in ingest().out
    assert "(landed before with this key; nothing was written)" in ingest().out
    refused = ingest(ROW * 2)
    assert (refused.code, "HW-I01" in refused.err) == (4, True)
    (key,) = say("--project", project, "ledger", "list", "events", "--json").json()["keys"]
    assert (key["table"], key["key"], key["rows"], key["expired"]) == ("events", "k", 1, False)
    assert "k " in say("--project", project, "ledger", "list").out
    assert say("--project", project, "ledger", "clear", "events", "k").err == "events: 1 key forgotten\n"
    assert ingest(ROW * 2).code == 0
    assert len(labels(say, project)) == 3


def test_a_bad_file_is_refused_with_its_lines_and_those_before_it_have_landed(
    project: Path, say: Any, tmp_path: Path
) -> None:
    (tmp_path / "good.ndjson").write_bytes(ROW)
    (tmp_path / "bad.ndjson").write_bytes(ROW + b'{"ts": "soon"}\n')
    said = say("--project", project, "ingest", "events", tmp_path / "good.ndjson", tmp_path / "bad.ndjson")
    assert said.code == 3
    assert said.out.startswith("events: 1 row")
    assert f"{tmp_path / 'bad.ndjson'}:2\n" in said.err
    assert "soon" not in said.err
    assert "1 file before it landed and must not be sent again" in said.err
    assert labels(say, project) == ["a"]


def test_an_error_tells_a_program_what_landed_before_it(project: Path, say: Any, tmp_path: Path) -> None:
    (tmp_path / "good.ndjson").write_bytes(ROW)
    said = say("--project", project, "ingest", "events", tmp_path / "good.ndjson", tmp_path / "none.ndjson", "--json")
    error = said.json()["error"]
    assert (said.code, error["code"]) == (3, "HW-I04")
    assert [batch["file"] for batch in error["detail"]["batches"]] == [str(tmp_path / "good.ndjson")]


def test_a_file_of_another_format_is_told_where_it_can_go(project: Path, say: Any, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("id,amount\n1,2\n")
    said = say("--project", project, "ingest", "events", tmp_path / "rows.csv")
    assert said.code == 3
    assert "put CSV and Parquet files into the drop folder" in said.err


class Interrupted(io.BytesIO):
    """Ctrl-C is pressed while the command waits for rows."""

    def read(self, _size: int | None = -1) -> bytes:
        signal.raise_signal(signal.SIGINT)
        return b""


@pytest.mark.parametrize(("key", "told"), [((), "check before you send them again"), (("--key", "k"), "to go on")])
def test_an_interrupted_push_is_not_told_to_land_twice(
    project: Path, say: Any, monkeypatch: pytest.MonkeyPatch, key: tuple[str, ...], told: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(Interrupted()))
    said = say("--project", project, "ingest", "events", *key)
    assert said.code == 130
    assert told in said.err


def test_what_cannot_be_pushed_is_refused(project: Path, say: Any, tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_bytes(ROW)
    (tmp_path / "torn.gz").write_bytes(gzip.compress(ROW)[:-4])

    def code_of(*words: str | Path) -> tuple[int, str]:
        said = say("--project", project, "ingest", *words, "--json")
        return said.code, said.json()["error"]["code"]

    assert code_of("orders", tmp_path / "a.ndjson") == (3, "HW-I03")
    assert code_of("events", tmp_path / "none.ndjson") == (3, "HW-I04")
    assert code_of("events", tmp_path / "torn.gz") == (3, "HW-I04")
    assert f"  {tmp_path / 'torn.gz'}\n" in say("--project", project, "ingest", "events", tmp_path / "torn.gz").err
    assert code_of("events", tmp_path / "a.ndjson", "--no-create") == (3, "HW-T07")
    assert code_of("events", tmp_path / "a.ndjson", tmp_path / "a.ndjson", "--key", "k") == (2, "HW-U01")


def test_a_declared_table_is_what_the_manifest_says(project: Path, say: Any, tmp_path: Path) -> None:
    with (project / "headwater.toml").open("a") as manifest:
        manifest.write(
            '[[pipeline]]\nid = "web"\nsource = { connector = "push" }\n[[pipeline.tables]]\nname = "clicks"\n'
        )
        manifest.write('primary_key = ["id"]\ncolumns = { id = "long", label = "string" }\n')
    assert say("--project", project, "validate").code == 0
    (tmp_path / "a.ndjson").write_bytes(b'{"id": 1, "label": "a"}\n{"id": "1", "label": "b", "new": 1}\n')
    assert say("--project", project, "ingest", "clicks", tmp_path / "a.ndjson", "--no-evolve").code == 0
    found = say("--project", project, "query", "--format", "json", "SELECT id, label, _rescued FROM clicks")
    assert found.json()["rows"] == [{"id": 1, "label": "b", "_rescued": '{"new":1}'}]
    sizes = say("--project", project, "status", "web", "--json").json()["pipelines"][0]["tables"]
    assert [(size["name"], size["stored_rows"]) for size in sizes] == [("clicks", 2)]
    assert say("--project", project, "plan", "web", "--detailed-exitcode").code == 0


def test_a_pushed_table_cannot_be_replaced(project: Path, say: Any) -> None:
    with (project / "headwater.toml").open("a") as manifest:
        manifest.write('[[pipeline]]\nid = "web"\nsource = { connector = "push" }\n')
        manifest.write('tables = [{ name = "clicks", mode = "replace" }]\n')
    (part,) = say("--project", project, "validate", "--json").json()["unsupported"]
    assert part["what"] == "`tables[0].mode` of pipeline `web`"


def test_a_key_protects_for_as_long_as_the_manifest_says(
    project: Path, say: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ingest() -> Any:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(ROW)))
        found = say("--project", project, "ingest", "events", "--key", "k", "--json").json()
        return found["batches"][0]["replayed"]

    manifest = project / "headwater.toml"
    manifest.write_text(manifest.read_text() + '[context]\nledger_ttl = "1ms"\n')
    assert [ingest(), ingest()] == [False, False]
    manifest.write_text(manifest.read_text().replace("1ms", "1h"))
    assert [ingest(), ingest()] == [False, True]


def test_bad_rows_are_kept_where_the_pipeline_says_so(project: Path, say: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def ingest(body: bytes, *more: str) -> Any:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(body)))
        return say("--project", project, "ingest", "numbers", *more)

    manifest = project / "headwater.toml"
    declared = '[[pipeline]]\nid = "numbers"\nsource = { connector = "push" }\n[[pipeline.tables]]\nname = "numbers"\n'
    manifest.write_text(manifest.read_text() + declared + 'columns = { n = "long" }\n')
    rows = b'{"n": 1}\n{"n": "one"}\n'
    assert ingest(rows).code == 3
    manifest.write_text(
        manifest.read_text().replace(
            'id = "numbers"\n', 'id = "numbers"\non_bad_row = "dead_letter"\nmax_bad_rows = 1\n'
        )
    )
    told = ingest(rows)
    assert (told.code, "1 dead letter kept" in told.err) == (0, True), told.err
    assert ingest(rows, "--json").json()["batches"][0]["rows_refused"] == 1
    assert ingest(rows + rows).code == 3, "two are more than one"
    listed = say("--project", project, "deadletters", "numbers", "list", "--json").json()
    assert [(each["line"], each["column"], each["reason"]) for each in listed["letters"]] == [
        (2, "n", "not_a_number")
    ] * 2


def damage(project: Path, table: str) -> None:
    (file,) = (project / ".headwater/context/shop/tables" / table).rglob("*.parquet")
    file.write_bytes(file.read_bytes()[:40])


def test_damage_of_another_table_is_a_warning_and_the_rows_have_landed(project: Path, say: Any, tmp_path: Path) -> None:
    damage(project, "orders")
    (tmp_path / "a.ndjson").write_bytes(ROW)
    said = say("--project", project, "ingest", "events", tmp_path / "a.ndjson")
    assert (said.code, said.out.startswith("events: 1 row")) == (0, True)
    assert "warning: the rows have landed" in said.err
    assert "HW-T04: table `orders` cannot be read" in said.err
    assert labels(say, project) == ["a"], "what is whole can be asked"
    (tmp_path / "b.ndjson").write_bytes(b'{"label": "b", "new": 1}\n')
    said = say("--project", project, "ingest", "events", tmp_path / "b.ndjson", "--json")
    assert (said.code, [warning["code"] for warning in said.json()["warnings"]]) == (0, ["HW-T04"])


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_an_answer_that_cannot_be_written_is_no_failure_of_the_push(
    project: Path, say: Any, tmp_path: Path, more: tuple[str, ...]
) -> None:
    files = [tmp_path / name for name in ("a.ndjson", "b.ndjson")]
    for file in files:
        file.write_bytes(ROW)
    command = [*HEADWATER, "--project", str(project), "ingest", "events"]
    with open("/dev/full", "w") as full:
        done = subprocess.run([*command, *map(str, files), *more], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr
    assert (
        done.stderr.count("warning: the answer cannot be written: no space left on device; the rows have landed") == 1
    )
    assert len(labels(say, project)) == 2


def test_an_apply_that_could_not_make_the_views_is_partly_done(project: Path, say: Any, tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_bytes(ROW)
    assert say("--project", project, "ingest", "events", tmp_path / "a.ndjson").code == 0
    damage(project, "events")
    (project / ".headwater/context/shop/duck.db").unlink()  # else only what has changed is made again
    manifest = (project / "headwater.toml").read_text()
    declared = '[[pipeline.tables]]\nname = "orders"\ncolumns = { note = "string" }'
    (project / "headwater.toml").write_text(manifest.replace('tables = ["orders"]', declared))
    said = say("--project", project, "apply")
    assert (said.code, said.out) == (5, "orders: the schema of orders changed\n")
    assert "warning: the views on disk are old: HW-T04: table `events` cannot be read" in said.err
