"""Stores that older versions of Headwater made: `formats/` holds them, one for each database."""

from __future__ import annotations

import sqlite3
import tarfile
from pathlib import Path

import psycopg

FORMATS = Path(__file__).parent / "formats"


def load_catalog(dump: str, store_root: Path, url: str) -> None:
    """Make the catalog that a dump holds."""
    if url == "sqlite":
        with sqlite3.connect(store_root / "meta.sqlite") as connection:
            connection.executescript(dump)
        connection.close()
    else:
        with psycopg.connect(url, autocommit=True) as server:
            server.execute(dump.encode())


def unpack_project(root: Path, url: str) -> Path:
    """A project of format 4 whose last apply was killed (`formats/make_store.py`); returns where its store is."""
    with tarfile.open(FORMATS / f"4.{'sqlite' if url == 'sqlite' else 'postgresql'}.tar.xz") as archive:
        archive.extractall(root, filter="data")
    store_root = root / ".headwater" / "context" / "shop"
    load_catalog((root / "catalog.sql").read_text(), store_root, url)
    return store_root
