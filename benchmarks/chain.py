"""A chain of three trivial SQL pipelines under a warm server: the time of a pulse, runs a second under a Wave, memory.
Beside it Duckstring doing the same, in the version before its own changed form of demand and in the newest.

    python benchmarks/chain.py [--turns N] [--pulses N] [--seconds N] [--further N] [--their-further N]

Each pipeline makes a table of 100 rows; the first one's rows are new each time, so that all three run. Headwater has an
Inlet in front of them, whose source does not change; Duckstring's first one is its Inlet. A pulse is one HTTP request;
it ends when the server's own record says that the last of the three has ended, whatever the asking for that record
takes. The servers run one after the other, each alone on the machine: 100 pulses to get warm, then turns of a few pulses
one right after the other. The first pulse of each turn is reported separately: a server that has rested may have gone to sleep.
`Spark alone` is the same three statements, one after the other, in a session of the same settings: what of Headwater's
pulse is Spark's own. Memory is the proportional set size of all processes of a server, after the pulses; what a further
pipeline takes is counted in memory that no other process shares.

Duckstring is installed from PyPI into environments of its own, which are kept in the user's cache; without a network
and without them, Headwater is measured beside Spark alone, and the report says so.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from measure import Claim, arguments, headwater, machine, report

CHAIN = ("one", "two", "three")
ROWS = 100
POLL_SECONDS = 0.02
START_SECONDS = 180
PULSE_SECONDS = 60
REST_SECONDS = 5
WARM_PULSES = 100
"""As many for every server: by then a JVM has compiled most of what a pulse needs."""
WAVES = 3
VERSIONS = {"0.4.0": {"DUCKSTRING_DATA_PLANE": "parquet"}, "newest": {}}
"""Versions of Duckstring, and the settings they run with."""
SQL = {
    "one": "SELECT id, amount, current_timestamp() AS made FROM src",
    "two": "SELECT id, amount * 2 AS amount, made FROM one",
    "three": "SELECT count(*) AS n, sum(amount) AS total, max(made) AS made FROM two",
}
THEIR_SQL = {**SQL, "one": f"SELECT i AS id, i * 1.5 AS amount, now() AS made FROM range({ROWS}) rows(i)"}


@dataclass
class Server:
    """A server that was started here, and is ended by its own process."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.loads(response.read() or b"null")

    def memory(self) -> dict[str, int]:
        """Bytes of all processes of the server: with its share of what it shares with others, and what it has alone."""
        import psutil

        root = psutil.Process(self.process.pid)
        found = [each.memory_full_info() for each in (root, *root.children(recursive=True))]
        return {
            "all": sum(int(getattr(info, "pss", info.rss)) for info in found),
            "private": sum(int(info.uss) for info in found),
            "first": int(found[0].uss),
        }

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    # What differs between the two kinds of server.

    def ended(self, pipeline: str, newest: int = 200) -> list[float]:
        """When those of the newest runs of a pipeline that ended well did so, in seconds since the epoch."""
        raise NotImplementedError

    def pulse(self, pipeline: str) -> None:
        raise NotImplementedError

    def wave(self, pipeline: str) -> None:
        raise NotImplementedError


AnyServer = TypeVar("AnyServer", bound=Server)


class OurServer(Server):
    def ended(self, pipeline: str, newest: int = 200) -> list[float]:
        runs = self.call("GET", f"/v1/runs?pipeline={pipeline}&limit={newest}")["runs"]
        begun = [(moment(run["started_at"]), run["seconds"]) for run in runs if run["state"] == "success"]
        return [began + seconds for began, seconds in begun]

    def pulse(self, pipeline: str) -> None:
        self.call("POST", f"/v1/pipelines/{pipeline}/pulse")

    def wave(self, pipeline: str) -> None:
        self.call("POST", f"/v1/pipelines/{pipeline}/wave")

    def calm(self) -> None:
        """Removes what `wave` has set."""
        for trigger in self.call("GET", "/v1/triggers")["triggers"]:
            self.call("DELETE", f"/v1/pipelines/{trigger['pipeline']}/triggers/{trigger['trigger_id']}")


class OldDuckstring(Server):
    def ended(self, pipeline: str, newest: int = 200) -> list[float]:
        runs = self.call("GET", f"/api/runs?pond={pipeline}&lineage=false&limit={newest}")["runs"]
        return [moment(run["finished_at"]) for run in runs if run["finished_at"] and run["status"] == "success"]

    def pulse(self, pipeline: str) -> None:
        self.call("POST", f"/api/ponds/{pipeline}/pulse")

    def wave(self, pipeline: str) -> None:
        self.call("POST", f"/api/ponds/{pipeline}/wave")


class NewDuckstring(OldDuckstring):
    """Its words for a pulse and a Wave are `refresh now` and `refresh add --continuous`."""

    def pulse(self, pipeline: str) -> None:
        self.call("POST", f"/api/ponds/{pipeline}/refresh")

    def wave(self, pipeline: str) -> None:
        self.call("POST", f"/api/ponds/{pipeline}/refreshes", {"every_seconds": 0})


def moment(text: str) -> float:
    found = datetime.fromisoformat(text)
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()


# --- the servers


@contextmanager
def our_server(root: Path) -> Iterator[OurServer]:
    (root / "data").mkdir(parents=True)
    lines = (json.dumps({"id": i, "amount": i * 1.5}) for i in range(ROWS))
    (root / "data" / "src.ndjson").write_text("\n".join(lines) + "\n")
    parts = [
        '[project]\nname = "bench"\n',
        '[[pipeline]]\nid = "src"\npoll = "1ms"\nsource = { connector = "files", config = { path = "data/src.ndjson" } }\n'
        '[[pipeline.tables]]\nname = "src"\ncolumns = { id = "long", amount = "real" }\n',
        *(model(name, source, SQL[name]) for name, source in zip(CHAIN, ("src", *CHAIN))),
    ]
    (root / "headwater.toml").write_text("\n".join(parts).replace('id = "one"', 'id = "one"\nalways_run = true', 1))
    command = [headwater(), "--project", str(root), "serve", "--port", "0", "--quiet"]
    with started(command, root, {}, OurServer, url=None) as server:
        yield server


def model(name: str, source: str, sql: str) -> str:
    return (
        f'[[pipeline]]\nid = "{name}"\nsources = ["{source}"]\n[[pipeline.ripples]]\nname = "{name}"\nsql = "{sql}"\n'
    )


@contextmanager
def their_server(python: Path, root: Path, version: str, settings: Mapping[str, str], further: int) -> Iterator[Server]:
    """`further` ponds are deployed beside the chain."""
    names = {**THEIR_SQL, **{f"further_{number}": THEIR_SQL["one"] for number in range(further)}}
    for name, sql in names.items():
        source = {"two": "one", "three": "two"}.get(name)
        place = root / "ponds" / name
        (place / "src").mkdir(parents=True)
        kind = 'type = "inlet"\n' if source is None else ""
        reads = f'\n[sources]\n{source} = "1.0.0"\n' if source is not None else ""
        (place / "pond.toml").write_text(f'[pond]\nname = "{name}"\nversion = "1.0.0"\n{kind}{reads}')
        read = f'    pond.read_table("{source}.{source}")\n' if source is not None else ""
        (place / "src" / "pond.py").write_text(
            f"from duckstring import ripple\n\n\n@ripple\ndef {name}(pond):\n{read}"
            f'    pond.write_table("{name}", pond.con.sql("{sql}"))\n'
        )
    command, port = str(python.parent / "duckstring"), free_port()
    environment = {**settings, "HOME": str(root)}
    serve = [
        command,
        "catchment",
        "init",
        "--name",
        "bench",
        "--root",
        str(root / "state"),
        "--port",
        str(port),
        "--yes",
    ]
    kind_ = OldDuckstring if version == "0.4.0" else NewDuckstring
    with started(serve, root, environment, kind_, url=f"http://127.0.0.1:{port}") as server:
        deploy = [command, "pond", "deploy", "--all", "--yes", "--catchment", "bench"]
        done = subprocess.run(
            deploy, cwd=root / "ponds", env=os.environ | environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"Duckstring {version} took no deploy: {done.stdout[-1500:]}{done.stderr[-1500:]}")
        yield server


@contextmanager
def started(
    command: Sequence[str], root: Path, environment: Mapping[str, str], kind: type[AnyServer], *, url: str | None
) -> Iterator[AnyServer]:
    """Runs a server until the block ends. Its address is read from what it says, unless it is known."""
    log = root / "server.log"
    with open(log, "wb") as output:
        process = subprocess.Popen(command, cwd=root, env=os.environ | environment, stdout=output, stderr=output)
    server = kind(process, url or "", log)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not answers(server):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"a server did not start: {log.read_text()[-3000:]}")
            time.sleep(0.1)
        yield server
    finally:
        server.stop()


def answers(server: Server) -> bool:
    if not server.url:
        said = re.search(r"http://[0-9.]+:[0-9]+", server.log.read_text())
        if said is None:
            return False
        server.url = said[0]
    with suppress(OSError, ValueError):
        server.call("GET", "/health" if isinstance(server, OurServer) else "/api/status")
        return True
    return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def duckstring_python(version: str) -> Path:
    """The Python of an environment with that version of Duckstring alone; made the first time."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "headwater-bench"
    place = cache / f"duckstring-{version}"
    python = place / "bin" / "python"
    wanted = "duckstring" if version == "newest" else f"duckstring=={version}"
    if not (place / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True, capture_output=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "--upgrade", wanted]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode != 0 and not (place / "ready").exists():
        raise RuntimeError(f"Duckstring {version} cannot be installed: {done.stderr.strip().splitlines()[-1:]}")
    (place / "ready").touch()
    return python


def version_of(python: Path) -> str:
    asked = "import importlib.metadata as m; print(m.version('duckstring'))"
    return subprocess.run([str(python), "-c", asked], capture_output=True, text=True, check=True).stdout.strip()


# --- what is measured


def pulse(server: Server) -> float:
    """Seconds from the request until the record of the chain's last run."""
    began = time.time()
    server.pulse(CHAIN[-1])
    deadline = time.monotonic() + PULSE_SECONDS
    while time.monotonic() < deadline:
        later = [ended for ended in server.ended(CHAIN[-1], newest=3) if ended > began]
        if later:
            return min(later) - began
        time.sleep(POLL_SECONDS)
    raise RuntimeError(f"a pulse did not end: {server.log.read_text()[-3000:]}")


def runs_a_second(server: Server, seconds: int) -> float:
    """Runs of the three under a Wave on the last, after a moment to get going."""
    server.wave(CHAIN[-1])
    time.sleep(2)
    began = time.time()
    time.sleep(seconds)
    ended = time.time()
    return sum(began < each <= ended for name in CHAIN for each in server.ended(name)) / seconds


SPARK_ALONE = f"""
import sys, time
from headwater.spark.session import SparkSettings, spark_session
spark = spark_session(SparkSettings(app_name="bench"))
data, out = sys.argv[1:]
for _ in sys.stdin:
    began = time.perf_counter()
    spark.read.schema("id long, amount double").json(data).createOrReplaceTempView("src")
    for name, sql in {SQL!r}.items():
        spark.sql(sql).write.mode("overwrite").parquet(f"{{out}}/{{name}}")
        spark.read.parquet(f"{{out}}/{{name}}").createOrReplaceTempView(name)
    print(time.perf_counter() - began, flush=True)
"""


@contextmanager
def spark_alone(root: Path, data: Path) -> Iterator[Callable[[], float]]:
    """What runs the three statements once more in one session, and tells the seconds."""
    root.mkdir()
    command = [sys.executable, "-c", SPARK_ALONE, str(data), str(root / "out")]
    with (
        open(root / "log", "wb") as log,
        subprocess.Popen(
            command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        ) as child,
    ):

        def run() -> float:
            assert child.stdin is not None and child.stdout is not None
            child.stdin.write("\n")
            child.stdin.flush()
            answer = child.stdout.readline()
            if not answer:
                raise RuntimeError(f"Spark alone failed: {(root / 'log').read_text()[-3000:]}")
            return float(answer)

        try:
            yield run
        finally:
            assert child.stdin is not None
            child.stdin.close()  # the end of its input ends it


def their_memory_per_pond(server: Server, further: int) -> float:
    """Bytes that one more pond which has just run takes."""
    before = server.memory()["private"]
    for number in range(further):
        name = f"further_{number}"
        server.pulse(name)
        deadline = time.monotonic() + PULSE_SECONDS
        while not server.ended(name) and time.monotonic() < deadline:
            time.sleep(0.1)
    return (server.memory()["private"] - before) / further


def warmed(server: Server, pulses: int = WARM_PULSES) -> Server:
    for _ in range(pulses):
        pulse(server)
    return server


def measure(root: Path, asked: Any) -> tuple[dict[str, dict[str, Any]], list[str]]:
    found: dict[str, dict[str, Any]] = {}
    missing: list[str] = []
    with our_server(root / "ours") as ours:
        found["Headwater"] = {**pulses_of(ours, asked), **waves_of(ours, asked)}
        ours.calm()
        found["Headwater"].update(our_memory_per_pipeline(ours, root / "ours", asked.further))
    for version, settings in VERSIONS.items():
        try:
            python = duckstring_python(version)
            name = f"Duckstring {version_of(python)}"
            with their_server(python, root / version, version, settings, asked.their_further) as theirs:
                measured = pulses_of(theirs, asked)
                measured["further_kb"] = round(their_memory_per_pond(theirs, asked.their_further) / 1e3)
                found[name] = {**measured, **waves_of(theirs, asked)}
        except (RuntimeError, OSError, urllib.error.URLError, subprocess.CalledProcessError) as error:
            missing.append(f"Duckstring {version}: {str(error).strip().splitlines()[0]}")
    with spark_alone(root / "spark", root / "ours" / "data" / "src.ndjson") as spark:
        alone = [spark() for _ in range(WARM_PULSES + asked.turns * asked.pulses)][WARM_PULSES:]
    found["Spark alone"] = {"pulse_ms": milliseconds(alone), "pulse_p50_ms": round(statistics.median(alone) * 1000)}
    return found, missing


def pulses_of(server: Server, asked: Any) -> dict[str, Any]:
    warmed(server)
    pulses: list[float] = []
    rested: list[float] = []
    for _ in range(asked.turns):
        time.sleep(REST_SECONDS)
        rested.append(pulse(server))
        pulses += [pulse(server) for _ in range(asked.pulses)]
    return {
        "pulse_ms": milliseconds(pulses),
        "rested_ms": milliseconds(rested),
        "pulse_p50_ms": round(statistics.median(pulses) * 1000),
        "pulse_after_a_rest_p50_ms": round(statistics.median(rested) * 1000),
        "memory_mb": round(server.memory()["all"] / 1e6),
    }


def waves_of(server: Server, asked: Any) -> dict[str, Any]:
    waves = [round(runs_a_second(server, asked.seconds), 1) for _ in range(WAVES)]
    return {"waves": waves, "wave_runs_per_second": statistics.median(waves)}


def milliseconds(seconds: Sequence[float]) -> list[int]:
    return [round(each * 1000) for each in seconds]


def our_memory_per_pipeline(server: Server, root: Path, further: int) -> dict[str, Any]:
    """What idle pipelines take that are written into the manifest of the running server. They must be many: what an
    allocator keeps for later is some megabytes."""
    before = server.memory()
    manifest = root / "headwater.toml"
    more = [model(f"further_{number}", "src", "SELECT * FROM src") for number in range(further)]
    whole = manifest.with_suffix(".new")
    whole.write_text("\n".join([manifest.read_text(), *more]))
    whole.replace(manifest)
    deadline = time.monotonic() + PULSE_SECONDS
    while len(server.call("GET", "/v1/pipelines")["pipelines"]) <= further:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the changed manifest was not taken: {server.log.read_text()[-3000:]}")
        time.sleep(0.2)
    warmed(server, 3)
    after = server.memory()
    each = {part: (after[part] - before[part]) / further / 1e3 for part in ("first", "private")}
    return {"further_kb": round(each["first"], 1), "further_with_jvm_kb": round(each["private"], 1)}


def claims_of(found: Mapping[str, Mapping[str, Any]]) -> list[Claim]:
    ours, alone = found["Headwater"]["pulse_p50_ms"], found["Spark alone"]["pulse_p50_ms"]
    runs = found["Headwater"]["wave_runs_per_second"]
    claims = [
        Claim("warm pulse through three pipelines", ours / 1000, 0.35, unit=" s"),
        Claim("runs under a Wave, median of three", runs, 20, at_most=False, unit=" runs/s"),
        Claim("memory of a further idle pipeline", found["Headwater"]["further_kb"], 100, unit=" KB"),
    ]
    for name, theirs in found.items():
        if name.startswith("Duckstring"):
            allowed = theirs["pulse_p50_ms"] + alone
            claims.append(Claim(f"warm pulse: time of {name} and of Spark's own job together", ours / allowed, 1.0))
            claims.append(
                Claim(
                    f"further pipeline: memory of {name}", found["Headwater"]["further_kb"] / theirs["further_kb"], 0.1
                )
            )
    return claims


def main() -> int:
    asked = arguments(__doc__, turns=5, pulses=5, seconds=15, further=2_000, their_further=5)
    here = machine()
    with tempfile.TemporaryDirectory(prefix="headwater-bench-", ignore_cleanup_errors=True) as scratch:
        found, missing = measure(Path(scratch), asked)
    keys = (
        "pulse_p50_ms",
        "pulse_after_a_rest_p50_ms",
        "wave_runs_per_second",
        "memory_mb",
        "further_kb",
        "further_with_jvm_kb",
    )
    rows = [["chain of three", *found]]
    rows += [[key.replace("_", " "), *(str(each.get(key, "")) for each in found.values())] for key in keys]
    for text in missing:
        print(f"not measured: {text}", file=sys.stderr)
    details = {"turns": asked.turns, "pulses": asked.pulses, "machine": here, "servers": found, "not_measured": missing}
    return report("chain", claims_of(found), details, rows)


if __name__ == "__main__":
    raise SystemExit(main())
