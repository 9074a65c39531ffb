"""doctor: checks what this machine and this project need to run. Starts no Spark and changes nothing."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import Literal

from headwater import __version__
from headwater.app.workspace import Workspace, load
from headwater.base import limits
from headwater.base.errors import ErrorList, HeadwaterError, as_headwater
from headwater.catalog.commit import open_existing
from headwater.catalog.lookup import current_seq, format_version, table_entries
from headwater.catalog.sql_tables import FORMAT_VERSION
from headwater.connectors.registry import CONNECTORS
from headwater.manifest.load import Project, find_project
from headwater.spark.gateway import spark_home
from headwater.spark.java import ask_version, find_java
from headwater.spark.machine_size import cores, heap_bytes, local_cores, memory_bytes

Verdict = Literal["ok", "warning", "problem"]

TESTED_PYTHONS = ((3, 11), (3, 13))
"""The oldest and the newest Python that the tests run on."""
_DISK_HINT = "free some space, or move the store (`[context] path`)"


@dataclass(frozen=True)
class Check:
    """One line of the report. `hint` says what to do; it is empty if there is nothing to do."""

    name: str
    verdict: Verdict
    message: str
    hint: str = ""


def examine(start: Path) -> list[Check]:
    """Every check, for the project that `start` is in, or for the machine alone. Raises nothing: a check that fails for
    an unforeseen reason is a problem with that reason."""
    project, manifest = _project(start)
    return [
        _guarded("python", _python),
        _guarded("java", _java),
        _guarded("spark", lambda: _spark(project)),
        _guarded("memory", _memory),
        _guarded("disk", lambda: _disk(project.store_root if project is not None else start)),
        _guarded("temporary files", _temporary),
        _guarded("connectors", lambda: _connectors(project)),
        manifest,
        _guarded("catalog", lambda: _catalog(project)),
    ]


def versions() -> dict[str, object]:
    """The versions of Headwater and of the packages that its results depend on; null for one that is not installed."""
    return {
        "version": __version__,
        "python": platform.python_version(),
        "pyspark": _package_version("pyspark"),
        "duckdb": _package_version("duckdb"),
        "store_format": FORMAT_VERSION,
    }


def _guarded(name: str, check: Callable[[], Check]) -> Check:
    try:
        return check()
    except OSError as error:
        return Check(name, "problem", str(error), "check the permissions, the free space and the state of the disk")
    except Exception as error:
        problem = as_headwater(error)
        return Check(name, "problem", problem.message, problem.hint)


def _project(start: Path) -> tuple[Project | None, Check]:
    """The project, if its manifest has no error, and the check of it."""
    try:
        find_project(start)
    except HeadwaterError as error:
        return None, Check("project", "warning", "not in a project: only the machine is checked", error.hint)
    try:
        project = load(start)
    except ErrorList as errors:
        return None, Check("project", "problem", errors.message, "`headwater validate` shows all of them")
    except Exception as error:
        problem = as_headwater(error)
        where = f"{problem.places[0]}: " if problem.places else ""
        return None, Check("project", "problem", f"{where}{problem.message}", problem.hint)
    return project, Check("project", "ok", f"`{project.name}` in {project.root}")


def _python() -> Check:
    message = f"Python {platform.python_version()} at {sys.executable}"
    oldest, newest = TESTED_PYTHONS
    if not oldest <= sys.version_info[:2] <= newest:
        tested = f"{oldest[0]}.{oldest[1]} to {newest[0]}.{newest[1]}"
        return Check("python", "warning", message, f"Headwater is tested on Python {tested}")
    return Check("python", "ok", message)


def _java() -> Check:
    java = find_java()
    if ask_version(java.executable) is None:
        hint = "install it again, or set JAVA_HOME to another Java"
        return Check("java", "problem", f"Java {java.version} at {java.executable} does not run", hint)
    return Check("java", "ok", f"Java {java.version} at {java.executable}")


def _spark(project: Project | None) -> Check:
    home, version = spark_home(), _package_version("pyspark")
    message = f"Spark {version} at {home}"
    if not any((home / "jars").glob("spark-core_*.jar")):
        return Check("spark", "problem", f"{message} has no jars", "install the package `pyspark`, not a client of it")
    if project is None:
        return Check("spark", "ok", message)
    section = project.spec.spark
    if section.python is not None and shutil.which(section.python) is None and local_cores(section.master):
        hint = "correct `[spark] python`, or leave it out"
        return Check("spark", "problem", f"the Python of its workers, `{section.python}`, is not there", hint)
    if local_cores(section.master) is None:
        return Check("spark", "warning", f"{message}, master {section.master}", "the cluster itself is not checked")
    return Check("spark", "ok", f"{message}, master {section.master}")


def _memory() -> Check:
    total, available = memory_bytes(), _available_memory()
    needed = heap_bytes() + limits.MEMORY_LOW_BYTES
    message = f"{_size(min(total, available))} of {_size(total)} free, {cores()} cores"
    if total < needed:
        return Check("memory", "problem", message, f"Spark and its workers need {_size(needed)}")
    if available < needed:
        return Check("memory", "warning", message, f"Spark and its workers need {_size(needed)}: end other programs")
    return Check("memory", "ok", message)


def _disk(directory: Path) -> Check:
    """The disk of the store, or of the directory in which it would be made."""
    place = next(p for p in (directory.absolute(), *directory.absolute().parents) if p.is_dir())
    return _room("disk", place, _DISK_HINT)


def _temporary() -> Check:
    try:
        place = Path(tempfile.gettempdir())
    except OSError as error:
        return Check("temporary files", "problem", error.strerror or str(error), "set TMPDIR to a disk with free space")
    return _room("temporary files", place, "set TMPDIR to a disk with free space")


def _room(name: str, place: Path, hint: str) -> Check:
    free = shutil.disk_usage(place).free
    message = f"{_size(free)} free in {place}"
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(bytes(4096))
            file.flush()
    except OSError as error:
        return Check(name, "problem", f"{place} cannot be written: {error.strerror}", hint)
    if free < limits.DISK_LOW_BYTES:
        return Check(name, "problem" if free < limits.DISK_FULL_BYTES else "warning", message, hint)
    return Check(name, "ok", message)


def _connectors(project: Project | None) -> Check:
    """The packages that connectors need: a problem for one that the project uses, a warning for any other."""
    known = [info for info in CONNECTORS.values() if info.kind == "source"]
    missing = {info.name: names for info in known if (names := _missing(info.abilities.packages))}
    if not missing:
        return Check("connectors", "ok", ", ".join(info.name for info in known))
    pipelines = project.pipelines if project is not None else ()
    used = {loaded.spec.source.connector for loaded in pipelines if loaded.spec.source is not None}
    needs = "; ".join(f"`{connector}` needs {', '.join(names)}" for connector, names in missing.items())
    packages = sorted({name for names in missing.values() for name in names})
    return Check(
        "connectors", "problem" if used & missing.keys() else "warning", needs, f"pip install {' '.join(packages)}"
    )


def _catalog(project: Project | None) -> Check:
    if project is None:
        return Check("catalog", "warning", "not checked: there is no project that can be read")
    url = Workspace(project).catalog_url
    kind = "SQLite" if url == "sqlite" else "PostgreSQL"
    store = open_existing(project.store_root, project=project.name, catalog_url=url, upgrade=False)
    if store is None:
        return Check("catalog", "ok", f"{kind}; nothing has landed yet")
    try:
        with store.catalog.snapshot() as connection:
            version, seq = format_version(connection), current_seq(connection)
            if version < FORMAT_VERSION:
                hint = f"the next command brings it to format {FORMAT_VERSION}; older versions cannot open it then"
                return Check("catalog", "warning", f"{kind}, format {version}, commit {seq}", hint)
            tables = len(table_entries(connection))
    finally:
        store.close()
    return Check("catalog", "ok", f"{kind}, format {version}, commit {seq}, {tables} table{'s' * (tables != 1)}")


def _missing(packages: Sequence[str]) -> list[str]:
    """The packages that cannot be imported; a package may be installed and lack a library of the system."""
    found = []
    for name in packages:
        try:
            import_module(name)
        except ImportError:
            found.append(name)
    return found


def _package_version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _available_memory() -> int:
    """The memory that programs can get now without swapping; where the system does not report it, the unused memory."""
    try:
        text = Path("/proc/meminfo").read_text()
        return int(text.partition("MemAvailable:")[2].split()[0]) * 1024
    except (OSError, ValueError, IndexError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")


def _size(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
