"""Fixtures that tests of several rooms share."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest
from hypothesis import settings

from postgres_server import PostgresServer
from postgres_server import postgres_server as run_server

# No example has a time limit: machines are slow when they like.
settings.register_profile("house", deadline=None)
settings.load_profile("house")

if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # A shell's background job ignores SIGINT, and so would every child that a test wants to interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The PostgreSQL of this test session. A test that stops or restarts it must leave it running."""
    with run_server() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of a fresh database, dropped after the test."""
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)
