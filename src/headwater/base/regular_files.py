"""Opens regular files only. A pipe, socket or device of the same name is refused at once: reading one could wait for
ever. The check is made on the opened file, so no program can swap the name in between."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

NOT_REGULAR = "it is not a regular file"
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
"""Without O_NONBLOCK the open call itself waits for the other end of a pipe."""


class NotRegular(OSError):
    """The name leads to something that is not a regular file, or to a symbolic link where none is followed."""

    def __init__(self) -> None:
        super().__init__(errno.EINVAL, NOT_REGULAR)


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file, following links. Raises `NotRegular`, and what `open` raises."""
    return _regular(os.open(path, _READ))


def open_below(folder: Path, name: str) -> BinaryIO:
    """Open a regular file below a folder. No part of `name` may be a symbolic link, so nothing outside of the folder
    can be opened. Raises `NotRegular`, and what `open` raises."""
    *parents, last = name.split("/")
    directory = os.open(folder, _READ | os.O_DIRECTORY)
    try:
        for parent in parents:
            below = _open_at(directory, parent, os.O_DIRECTORY)
            os.close(directory)
            directory = below
        return _regular(_open_at(directory, last))
    finally:
        os.close(directory)


def _open_at(directory: int, name: str, flags: int = 0) -> int:
    try:
        return os.open(name, _READ | os.O_NOFOLLOW | flags, dir_fd=directory)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO):  # a link; a link to a folder; a socket
            raise NotRegular from error
        raise


def _regular(opened: int) -> BinaryIO:
    try:
        mode = os.fstat(opened).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(mode):
            raise NotRegular
        return open(opened, "rb")
    except BaseException:
        os.close(opened)
        raise
