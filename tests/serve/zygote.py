"""A process that has the imports done and forks off `headwater` commands, all on one Spark.

A crash test kills `serve` or `apply` dozens of times, and a JVM costs seconds each time. So the test process owns the
JVM, and each command is a fork of this one, which has no thread and no JVM; the fork attaches to the JVM when it begins.
What such a command does is what `headwater` does, but for the start of Spark: that is what the tests with real
processes are for. Jobs of a command that was killed go on in the JVM for a while, as they do on a cluster: nothing of
them may land.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from importlib import import_module
from typing import Any, NoReturn

from commands_once import make_commands_once

IMPORTED = (
    "anyio._backends._asyncio",
    "duckdb",
    "fastapi",
    "headwater.app.apply",
    "headwater.app.serve",
    "headwater.app.wait",
    "headwater.connectors.files.source",
    "headwater.connectors.registry",
    "headwater.interfaces.cli.main",
    "headwater.interfaces.http.api",
    "headwater.interfaces.http.server",
    "headwater.runtime.steps",
    "headwater.runtime.land_slice",
    "headwater.spark.ripples",
    "headwater.spark.write_frame",
    "headwater.duck.view_files",
    "pandas",
    "psycopg",
    "pyarrow.parquet",
    "pyspark.sql.classic.dataframe",
    "pyspark.sql.pandas.map_ops",
    "pyspark.testing.utils",  # pyspark looks for it when it gives Java a first value
    "sqlalchemy.dialects.postgresql",
    "sqlalchemy.dialects.sqlite",
    "sqlglot.dialects.duckdb",
    "sqlglot.dialects.spark",
    "uvicorn",
    "uvicorn.protocols.http.h11_impl",
)
"""What a command would import; one that is not here costs its time at each fork."""
_DIE_WITH_PARENT = 1


def main() -> None:
    """Answers one line of JSON for each: `{"call", "argv", "environment", "out", "err", "spark"}` forks a process that
    calls a function with the arguments, `headwater` or one of a test, and tells its pid; `{"poll": pid}` tells its exit code, or null. At the end of stdin whatever is left is killed."""
    for name in IMPORTED:
        import_module(name)
    make_commands_once()
    import_module("typer.main").get_command(import_module("headwater.interfaces.cli.main").app)
    children: set[int] = set()
    for line in sys.stdin:
        asked = json.loads(line)
        if "poll" in asked:
            pid, status = os.waitpid(asked["poll"], os.WNOHANG)
            said: int | None = os.waitstatus_to_exitcode(status) if pid else None
            if pid:
                children.discard(pid)
        else:
            said = os.fork()
            if said == 0:
                _run(asked)
            children.add(said)
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()
    for pid in children:
        os.kill(pid, signal.SIGKILL)


def _run(asked: dict[str, Any]) -> NoReturn:
    code = 70
    try:
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        os.setsid()
        for number, path in ((1, asked["out"]), (2, asked["err"])):
            target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            os.dup2(target, number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ.update(asked["environment"])
        if asked["spark"] is not None:
            _attach(*asked["spark"])
            _arm_workers(asked["environment"])
        module, _, name = asked["call"].partition(":")
        code = getattr(import_module(module), name)(asked["argv"])
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _attach(port: int, secret: str) -> None:
    """Makes the Spark of another process the session of this one; `spark_session` takes what it finds."""
    gateway_of = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    os.environ.update({**gateway_of, "PYSPARK_PYTHON": sys.executable})
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    from headwater.spark.session import _hush_accumulators, _keep_call_sites

    gateway: Any = launch_gateway()
    java = gateway.jvm.JavaSparkContext.fromSparkContext(gateway.jvm.org.apache.spark.SparkContext.getOrCreate())
    SparkContext(gateway=gateway, jsc=java, conf=SparkConf(_jconf=java.getConf()))
    session = SparkSession.builder.getOrCreate()
    _hush_accumulators(session)
    _keep_call_sites()


def _arm_workers(environment: dict[str, str]) -> None:
    """Python workers have the environment of the JVM, which is that of a test: what a worker is to die of is told it."""
    point = environment.get("HEADWATER_CRASH_AT", "")
    if point.startswith("part."):
        from pyspark import SparkContext

        context: Any = SparkContext._active_spark_context
        context.environment.update({"HEADWATER_CRASH_AT": point, "HEADWATER_CRASH_PID": str(os.getpid())})
