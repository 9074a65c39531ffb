"""What `push.py` compares with: an endpoint that somebody writes in an afternoon, and that loses nothing it has answered
for. Each batch is decoded by `json.loads`, becomes a Parquet file of its own that is fsynced, and a row of SQLite that
has its key. It coerces nothing, evolves nothing, and has no log and no group commit.

Usage: python benchmarks/plain_push.py DIRECTORY
"""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import sys
import threading
import uuid
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
import uvicorn
from fastapi import FastAPI, Header, Request
from starlette.concurrency import run_in_threadpool

from coerce import PLAIN
from headwater.base.types import parse_type, to_arrow

SCHEMA = pa.schema([pa.field(name, to_arrow(parse_type(text))) for name, text in PLAIN.items()])


class Landing:
    """One directory of files, and one database that names them."""

    def __init__(self, root: Path):
        self._root = root
        self._lock = threading.Lock()
        self._keys = sqlite3.connect(root / "keys.db", isolation_level=None, check_same_thread=False)
        self._keys.execute("PRAGMA journal_mode = WAL")
        self._keys.execute("PRAGMA synchronous = FULL")
        self._keys.execute("CREATE TABLE batch (key TEXT PRIMARY KEY, path TEXT NOT NULL, rows INTEGER NOT NULL)")

    def land(self, key: str, body: bytes) -> int:
        found: list[dict[str, Any]] = []
        for line in body.splitlines():
            row = json.loads(line)
            row["ts"] = datetime.fromisoformat(row["ts"])
            found.append(row)
        path = self._root / f"{uuid.uuid4()}.parquet"
        with open(path, "wb") as file:
            pq.write_table(pa.Table.from_pylist(found, SCHEMA), file)
            file.flush()
            os.fsync(file.fileno())
        self._fsync_directory()
        with self._lock:
            self._keys.execute("INSERT INTO batch VALUES (?, ?, ?)", (key, path.name, len(found)))
        return len(found)

    def _fsync_directory(self) -> None:
        directory = os.open(self._root, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def application(landing: Landing) -> FastAPI:
    app = FastAPI()

    @app.post("/v1/ingest/{table}")
    async def ingest(table: str, request: Request, idempotency_key: Annotated[str, Header()]) -> dict[str, Any]:
        rows = await run_in_threadpool(landing.land, idempotency_key, await request.body())
        return {"rows_ingested": rows, "replayed": False}

    return app


def main() -> None:
    # With the protocol named asyncio sends small answers at once; else each one waits 40 ms for an acknowledgement.
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    config = uvicorn.Config(application(Landing(Path(sys.argv[1]))), http="h11", log_level="error", access_log=False)
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
