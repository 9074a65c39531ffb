"""What the bytes of dropped files are, from one process to the next: `apply` need not read all of a folder again.

Nothing here says what has landed: the ledger does. What is lost, or wrong, costs a file that is read once more.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

import msgspec

from headwater.base import limits
from headwater.base.blobs import write_whole
from headwater.base.errors import HeadwaterError
from headwater.ingest.drop.folder import Dropped, Stamp

Known = dict[str, tuple[Stamp, str]]


class Hashes:
    """Kept in a file of its own, by the path and the stamp of each dropped file. Any thread may ask."""

    def __init__(self, path: Path):
        self._path = path
        self._known: Known | None = None
        self._is_changed = False

    def get(self, file: Dropped) -> str | None:
        """The hash of a file that has not changed since it was remembered."""
        stamp, sha256 = self._read().get(file.path, (None, None))
        return sha256 if stamp == file.stamp else None

    def put(self, file: Dropped, sha256: str, *, looked_at_ns: int) -> None:
        if looked_at_ns - file.changed_ns >= limits.DROP_HASH_OLD_NS:
            self._read()[file.path] = file.stamp, sha256
            self._is_changed = True

    def forget(self, file: Dropped) -> None:
        self._is_changed |= self._read().pop(file.path, None) is not None

    def save(self, there: Collection[str]) -> None:
        """For the next process: what is known of the files with these paths. Raises nothing."""
        if not self._is_changed:
            return
        kept = {path: known for path, known in list(self._read().items()) if path in there}
        with suppress(OSError, HeadwaterError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._path, msgspec.json.encode(kept), durable=False)
        self._is_changed = False

    def _read(self) -> Known:
        if self._known is None:
            self._known = {}
            with suppress(OSError, msgspec.MsgspecError):
                self._known = msgspec.json.decode(self._path.read_bytes(), type=Known)
        return self._known
