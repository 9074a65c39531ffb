"""The one Spark session of this process: started when needed, shared by all threads, quiet, and ended with the process.

`spark_session` starts it the fast way if possible (a local master, no packages, nothing in the environment that only
Spark's launcher understands) and, if that fails, the ordinary way. The session is the same either way.

Environment: the JVM and, in local mode, the Python workers inherit the environment of this process as it is when the
session starts; later changes do not reach them.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.spark import archive as archives
from headwater.spark.cache import cache_directory
from headwater.spark.gateway import Gateway, fast_command, log_options, ordinary_command, python_path, spark_home
from headwater.spark.java import Java, find_java
from headwater.spark.machine_size import MEBIBYTE, cores, heap_bytes, local_cores
from headwater.spark.small_runs import DECLARED_KEYS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_LAUNCHER_CONF = (
    "spark.jars",
    "spark.files",
    "spark.archives",
    "spark.submit",
    "spark.plugins",
    "spark.driver.extra",
    "spark.driver.default",
    "spark.driver.userClassPathFirst",
    "spark.executor.extra",
    "spark.yarn",
    "spark.kubernetes",
    "spark.remote",
)
"""Settings that need Spark's own launcher."""
_LAUNCHER_ENVIRONMENT = (
    "SPARK_HOME",
    "SPARK_CONF_DIR",
    "SPARK_DIST_CLASSPATH",
    "SPARK_SUBMIT_OPTS",
    "SPARK_DRIVER_MEMORY",
    "PYSPARK_SUBMIT_ARGS",
    "HADOOP_CONF_DIR",
    "YARN_CONF_DIR",
)


@dataclass(frozen=True)
class SparkSettings:
    """The manifest's `[spark]`. `conf` wins over everything that Headwater sets; `python` is the interpreter of the
    workers (default: this one); `driver_memory` is a JVM size such as `2g`."""

    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)
    packages: tuple[str, ...] = ()
    python: str | None = None
    driver_memory: str | None = None
    app_name: str = "headwater"


@dataclass(frozen=True)
class _Live:
    """The session of this process. `gateway` is None if other code started the JVM: then we do not end it."""

    settings: SparkSettings
    session: SparkSession
    gateway: Gateway | None
    archive: archives.Archive | None
    process: int


_lock = threading.RLock()
_live: _Live | None = None


def spark_session(settings: SparkSettings | None = None, *, fast: bool = True) -> SparkSession:
    """The session of this process, started if there is none or if its JVM has died. `fast=False` is for processes that
    live long: they compile hot code fully. Raises HW-J01 without a usable Java, HW-J02 if Spark does not start or runs
    here with other settings."""
    global _live
    settings = settings or SparkSettings()
    with _lock:
        if _live is not None and _live.process != os.getpid():
            _live = None
            _forget()
        if _live is not None and not _usable(_live):
            stop_session()
        if _live is None:
            _live = _adopt(settings) or _open(settings, fast=fast)
            atexit.register(stop_session)
        if replace(_live.settings, app_name=settings.app_name) != settings:  # the name does not matter
            raise HeadwaterError(
                "HW-J02",
                "a Spark session with other settings runs in this process",
                hint="call `stop_session()` first: a process has one Spark session",
            )
        return _live.session


def stop_session() -> None:
    """End the session, its JVM and its Python workers, and wait until they are gone. Does nothing without one."""
    global _live
    with _lock:
        live, _live = _live, None
        atexit.unregister(stop_session)
        if live is None or live.process != os.getpid() or live.gateway is None:
            return
        _close(live.session, live.gateway)
        if live.archive is not None:
            live.archive.release()


def cancel_jobs() -> None:
    """Make all running jobs fail now, for a caller that wants to end. Does nothing without a session."""
    live = _live
    if live is not None and live.process == os.getpid() and _usable(live):
        live.session.sparkContext.cancelAllJobs()


def session_conf(settings: SparkSettings) -> dict[str, str]:
    """The whole configuration of a session; the settings' own values win."""
    conf = {
        "spark.master": settings.master,
        "spark.app.name": settings.app_name,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.ui.retainedJobs": str(limits.SPARK_RETAINED),
        "spark.ui.retainedStages": str(limits.SPARK_RETAINED),
        "spark.sql.ui.retainedExecutions": str(limits.SPARK_RETAINED),
        "spark.scheduler.mode": "FAIR",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.legacy.parquet.nanosAsLong": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(limits.ARROW_BATCH_ROWS),
        "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
        "spark.python.worker.faulthandler.enabled": "true",
        "spark.python.worker.reuse": "true",
    }
    slots = local_cores(settings.master)
    if slots is not None:
        # Tables live in the store, never in a warehouse; this keeps Spark from making one in the current directory.
        conf["spark.sql.warehouse.dir"] = (cache_directory() / "warehouse").as_uri()
        conf["spark.sql.shuffle.partitions"] = str(max(2, slots))
        conf["spark.driver.memory"] = f"{heap_bytes() // MEBIBYTE}m"
    if slots is not None or _on_loopback(settings.master):
        conf["spark.driver.host"] = conf["spark.driver.bindAddress"] = "127.0.0.1"
    if settings.packages:
        conf["spark.jars.packages"] = ",".join(settings.packages)
    conf.update(settings.conf)
    if settings.conf:
        conf[DECLARED_KEYS] = ",".join(settings.conf)
    if settings.driver_memory:
        conf["spark.driver.memory"] = settings.driver_memory
    return conf


def fast_start_fits(settings: SparkSettings) -> bool:
    """True if no setting needs Spark's own launcher."""
    return (
        local_cores(settings.master) is not None
        and not settings.packages
        and not any(key.startswith(_LAUNCHER_CONF) for key in settings.conf)
        and not any(os.environ.get(name) for name in _LAUNCHER_ENVIRONMENT)
        and not (spark_home() / "conf" / "spark-defaults.conf").exists()
    )


def start_direct(
    settings: SparkSettings, java: Java, *, archive: archives.Archive | None, short: bool, options: Sequence[str] = ()
) -> tuple[SparkSession, Gateway]:
    """The fast way, without a fallback: raises HW-J02 if it does not work. `options` are more options for the JVM."""
    conf = session_conf(settings)
    command = fast_command(
        java,
        class_path=archive.class_path if archive else archives.class_path(spark_home()),
        archive=archive.file if archive else None,
        heap=conf["spark.driver.memory"],
        short=short,
        cores=cores(),
        options=options,
    )
    return _start(command, settings, conf, _environment(settings))


def _open(settings: SparkSettings, *, fast: bool) -> _Live:
    java = find_java()
    if fast_start_fits(settings):
        archive = archives.find_archive(java)
        try:
            session, gateway = start_direct(settings, java, archive=archive, short=fast)
        except HeadwaterError as error:
            if archive is not None:
                if error.detail.get("crashed"):
                    archive.discard()
                archive.release()
        else:
            if archive is None:
                archives.ensure_archive_async()
            return _Live(settings, session, gateway, archive, os.getpid())
    session, gateway = _start_ordinary(settings, java)
    return _Live(settings, session, gateway, None, os.getpid())


def _start_ordinary(settings: SparkSettings, java: Java) -> tuple[SparkSession, Gateway]:
    conf = session_conf(settings)
    options = conf.get("spark.driver.extraJavaOptions", "")
    conf["spark.driver.extraJavaOptions"] = " ".join([*log_options(), options]).strip()
    home = Path(os.environ.get("SPARK_HOME") or spark_home())
    environment = {**_environment(settings), "JAVA_HOME": str(java.home), "SPARK_HOME": str(home)}
    with tempfile.TemporaryDirectory(prefix="headwater-spark-") as directory:
        properties = Path(directory) / "spark.properties"
        properties.touch(mode=0o600)
        properties.write_text("".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in conf.items()))
        return _start(ordinary_command(home, properties), settings, conf, environment)


def _start(
    command: Sequence[str], settings: SparkSettings, conf: Mapping[str, str], environment: Mapping[str, str]
) -> tuple[SparkSession, Gateway]:
    gateway = Gateway(command, environment)
    try:
        # The import takes as long as the JVM's first steps, so both run at the same time.
        from pyspark.sql import SparkSession

        port, secret = gateway.connect()
        builder = SparkSession.builder
        for key, value in conf.items():
            builder = builder.config(key, value)
        taken_from_environment = {
            "PYSPARK_GATEWAY_PORT": str(port),
            "PYSPARK_GATEWAY_SECRET": secret,
            "PYSPARK_PYTHON": settings.python or sys.executable,
        }
        with _signals_kept(), _variables(taken_from_environment):
            session = builder.getOrCreate()
        _hush_accumulators(session)
        _keep_call_sites()
        return session, gateway
    except HeadwaterError as error:
        gateway.end()
        raise replace(error, message=f"Spark did not start with master `{settings.master}`: {error.message}") from error
    except Exception as error:
        gateway.end()
        _forget()
        raise gateway.failure(f"Spark did not start with master `{settings.master}`: {_first_line(error)}") from error
    except BaseException:
        gateway.end()
        _forget()
        raise


def _adopt(settings: SparkSettings) -> _Live | None:
    """A session that other code started in this process (a notebook, a platform) is used as it is."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is None:
        if SparkContext._gateway is None:
            return None
        # A gateway without a context is a JVM that was left behind; a new context would be bound to it.
        _forget()
        return None
    return _Live(settings, SparkSession.builder.getOrCreate(), None, None, os.getpid())


def _keep_call_sites() -> None:
    """PySpark can record where in a user's file a column was made, and errors show it. It decides that once in a
    process, and against it if no session is active at that moment; so the decision is forced now."""
    from pyspark.errors.utils import is_debugging_enabled

    is_debugging_enabled()


def _usable(live: _Live) -> bool:
    if live.gateway is not None and not live.gateway.alive:
        return False
    return getattr(live.session.sparkContext, "_jsc", None) is not None


def _close(session: SparkSession, gateway: Gateway) -> None:
    context = session.sparkContext
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        # Its thread checks for the end once a second. It is a daemon, so this process need not wait for it.
        context._accumulatorServer = None  # type: ignore[assignment]
        threading.Thread(target=server.shutdown, daemon=True).start()
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    if gateway.alive:
        with contextlib.suppress(Exception):
            session.stop()
    _hang_up()
    gateway.end()
    _forget()


def _hush_accumulators(session: SparkSession) -> None:
    """pyspark's accumulator server prints a traceback when the JVM ends and closes its connection; this hides it."""
    server = getattr(session.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None


def _hang_up() -> None:
    """Send nothing more to the JVM. Python collects its proxies of Java objects at any time, and py4j would report each
    to a JVM that is ending, and each failure to stderr."""
    from pyspark import SparkContext

    if SparkContext._gateway is None:
        return
    SparkContext._gateway._gateway_client.is_connected = False
    with contextlib.suppress(Exception):
        SparkContext._gateway.shutdown_callback_server()
    with contextlib.suppress(Exception):
        # Not connected, it sends no command, and ends py4j's thread that reports them.
        SparkContext._gateway._gateway_client.shutdown_gateway()


def _forget() -> None:
    """Clear what pyspark keeps of a JVM that is gone; pyspark has no function for it."""
    if "pyspark" not in sys.modules:
        return
    from pyspark import SparkContext
    from pyspark.sql import SparkSession, SQLContext

    _hang_up()
    SparkContext._active_spark_context = None
    SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    SQLContext._instantiatedContext = None


def _environment(settings: SparkSettings) -> dict[str, str]:
    """The JVM's environment. Without SPARK_HOME its Python workers import the installed, compiled pyspark; with it they
    would compile it from a zip at every start."""
    environment = {key: value for key, value in os.environ.items() if key not in {"SPARK_HOME", "SPARK_REMOTE"}}
    environment.setdefault("PYTHONHASHSEED", "0")
    environment["PYSPARK_PYTHON"] = settings.python or sys.executable
    if local_cores(settings.master) is not None:
        environment["PYTHONPATH"] = python_path()
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    return environment


def _on_loopback(master: str) -> bool:
    return master.startswith(("spark://127.", "spark://localhost:"))


def _escaped(text: str) -> str:
    """Text as a key or value of a Java properties file."""
    out = [
        f"\\u{unit:04x}" if not 0x20 < unit < 0x7F or chr(unit) in "\\=:#!" else chr(unit)
        for unit in memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    ]
    return "".join(out)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    # A Java exception's own message is on the line after py4j's introduction.
    shown = lines[1] if len(lines) > 1 and lines[0].startswith("An error occurred while calling") else lines[:1]
    return shown.lstrip(": ") if isinstance(shown, str) else (shown[0] if shown else type(error).__name__)


@contextmanager
def _variables(values: Mapping[str, str]) -> Iterator[None]:
    """Environment variables during a call: pyspark reads these settings only from there."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _signals_kept() -> Iterator[None]:
    """pyspark sets its own SIGINT handler when a context starts in the main thread; this keeps the program's."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
