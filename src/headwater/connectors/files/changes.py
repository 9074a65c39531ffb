"""What has changed in each file since it landed: pure, except for the hash function it is given.

A file's size and mtime prove that its content is as landed only if the mtime is clearly older than the scan that the
landed version came from: a file that is written twice within one tick of the file system's clock has one mtime. In
every other case the content decides; a file of another size need not even be read for that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headwater.base import limits
from headwater.connectors.files.scan import FoundFile
from headwater.connectors.protocol import Item, Json


@dataclass(frozen=True)
class Changes:
    """Every file found is new, changed or as landed; `touched` are files as landed whose version should be noted again,
    so that the next scan can trust it. `vanished` are landed files that are gone."""

    new: tuple[FoundFile, ...] = ()
    changed: tuple[FoundFile, ...] = ()
    touched: tuple[Item, ...] = ()
    vanished: tuple[str, ...] = ()


def version_of(file: FoundFile, *, sha256: str, scanned_at_ns: int) -> Json:
    return {"size": file.size, "mtime_ns": file.mtime_ns, "sha256": sha256, "scanned_at_ns": scanned_at_ns}


def gone_version() -> Json:
    """The version of a file that is no longer in a `replace` table: as if it had never landed."""
    return {"gone": True}


def unread_version() -> Json:
    """The version of an unchanged file that must be read again: it counts as changed."""
    return {"unread": True}


def compare(
    found: Sequence[FoundFile],
    landed: Mapping[str, Json],
    *,
    scanned_at_ns: int,
    content_hash: Callable[[FoundFile], str | None],
) -> Changes:
    """What has changed, by a scan that began at `scanned_at_ns`. `content_hash` gives None for a file that is changing
    right now."""
    new: list[FoundFile] = []
    changed: list[FoundFile] = []
    touched: list[Item] = []
    for file in found:
        version = landed.get(file.source_id)
        if version is None or version.get("gone"):
            new.append(file)
        elif version.get("unread") or file.size != version["size"]:
            changed.append(file)
        elif file.mtime_ns != version["mtime_ns"] or not is_settled(file.mtime_ns, version["scanned_at_ns"]):
            sha256 = content_hash(file)
            if sha256 is None or sha256 != version["sha256"]:
                changed.append(file)
            elif file.mtime_ns != version["mtime_ns"] or is_settled(file.mtime_ns, scanned_at_ns):
                touched.append(
                    Item(file.source_id, version_of(file, sha256=sha256, scanned_at_ns=scanned_at_ns)),
                )
    present = {file.source_id for file in found}
    # No version: it was read for a `replace` run that failed, and the table may hold older rows of it.
    vanished = sorted(id_ for id_, version in landed.items() if id_ not in present and not (version or {}).get("gone"))
    return Changes(tuple(new), tuple(changed), tuple(touched), tuple(vanished))


def is_settled(mtime_ns: int, looked_at_ns: int) -> bool:
    """True if any write after the scan must have given the file another mtime."""
    return mtime_ns <= looked_at_ns - limits.MTIME_TRUST_NS
