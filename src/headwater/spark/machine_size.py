"""The size of this machine: the cores and memory that containers let this process use."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

MEBIBYTE = 1024 * 1024
HEAP_SHARE = 0.25
"""The share of memory for the JVM's heap: Python workers, outside of it, read and write the rows."""
HEAP_MIN_BYTES = 512 * MEBIBYTE
HEAP_MAX_BYTES = 4096 * MEBIBYTE
"""The most that is used without a setting: a larger heap is filled before it is collected."""

_CGROUP = Path("/sys/fs/cgroup")


def cores() -> int:
    """The processors that this process may use: affinity and the CPU quota of its cgroup (rounded up), at least 1."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _cpu_quota()
    return max(1, min(usable, math.ceil(quota)) if quota else usable)


def memory_bytes() -> int:
    """The memory that this process may use: the machine's, or the limit of its cgroup if that is smaller."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [_number(path) for path in _cgroup_files("memory", "memory.max", "memory.limit_in_bytes")]
    return min([total, *(limit for limit in limits if limit)])


def heap_bytes() -> int:
    """The heap of a local Spark without a setting."""
    return int(min(HEAP_MAX_BYTES, max(HEAP_MIN_BYTES, memory_bytes() * HEAP_SHARE)))


def local_cores(master: str) -> int | None:
    """The task slots of a local master (`local`, `local[4]`, `local[*,2]`); None for any other master."""
    found = re.fullmatch(r"local(?:\[(\*|\d+)(?:\s*,\s*\d+)?\])?", master.strip())
    if found is None:
        return None
    slots = found.group(1)
    if slots is None:
        return 1
    return cores() if slots == "*" else max(1, int(slots))


def _cpu_quota() -> float | None:
    for path in _cgroup_files("cpu", "cpu.max", "cpu.cfs_quota_us"):
        try:
            fields = path.read_text().split()
            period = fields[1] if len(fields) > 1 else path.with_name("cpu.cfs_period_us").read_text()
            quota = int(fields[0]) / int(period)
        except (OSError, ValueError, IndexError, ZeroDivisionError):
            continue
        if quota > 0:
            return quota
    return None


def _cgroup_files(controller: str, second: str, first: str) -> list[Path]:
    """The limit files of this process, in version 2 or version 1 of cgroups: its own group's and, as containers see
    them, the mount's root."""
    found: list[Path] = []
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return found
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            found += [_CGROUP / group.lstrip("/") / second, _CGROUP / second]
        elif controller in controllers.split(","):
            found += [_CGROUP / controller / group.lstrip("/") / first, _CGROUP / controller / first]
    return found


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
