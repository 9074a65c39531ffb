"""Where a project is served on this machine: a small file that `serve` leaves for as long as it listens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass

from headwater.base.blobs import write_whole
from headwater.base.holder import is_seen, new_holder
from headwater.base.node import this_node
from headwater.manifest.load import Project

FILE = ".headwater/serve.json"
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Who listens everywhere is asked at the machine's own address."""


@dataclass(frozen=True)
class Address:
    """A server: the process by the name that leases have, where it listens, and the store that it serves. A manifest
    that has changed since may name another store."""

    holder: str
    url: str
    store: str
    catalog: str


def url_of(host: str, port: int) -> str:
    """How a server that listens there is asked on this machine."""
    return f"http://{joined(_EVERYWHERE.get(host, host), port)}"


def joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@contextmanager
def left(project: Project, url: str) -> Iterator[None]:
    """Commands on this machine find the server for as long as this goes on. Of several they find the newest."""
    path = project.root / FILE
    data = json.dumps(asdict(_address(project, new_holder(), url))).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, data, durable=False)
    try:
        yield
    finally:
        with suppress(OSError):
            if path.read_bytes() == data:
                path.unlink()


def served_at(project: Project) -> str | None:
    """Where the project's store is served on this machine, as far as the file tells: whether it answers is still to be
    asked. What a server left that was killed counts for nothing."""
    try:
        found = Address(**json.loads((project.root / FILE).read_bytes()))
        here = found.holder.startswith(f"{this_node()}/") and is_seen(found.holder)
    except (OSError, ValueError, TypeError, AttributeError):
        return None
    return found.url if here and found == _address(project, found.holder, found.url) else None


def _address(project: Project, holder: str, url: str) -> Address:
    # The catalog as the manifest writes it: it holds no secret there.
    return Address(holder, url, str(project.store_root), project.spec.context.catalog)
