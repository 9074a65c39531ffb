"""Names of lease holders. A name contains the machine and the process, so that others can see whether it is alive."""

from __future__ import annotations

import os
from pathlib import Path

from headwater.base.ids import uuid7
from headwater.base.node import has_ended, process_scope, this_node


def new_holder() -> str:
    """A name for one worker in one process: the node, the process, its start time and its scope."""
    return f"{this_node()}/{os.getpid()}/{_began(os.getpid())}@{process_scope()}/{uuid7()[-8:]}"


def is_alive(holder: str) -> bool:
    """False only if the holder's process on this machine is certainly gone. A process in another container of this
    machine cannot be seen: it counts as alive until its lease expires."""
    return is_seen(holder) or not (_is_visible(holder) or has_ended(_scope(holder)))


def is_seen(holder: str) -> bool:
    """Whether the holder's process runs on this machine, can be seen from here, and is still the same one."""
    _, pid, began, _ = holder.split("/")
    return _is_visible(holder) and _began(int(pid)) == began.partition("@")[0]


def _is_visible(holder: str) -> bool:
    """Whether the holder's process id means the same process here."""
    scope, here = _scope(holder), process_scope()
    return scope == here or not scope or not here


def _scope(holder: str) -> str:
    return holder.split("/")[2].partition("@")[2]


def _began(pid: int) -> str:
    """When a process of this machine began, in ticks since boot. Empty if there is no such process; the same for all
    processes where the system does not report it."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "" if Path("/proc/self/stat").exists() else _signalled(pid)
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[19]


def _signalled(pid: int) -> str:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return "alive"
