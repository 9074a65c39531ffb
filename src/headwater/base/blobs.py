"""Durable files on a local disk: written whole or not at all, and still there after a power cut."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from headwater.base.crash import crash_point
from headwater.base.errors import HeadwaterError

_CHUNK = 1 << 20


def fsync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_directory(directory: Path) -> None:
    """Create a directory and its parents so that all of their names are durable."""
    missing: list[Path] = []
    probe = directory
    while not probe.exists():
        missing.append(probe)
        probe = probe.parent
    directory.mkdir(parents=True, exist_ok=True)
    for made in reversed(missing):
        fsync_directory(made.parent)


def write_whole(path: Path, data: bytes | Iterable[bytes], *, torn: str | None = None, durable: bool = True) -> None:
    """Replace `path` by `data` (or its pieces) atomically: a reader sees the old bytes or the new ones. `torn` names a
    crash point that is passed when part of the bytes is written."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    pieces = (data[: len(data) // 2], data[len(data) // 2 :]) if isinstance(data, bytes) else data
    try:
        with open(temporary, "wb") as file:
            for number, piece in enumerate(pieces):
                if number == 1 and torn is not None:
                    file.flush()
                    crash_point(torn)
                file.write(piece)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.replace(path)
        if durable:
            fsync_directory(path.parent)
    except BaseException as error:
        with suppress(OSError):  # a read-only disk refuses to remove even a file that does not exist
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise cannot_write(path, error) from error
        raise


def cannot_write(path: Path | str, error: OSError) -> HeadwaterError:
    return HeadwaterError(
        "HW-T05",
        f"cannot write `{path}`: {error.strerror or error}",
        hint="free some space or fix the permissions, then run the same command again: it goes on where it was",
        retryable=True,
    )


def sha256_of(path: Path) -> str:
    """The hash of a file's bytes, in bounded memory."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
