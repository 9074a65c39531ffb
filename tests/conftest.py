"""Fixtures that tests of several rooms share."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from commands_once import make_commands_once
from postgres_server import PostgresServer
from postgres_server import postgres_server as run_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from serve.serving import Warm

os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "false"
"""Tests of OTLP run in the process of others, which start programs by a fork: gRPC would wait there for its threads."""

HERE = Path(__file__).parent
PLUGINS = str(HERE / "plugins")
"""The connector `flaky`, installed as a package would be: also for the processes that tests start."""
sys.path.append(PLUGINS)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), PLUGINS)))

LONG = (
    "freshness/test_sizes.py",
    "freshness/test_properties.py",
    "freshness/test_fault_properties.py",
    "freshness/test_engine_equals_reference.py",
    "freshness/test_saving.py",
    "property/test_catalog_replay.py",
    "property/test_coerce.py",
    "property/test_files_once.py",
    "property/test_forms.py",
    "property/test_otlp.py",
    "property/test_promoted_values.py",
    "property/test_upsert_views.py",
    "contract/test_gc_verify_rebuild.py",
    "contract/test_jobs.py",
    "contract/test_leases.py",
    "contract/test_engine_home.py",
    "contract/test_drop.py",
    "contract/test_ingest.py",
    "contract/test_tail.py",
    "contract/test_ingest_bad_rows.py",
    "contract/test_written.py",
    "unit/connectors/test_postgres_slices.py",
    "unit/interfaces/test_terminals.py",
    "unit/interfaces/test_timeline_svg.py",
    "unit/interfaces/http/test_attacks.py",
    "unit/interfaces/http/test_slow_clients.py",
    "unit/duck/test_query_pool.py",
    "unit/app/test_unwritable.py",
    "unit/interfaces/http/test_ingest.py",
    "unit/interfaces/http/test_memory.py",
    "unit/interfaces/http/test_ingest_cases.py",
    "unit/interfaces/test_ingest_command.py",
    "unit/app/test_deadletters.py",
    "contract/test_kept_letters.py",
    "unit/interfaces/test_promote_command.py",
    "unit/interfaces/otlp/test_exporters.py",
    "unit/interfaces/otlp/test_requests.py",
    "unit/interfaces/test_ingest_progress.py",
    "unit/interfaces/test_ingest_while_serving.py",
    "contract/test_ingest_servers.py",
    "contract/test_ingest_expiry.py",
    "property/test_push_reads_back.py",
    "property/test_coerce_mutated.py",
    "property/test_api_fuzz.py",
)
"""Files whose tests run after the fast part: it is to be over in a minute."""

SPARK = ("spark", "serve", "crash")
"""Folders whose tests all need Spark."""

FAST = "not spark and not long"
"""What `make test-fast` selects by."""

FIRST = (
    "serve/test_soak.py",
    "serve/test_crash.py",
    "serve/test_faults.py",
    "spark/test_cluster_landing.py",
)
"""Files whose tests take long each. They begin first: else one process would be at them when the other has no test left."""

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
    make_commands_once()
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


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session of the test run. A test must not stop it: what needs its own session runs in a child process."""
    from headwater.spark.session import SparkSettings, spark_session, stop_session

    yield spark_session(SparkSettings(app_name="headwater tests"))
    stop_session()


@pytest.fixture(scope="session")
def warm(spark: SparkSession) -> Iterator[Warm]:
    """Forks off `headwater` commands that use the session of the test run."""
    from serve.serving import Warm

    processes = Warm()
    yield processes
    processes.close()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The fast part does not even import what it would not run: that takes seconds in each of its processes."""
    if config.option.markexpr != FAST:
        return None
    is_spark = collection_path.parent == HERE and collection_path.name in SPARK
    return True if is_spark or collection_path.as_posix().endswith(LONG) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.as_posix().endswith(LONG):
            item.add_marker(pytest.mark.long)
    items.sort(key=lambda item: not item.path.as_posix().endswith(FIRST))
