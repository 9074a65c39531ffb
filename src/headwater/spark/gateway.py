"""The JVM that pyspark talks to: its command line, its process, its output and its end.

Spark's own launcher starts a JVM to find out how to start a JVM, and reads every class from 290 jars. The fast way
starts the gateway server directly, on one sorted class path, with a class-data archive if there is one, and with only
the quick compiler if the process will be short. The ordinary way is Spark's `spark-submit`.

The JVM ends with this process, however that ends: its gateway server waits on a pipe that only this process holds. It
has its own process group, so that a Ctrl-C reaches only this process.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.spark.cache import cache_directory, write_if_changed
from headwater.spark.java import Java

_OPENED = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)
MODULE_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
    "-Djdk.reflect.useDirectMethodHandle=false",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--enable-native-access=ALL-UNNAMED",
)
"""The options that Spark's launcher passes, except `--add-modules`, which a class-data archive does not allow."""

_LOG_CONFIG = """\
status = off
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss} %p %c{1}: %m%n%ex
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
# The gateway server prints a line when its own level is not the root's.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""


class Gateway:
    """One running JVM, owned: call `connect` once, `end` when done. `end` may be called at any time, and twice."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]):
        self._directory = Path(tempfile.mkdtemp(prefix="headwater-gateway-"))
        self._answer = self._directory / "connection"
        self._output: deque[str] = deque(maxlen=limits.JVM_OUTPUT_LINES)
        try:
            self._process = subprocess.Popen(
                command,
                env={**environment, "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._answer), "SPARK_CONNECT_MODE": "0"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
        except OSError as error:
            shutil.rmtree(self._directory, ignore_errors=True)
            raise HeadwaterError("HW-J02", f"Spark's JVM cannot be started: {error.strerror or error}") from error
        self._reader = threading.Thread(target=self._read_output, name="spark-output", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def connect(self) -> tuple[int, str]:
        """Wait for the gateway; returns its port and secret. Raises HW-J02 if the JVM ends first or takes too long."""
        deadline = time.monotonic() + limits.JVM_START_SECONDS
        try:
            while not self._answer.exists():
                if not self.alive:
                    self._reader.join(timeout=1)
                    raise self.failure(f"Spark's JVM ended with code {self._process.returncode} while it started")
                if time.monotonic() > deadline:
                    raise self.failure(f"Spark's JVM did not answer in {limits.JVM_START_SECONDS} seconds")
                time.sleep(limits.JVM_POLL_SECONDS)
            data = self._answer.read_bytes()
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)
        port, length = struct.unpack_from("!ii", data)
        return port, data[8 : 8 + length].decode()

    def failure(self, message: str) -> HeadwaterError:
        """HW-J02 with the last lines of the JVM's output, the first that reports an error in the message."""
        said = list(self._output)
        telling = next((line for line in said if "Error" in line or "Exception" in line), None)
        return HeadwaterError(
            "HW-J02",
            f"{message} ({telling})" if telling and telling not in message else message,
            hint="the last lines of its output are in the error's `detail` (`--json` shows it)",
            detail={"output": said, "crashed": (self._process.poll() or 0) < 0},
        )

    def end(self) -> None:
        """End the JVM and wait for it; kill it if it does not end."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        for stop in (self._process.terminate, self._process.kill):
            try:
                self._process.wait(limits.JVM_STOP_SECONDS)
                break
            except subprocess.TimeoutExpired:
                stop()
        self._process.wait()
        self._reader.join(timeout=1)
        shutil.rmtree(self._directory, ignore_errors=True)

    def _read_output(self) -> None:
        """Read the JVM's output to its end, so that it never blocks. `HEADWATER_SPARK_LOG` names a file that gets all
        of it."""
        assert self._process.stdout is not None
        log = os.environ.get("HEADWATER_SPARK_LOG")
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._process.stdout)
            try:
                file = stack.enter_context(open(log, "ab", buffering=0)) if log else None
            except OSError:
                file = None
            while line := self._process.stdout.readline(limits.JVM_LINE_BYTES):
                self._output.append(line.decode(errors="replace").rstrip())
                if file is not None:
                    file.write(line)


def spark_home() -> Path:
    """The Spark that comes with the installed pyspark."""
    import importlib.util

    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise HeadwaterError("HW-J02", "pyspark is not installed", hint="install headwater with its dependencies")
    return Path(spec.origin).parent


def fast_command(
    java: Java,
    *,
    class_path: str,
    archive: Path | None,
    heap: str,
    short: bool,
    cores: int,
    options: Sequence[str] = (),
) -> list[str]:
    """The gateway server, started directly. `short` is for a process of seconds: the optimising compiler would cost
    more than it gains."""
    return [
        str(java.executable),
        *MODULE_OPTIONS,
        f"-Xmx{heap}",
        # A JVM that crashes (on a torn archive, say) must not leave its report in the user's directory.
        f"-XX:ErrorFile={cache_directory()}/hs_err_%p.log",
        # An archive that does not fit, or is broken, is ignored silently.
        *(("-Xshare:auto", f"-XX:SharedArchiveFile={archive}") if archive else ()),
        *(("-XX:TieredStopAtLevel=1",) if short else ()),
        *(("-XX:+UseSerialGC" if cores <= 2 else "-XX:+UseParallelGC",) if short else ()),
        *log_options(),
        "-Djava.net.preferIPv6Addresses=false",
        *options,
        "-cp",
        class_path,
        "org.apache.spark.api.python.PythonGatewayServer",
    ]


def ordinary_command(home: Path, properties: Path) -> list[str]:
    """Spark's own launcher. The configuration is passed in a file: every user can read a command line."""
    script = str(home / "bin" / "spark-submit")
    return [script, "--load-spark-defaults", "--properties-file", str(properties), "pyspark-shell"]


def log_options() -> list[str]:
    """Log errors only, to stderr."""
    config = write_if_changed(cache_directory() / "log4j2.properties", _LOG_CONFIG)
    return [f"-Dlog4j2.configurationFile={config.as_uri()}"]


def python_path() -> str:
    """PYTHONPATH for Python processes that must import what this one can: its own value and every directory that was
    added to `sys.path` from outside of the installation."""
    installed = {Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix)}
    entries = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    for entry in sys.path:
        path = Path(entry or ".").resolve()
        if path.exists() and not any(path.is_relative_to(prefix) for prefix in installed):
            entries.append(str(path))
    return os.pathsep.join(dict.fromkeys(entries))
