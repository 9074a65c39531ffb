"""Dropped files that are too large for one piece of memory land by Spark: the same rows, once, in one commit."""

from __future__ import annotations

import gzip
import io
import json
import os
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from contract.ingesting import rows_of
from headwater.app.drop_folder import Dropping, News, PutAway, Taken, take_dropped
from headwater.app.ingest import Ingestor, clear
from headwater.app.workspace import workspace
from headwater.base import limits
from headwater.catalog.gc import collect
from headwater.catalog.ledger import ledger_keys
from headwater.catalog.lookup import table_states
from headwater.storage.store_files import data_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MANIFEST = """
[[pipeline]]
id = "goods"
source = { connector = "push" }
[[pipeline.tables]]
name = "goods"
primary_key = ["id"]
columns = { id = "long", price = "decimal(9,2)", sold = "bool" }
"""


def lines() -> bytes:
    """More new keys than a batch may bring, one of them late; times under another name; bad rows."""
    rows: list[Any] = [{"at": f"2026-01-0{1 + n % 9}T00:00:00Z", "label": str(n), f"k{n}": n} for n in range(40)]
    rows += [{"label": "late", "Weird Key": {"a": 1}}, {"ts": "soon", "never": 1}, {"at": "no time", "label": "x"}]
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows) + b"no json\n"


def cells() -> bytes:
    header = "id,price,sold,note,Other\n"
    return (header + "".join(f'{n},{n}.50,TRUE,"a,{n}",{n}\n' for n in range(30)) + "x,1,true,,\n1,2\n").encode()


def parquet() -> bytes:
    rows = pa.table({"id": range(100, 130), "price": [1.5] * 30, "tags": [["a", "b"]] * 30, "Odd Name": [b"\xff"] * 30})
    made = io.BytesIO()
    pq.write_table(rows, made, row_group_size=10)
    return made.getvalue()


FILES: dict[str, Callable[[], bytes]] = {
    "events/a.ndjson": lines,
    "goods/a.csv.gz": lambda: gzip.compress(cells(), mtime=0),
    "goods/b.parquet": parquet,
}


def project(root: Path) -> Path:
    (root / "headwater.toml").write_text(MANIFEST)
    for name, content in FILES.items():
        drop(root, name, content())
    return root


def drop(root: Path, name: str, content: bytes) -> None:
    path = root / "drop" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    long_ago = time.time() - 3600
    os.utime(path, (long_ago, long_ago))


def landed(root: Path) -> tuple[dict[str, Any], list[News]]:
    """Everything that is there after a look: rows, columns, keys and dead letters of every table."""
    news: list[News] = []
    with workspace(root) as opened:
        take_dropped(opened, news.append)
        store = opened.store()
        with store.catalog.snapshot() as connection:
            states = table_states(connection)
            keys = {
                (key.table, key.key, key.fingerprint, key.rows, key.refused)
                for key in ledger_keys(connection, limit=99)
            }
        found: dict[str, Any] = {"keys": keys}
        for state in states:
            rows = sorted(repr(sorted(row.items())) for row in rows_of(store, state.name))
            found[state.name] = (rows, {column.name: column.type for column in state.schema.columns})
    return found, sorted(news, key=repr)


def test_a_big_file_lands_as_a_small_one_would(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "small").mkdir()
    (tmp_path / "big").mkdir()
    small, news = landed(project(tmp_path / "small"))
    assert {each.table: (each.files, each.rows, each.rows_refused) for each in news if isinstance(each, Taken)} == {
        "events": (1, 42, 2),
        "goods": (2, 60, 2),
    }
    assert len(small["events"][1]) == 4 + limits.NEW_COLUMNS_PER_BATCH + 1
    monkeypatch.setattr(limits, "MAX_BODY_BYTES", 300)
    monkeypatch.setattr(limits, "SPLIT_BYTES", 1_500)
    big, told = landed(project(tmp_path / "big"))
    assert [each for each in told if isinstance(each, PutAway)] == []
    for table in small:
        assert big[table] == small[table], table
    assert told == news


def test_a_big_file_is_one_commit_and_lands_once(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_BODY_BYTES", 300)
    monkeypatch.setattr(limits, "SPLIT_BYTES", 1_500)
    (tmp_path / "headwater.toml").write_text(MANIFEST)
    drop(tmp_path, "goods/worse.csv", b"id,price\n" + b"x,1\n" * 101)
    drop(tmp_path, "events/a.ndjson", lines())
    news: list[News] = []
    with workspace(tmp_path) as opened, closing(Ingestor()) as ingestor:
        dropping = Dropping(opened, news.append, ingestor)
        look(dropping)
        assert [(each.table, each.rows) for each in news if isinstance(each, Taken)] == [("events", 42)]
        assert [each.code for each in news if isinstance(each, PutAway)] == ["HW-I02"]
        assert (tmp_path / "drop/goods/_failed/worse.csv").exists()
        store = opened.store()
        with store.catalog.snapshot() as connection:
            states = {state.name: state for state in table_states(connection)}
        assert len(states["events"].files) > 1, "it was written in parts"
        assert len({file.added_seq for file in states["events"].files}) == 1
        news.clear()
        look(dropping)
        assert news == []
        assert clear(opened, "events") == 1
        look(dropping)
        assert [(each.table, each.rows) for each in news if isinstance(each, Taken)] == [("events", 42)]
        dropping.close()
        ingestor.close()
        collect(store, actor="operator:ada", retention_seconds=-1)
        with store.catalog.snapshot() as connection:
            named = {file.path for state in table_states(connection) for file in state.files}
        assert set(data_files(store.layout)) == named, "nothing is left of what was written twice"


def look(dropping: Dropping) -> None:
    dropping.scan()
    dropping.finish()
