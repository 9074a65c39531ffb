"""The name of this machine, and the scope whose processes this one can see.

The name is the same for every process and after a restart: `HEADWATER_NODE`, else the host's name with a mark made from
the machine id, else (a system without one) with a mark from a file of the project. It is part of paths and leases.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import socket
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from headwater.base.ids import NodeId

VARIABLE = "HEADWATER_NODE"
MACHINE_ID_FILES = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PID_NAMESPACE = Path("/proc/self/ns/pid")
_HOST_NAMESPACE = "pid:[4026531836]"
"""The kernel's fixed number of the host's process id namespace, which no container has (PROC_PID_INIT_INO)."""
_HOST = "host"
_ID = re.compile(r"[0-9a-f]{32}")
_PURPOSE = b"headwater node"
_MARK_CHARACTERS = 6

_project_file: Path | None = None


def keep_node_in(file: Path) -> None:
    """Set the file for the mark of a machine without a machine id. The file is made when the name is first needed."""
    global _project_file
    _project_file = file


def this_node() -> NodeId:
    """A name for this machine: small letters, digits and `-`."""
    given = os.environ.get(VARIABLE)
    return _node(given, None if given else _machine_id(MACHINE_ID_FILES), _project_file)


@lru_cache(maxsize=1)
def process_scope() -> str:
    """The boot and the process id namespace of this process; empty where the system does not report them. A process id
    is unique only within one scope."""
    try:
        boot, namespace = _BOOT_ID.read_text().strip(), str(_PID_NAMESPACE.readlink())
    except OSError:
        return ""
    number = re.sub(r"\D", "", namespace)
    return f"{_mark(boot)}.{_HOST if namespace == _HOST_NAMESPACE else number}"


def has_ended(scope: str) -> bool:
    """Whether all processes of another scope under this machine's name have certainly ended. A name that an operator
    gave is used by one scope at a time. Otherwise only an earlier boot of the same host is known to be over: containers
    can share a machine id and a host name while they run side by side."""
    here = process_scope()
    if scope == here or not scope or not here:
        return False
    return bool(os.environ.get(VARIABLE)) or (scope.endswith(f".{_HOST}") and here.endswith(f".{_HOST}"))


@lru_cache(maxsize=8)
def _node(given: str | None, machine_id: str | None, file: Path | None) -> NodeId:
    host = re.sub(r"[^a-z0-9-]+", "-", (given or socket.gethostname()).lower()).strip("-")[:32] or "node"
    return NodeId(host if given else f"{host}-{_mark(machine_id or _kept(file))}")


@lru_cache(maxsize=1)
def _machine_id(files: tuple[Path, ...]) -> str | None:
    for file in files:
        with suppress(OSError, UnicodeDecodeError):
            if _ID.fullmatch(text := file.read_text().strip().lower()):
                return text
    return None


def _mark(secret: str) -> str:
    """A machine id is confidential: it is never shown, and its mark is of no use outside of Headwater."""
    return hmac.new(secret.encode(), _PURPOSE, hashlib.sha256).hexdigest()[:_MARK_CHARACTERS]


def _kept(file: Path | None) -> str:
    """The mark in the project's file, made once. If two processes make it, both get what the first one wrote. Empty if
    it cannot be stored: then the host's name alone is the name."""
    if file is None:
        return ""
    with suppress(OSError):
        return file.read_text().strip()
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(os.urandom(16).hex() + "\n")
        with suppress(FileExistsError):
            os.link(temporary, file)
        return file.read_text().strip()
    except OSError:
        return ""
    finally:
        with suppress(OSError):
            temporary.unlink()
