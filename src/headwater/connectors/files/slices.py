"""Groups files into slices, and a slice's files into partitions: pure arithmetic in the order of the paths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from headwater.base import limits
from headwater.base.printable import printable
from headwater.connectors.files.changes import Changes, gone_version, is_settled
from headwater.connectors.files.config import FileFormat
from headwater.connectors.files.scan import FoundFile
from headwater.connectors.protocol import Item, Json, Slice


def plan_slices(
    mode: str,
    changes: Changes,
    found: Sequence[FoundFile],
    *,
    format_: str | None,
    start: Json,
    end: Json,
    estimate_rows: Callable[[Sequence[FoundFile]], int | None],
) -> list[Slice]:
    """The slices that bring a table of this mode up to the scan.

    append: new files in groups, then each changed file in its own slice, which retires its old rows. upsert: new and
    changed files in groups. replace: every file again if anything differs; the last slice also forgets the files that
    are gone, so that they are not reported as missing again.
    """

    def slice_of(files: Sequence[FoundFile], *, replaces: tuple[str, ...] = (), gone: tuple[str, ...] = ()) -> Slice:
        total = sum(file.size for file in files)
        return Slice(
            start=start,
            end=end,
            spec={
                "format": format_,
                "files": [[file.source_id, file.size, file.mtime_ns] for file in files],
                "gone": list(gone),
            },
            describe=_describe(files),
            estimated_rows=estimate_rows(files),
            estimated_bytes=total,
            items=(
                *(Item(file.source_id, {"size": file.size, "mtime_ns": file.mtime_ns}) for file in files),
                *(Item(source_id, gone_version()) for source_id in gone),
            ),
            replaces=replaces,
        )

    match mode:
        case "append":
            slices = [slice_of(group) for group in group_files(changes.new)]
            slices += [slice_of([file], replaces=(file.source_id,)) for file in changes.changed]
            return slices
        case "upsert":
            files = sorted((*changes.new, *changes.changed), key=lambda file: file.source_id)
            return [slice_of(group) for group in group_files(files)]
        case "replace":
            if not (changes.new or changes.changed or changes.vanished):
                return []
            groups = group_files(found)
            last = len(groups) - 1
            return [slice_of(g, gone=changes.vanished if place == last else ()) for place, g in enumerate(groups)]
        case _:
            raise AssertionError(mode)


def group_files(files: Sequence[FoundFile]) -> list[list[FoundFile]]:
    """Consecutive files together, up to the bytes and the count of a slice; a file is never cut."""
    groups: list[list[FoundFile]] = []
    total = 0
    for file in files:
        if not groups or total + file.size > limits.SLICE_BYTES or len(groups[-1]) == limits.SLICE_FILES:
            groups.append([])
            total = 0
        groups[-1].append(file)
        total += file.size
    return groups


def files_of(spec: Json) -> list[FoundFile]:
    """The files that a slice was planned with."""
    return [FoundFile(source_id, size, mtime_ns) for source_id, size, mtime_ns in spec["files"]]


Cut = tuple[int, int]
"""A part of a file: bytes of a text file, row groups of a Parquet file; from, to."""


def cut_partitions(files: Sequence[FoundFile], cuts: Callable[[FoundFile], Sequence[Cut]]) -> list[Json]:
    """Partitions in the order (file, place in file). `cuts` gives the parts of a file: each part of a file with several
    parts is a partition, other files share one up to the bytes of a task."""
    partitions: list[list[Json]] = []
    shared = 0
    for file in files:
        parts = cuts(file)
        pieces = [[file.source_id, file.size, file.mtime_ns, *cut, len(parts) == 1] for cut in parts]
        if len(pieces) == 1 and partitions and shared > 0 and shared + file.size <= limits.SPLIT_BYTES:
            partitions[-1] += pieces
            shared += max(file.size, 1)
        else:
            partitions += [[piece] for piece in pieces]
            shared = max(file.size, 1) if len(pieces) == 1 else 0
    return [{"pieces": pieces} for pieces in partitions]


def without_files(partitions: Sequence[Json], source_ids: frozenset[str]) -> tuple[Json, ...]:
    """The partitions without some files; partitions that become empty are left out."""
    found: list[Json] = []
    for partition in partitions:
        pieces = [piece for piece in partition["pieces"] if piece[0] not in source_ids]
        if pieces or "gone" in partition:
            found.append({**partition, "pieces": pieces})
    return tuple(found)


def byte_cuts(size: int) -> list[Cut]:
    """A file's bytes in equal parts of at most a task's bytes."""
    return even_cuts(size, max(1, -(-size // limits.SPLIT_BYTES)))


def even_cuts(size: int, count: int) -> list[Cut]:
    return list(pairwise(size * place // count for place in range(count + 1)))


def text_cuts(file: FoundFile, how: FileFormat, now_ns: int) -> list[Cut]:
    """The parts of a text file. A file that may still be written within the tick of its mtime is read by one task,
    whose hash then covers exactly the bytes that land; in any other file, the mtime shows a later write."""
    is_cut = how.is_splittable(file.source_id) and is_settled(file.mtime_ns, now_ns)
    return byte_cuts(file.size) if is_cut else [(0, file.size)]


def _describe(files: Sequence[FoundFile]) -> str:
    if len(files) == 1:
        return printable(files[0].source_id)
    return f"{len(files)} files, {printable(files[0].source_id)} .. {printable(files[-1].source_id)}"
