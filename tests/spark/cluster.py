"""A Spark standalone cluster on loopback: one master, some workers, each a process that this one owns.

It runs on whatever Java `find_java` finds, through Spark's own `spark-class`, as a real cluster would.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import urllib.request
from pathlib import Path
from types import TracebackType

from headwater.spark.gateway import spark_home
from headwater.spark.java import find_java
from spark.children import die_with_parent, running, wait_until

LOOPBACK = "127.0.0.1"


class LocalCluster:
    """`with LocalCluster() as cluster:` waits until all workers have joined `cluster.url`, and ends every process
    of the cluster on the way out."""

    def __init__(self, workers: int = 2, *, cores: int = 1, memory: str = "1g"):
        self._count, self._cores, self._memory = workers, cores, memory
        self._port, self._web_port = _free_ports(2)
        self._directory = Path(tempfile.mkdtemp(prefix="headwater-cluster-"))
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        return f"spark://{LOOPBACK}:{self._port}"

    def __enter__(self) -> LocalCluster:
        try:
            self._run("master.Master", "--port", str(self._port), "--webui-port", str(self._web_port))
            for _ in range(self._count):
                size = ["--cores", str(self._cores), "--memory", self._memory]
                self._run("worker.Worker", *size, "--webui-port", "0", self.url)
            wait_until(lambda: self.alive_workers() == self._count, "the workers join the master")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def alive_workers(self) -> int:
        """How many workers the master counts."""
        assert all(process.poll() is None for process in self._processes[:1]), self._logs()
        try:
            with urllib.request.urlopen(f"http://{LOOPBACK}:{self._web_port}/json/", timeout=5) as answer:
                return int(json.load(answer)["aliveworkers"])
        except (OSError, ValueError):
            return 0

    def kill_worker(self, index: int) -> None:
        """SIGKILL for a worker and its executors, as when a machine is lost; they are gone when this returns."""
        worker = self._processes[1 + index]
        lost = self.executors(index)
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()
        wait_until(lambda: not any(map(running, lost)), "the executors of the lost worker end")

    def executors(self, index: int) -> list[int]:
        """The process ids of a worker's executors."""
        group = self._processes[1 + index].pid
        return [pid for pid in _group_members(group) if pid != group]

    def _run(self, name: str, *arguments: str) -> None:
        """A process in a group of its own, which its children join."""
        number = len(self._processes)
        environment = {
            **os.environ,
            "JAVA_HOME": str(find_java().home),
            "SPARK_HOME": str(spark_home()),
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_WORKER_DIR": str(self._directory / f"work-{number}"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        with open(self._directory / f"{number}.log", "wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [spark_home() / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", "--host", LOOPBACK]
                    + list(arguments),
                    env=environment,
                    cwd=self._directory,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    process_group=0,
                    preexec_fn=die_with_parent,
                )
            )

    def _end(self) -> None:
        for process in reversed(self._processes):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _logs(self) -> str:
        return "\n".join(log.read_text(errors="replace")[-2_000:] for log in sorted(self._directory.glob("*.log")))


def _group_members(group: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ProcessLookupError):
                if os.getpgid(int(entry.name)) == group:
                    found.append(int(entry.name))
    return found


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind((LOOPBACK, 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
