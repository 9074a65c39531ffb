"""The class-data archive: Spark's classes, parsed and linked once, mapped into memory at every later start.

It halves the time to the first row. A detached process at the lowest priority makes it, after a start without one. It
fits one JVM and one class path: its directory is named by a hash of both. Everything is written under another name and
renamed, and only one process makes it at a time. A start without an archive, or with one that the JVM rejects, is only
slower.

Two of Spark's jars (its code compiler, janino) are signed with a throw-away key of their build. Signed classes cannot
be archived and are verified at each load, so the archive's class path has copies without the signature.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from headwater.base import limits
from headwater.spark.cache import cache_directory
from headwater.spark.gateway import python_path, spark_home
from headwater.spark.java import Java, find_java
from headwater.spark.machine_size import memory_bytes

_SIGNED = ("janino-", "commons-compiler-")


@dataclass(frozen=True)
class Archive:
    """An archive in use: no process deletes it until `release`."""

    file: Path
    class_path: str = field(repr=False)
    lock: int

    def release(self) -> None:
        os.close(self.lock)

    def discard(self) -> None:
        """It crashed a JVM: delete it, so that it is made again."""
        self.file.unlink(missing_ok=True)


def switched_off() -> bool:
    return os.environ.get("HEADWATER_SPARK_ARCHIVE", "").lower() in {"off", "0", "false", "no"}


def class_path(home: Path) -> str:
    """Spark's jars, sorted, so that the order does not depend on the file system."""
    return os.pathsep.join(map(str, _jars(home)))


def find_archive(java: Java) -> Archive | None:
    """The archive for this JVM and Spark, in use; None if there is none (yet)."""
    if switched_off():
        return None
    directory = archive_directory(java)
    file = directory / "classes.jsa"
    if not file.exists():
        return None
    try:
        lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        os.utime(directory / "lock")
        jars = archived_class_path(directory)
    except OSError:
        os.close(lock)
        return None
    return Archive(file=file, class_path=jars, lock=lock)


def ensure_archive_async() -> bool:
    """Start a process that makes the archive and outlives this one, unless the archive is there, being made, switched
    off or too large for this machine. True if it is there or being made."""
    if switched_off():
        return False
    directory = archive_directory(find_java())
    if (directory / "classes.jsa").exists() or _being_made(directory):
        return True
    if memory_bytes() < limits.ARCHIVE_MEMORY_BYTES or _failed_lately(directory):
        return False
    directory.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": python_path(), "HEADWATER_SPARK_ARCHIVE": "off"}
    environment.pop("HEADWATER_CRASH_AT", None)
    # The shell starts it and ends, so it is not a child of this process: it leaves no zombie and outlives us.
    subprocess.run(
        ["/bin/sh", "-c", '"$@" &', "sh", sys.executable, "-m", "headwater.spark.train", str(directory)],
        env=environment,
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        check=False,
    )
    return True


def wait_for_archive(timeout: float = limits.ARCHIVE_SECONDS) -> bool:
    """Make sure that there is an archive, and wait for it. False if there will be none."""
    directory = archive_directory(find_java())
    deadline = time.monotonic() + timeout
    while ensure_archive_async():
        if (directory / "classes.jsa").exists():
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(limits.ARCHIVE_POLL_SECONDS)
    return False


def archive_directory(java: Java) -> Path:
    """Named by what an archive depends on: the JVM, and the names, sizes and times of the jars."""
    digest = hashlib.sha256()
    runtime = [java.image / "release", *sorted((java.image / "lib").glob("**/libjvm.*"))]
    for path in [java.executable, *runtime, *_jars(spark_home())]:
        if path.exists():
            status = path.stat()
            digest.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    digest.update(java.version.encode())
    return cache_directory() / "archives" / digest.hexdigest()[:24]


def archived_class_path(directory: Path) -> str:
    """The class path that goes with the archive of this directory."""
    jars = directory / "jars"
    return os.pathsep.join(str(jars / jar.name if _signed(jar) else jar) for jar in _jars(spark_home()))


def write_unsigned_jars(directory: Path) -> None:
    """Copies of the signed jars without their signatures. The archive records their times, so those are fixed."""
    (directory / "jars").mkdir(exist_ok=True)
    for jar in filter(_signed, _jars(spark_home())):
        temporary = directory / "jars" / f".{jar.name}.tmp"
        with zipfile.ZipFile(jar) as source, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as copy:
            for entry in source.infolist():
                if not _is_signature(entry.filename):
                    copy.writestr(entry, source.read(entry))
        status = jar.stat()
        os.utime(temporary, ns=(status.st_mtime_ns, status.st_mtime_ns))
        temporary.replace(directory / "jars" / jar.name)


@contextmanager
def the_only_maker(directory: Path) -> Iterator[bool]:
    """True inside the block if no other process is making this archive; a process that dies releases the lock."""
    lock = os.open(directory / "making", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield True
    finally:
        os.close(lock)


def remove_old_archives(keep: Path) -> None:
    """Delete archives beyond the number that is kept, oldest use first; never one that a session uses."""
    others = [path for path in keep.parent.iterdir() if path.is_dir() and path != keep]
    others.sort(key=_last_used, reverse=True)
    for directory in others[limits.ARCHIVES_KEPT - 1 :]:
        try:
            lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory, ignore_errors=True)
        except OSError:
            continue
        finally:
            os.close(lock)


def note_failure(directory: Path) -> None:
    (directory / "failed").touch()


def _jars(home: Path) -> list[Path]:
    return sorted((home / "jars").glob("*.jar"))


def _signed(jar: Path) -> bool:
    return jar.name.startswith(_SIGNED)


def _is_signature(name: str) -> bool:
    return name.startswith("META-INF/") and name.endswith((".SF", ".DSA", ".RSA", "/MANIFEST.MF"))


def _being_made(directory: Path) -> bool:
    if not (directory / "making").exists():
        return False
    with the_only_maker(directory) as alone:
        return not alone


def _failed_lately(directory: Path) -> bool:
    with contextlib.suppress(OSError):
        return time.time() - (directory / "failed").stat().st_mtime < limits.ARCHIVE_RETRY_SECONDS
    return False


def _last_used(directory: Path) -> float:
    for name in ("lock", "."):
        with contextlib.suppress(OSError):
            return (directory / name).stat().st_mtime
    return 0.0
