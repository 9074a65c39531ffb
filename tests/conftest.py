"""Fixtures that tests of several rooms share."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from postgres_server import PostgresServer
from postgres_server import postgres_server as run_server

LONG = (
    "freshness/test_sizes.py",
    "freshness/test_properties.py",
    "freshness/test_engine_equals_reference.py",
    "freshness/test_saving.py",
    "property/test_catalog_replay.py",
    "property/test_coerce.py",
    "property/test_files_once.py",
    "property/test_upsert_views.py",
    "contract/test_gc_verify_rebuild.py",
    "contract/test_jobs.py",
    "contract/test_leases.py",
    "contract/test_engine_home.py",
    "contract/test_ingest.py",
    "contract/test_ingest_bad_rows.py",
    "unit/connectors/test_postgres_slices.py",
    "unit/faces/test_timeline_svg.py",
    "unit/faces/http/test_ingest.py",
    "unit/faces/http/test_ingest_cases.py",
    "unit/faces/test_ingest_command.py",
)
"""Files whose tests run after the fast part: it is to be over in a minute."""

# No example has a time limit: machines are slow when they like. Each run draws other examples.
settings.register_profile("house", deadline=None, max_examples=60)
settings.load_profile("house")

MEMORY = Path("/dev/shm")
MEMORY_BYTES = 1 << 30

if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES:
    # A store syncs several times a commit, and means it: on a disk the tests would mostly wait for that.
    tempfile.tempdir = str(MEMORY)

if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # A shell's background job ignores SIGINT, and so would every child that a test wants to interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure() -> None:
    gc.disable()


def pytest_collection_finish() -> None:
    """The thousands of collected tests are no garbage: Python need not look through them again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)
    gc.enable()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # DuckDB's binding counts what is left at the end


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The PostgreSQL of this test session. A test that stops or restarts it must leave it running."""
    with run_server() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of an empty database, of this test alone."""
    url = postgres_server.create_database()
    yield url
    postgres_server.give_back(url)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.as_posix().endswith(LONG):
            item.add_marker(pytest.mark.long)
