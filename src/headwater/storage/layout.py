"""Where things are in a store's directory. Paths that the catalog keeps are relative to the root, with `/`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple


class Layout:
    """The directory of one project's store."""

    def __init__(self, root: Path):
        self.root, self.sqlite, self.config = root, root / "meta.sqlite", root / "config.toml"
        self.log, self.stats, self.tables = root / "log", root / "stats", root / "tables"
        self.views, self.duck = root / "views", root / "duck.db"

    def log_record(self, seq: int) -> Path:
        return self.log / f"{seq:012d}.json"

    def values_of(self, seq: int) -> Path:
        """The cell values of a log record."""
        return self.stats / f"{seq:012d}.json"

    def checkpoint(self, seq: int) -> Path:
        return self.log / f"checkpoint-{seq:012d}"


def attempt_directory(table: str, *, run_id: str, node: str, unit_id: str, attempt: int) -> str:
    """The directory that one attempt at one unit of work writes to, and nothing else ever does."""
    return f"tables/{table}/data/runs/{run_id}/{node}/chunk-{unit_id}/attempt-{attempt}"


class Attempt(NamedTuple):
    """Which attempt at which unit of work a directory belongs to."""

    table: str
    unit_id: str
    attempt: int


_ATTEMPT = re.compile(r"tables/([^/]+)/data/runs/[^/]+/[^/]+/chunk-([^/]+)/attempt-(\d+)(?:/.*)?")


def parse_attempt(path: str) -> Attempt | None:
    """The attempt that wrote the file at this relative path; None for a path that no attempt has."""
    found = _ATTEMPT.fullmatch(path)
    return None if found is None else Attempt(found[1], found[2], int(found[3]))
