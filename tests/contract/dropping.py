"""Projects with a drop folder for contract tests, and what other processes do with them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from contract.stores import PROJECT, Place
from headwater.app.drop_folder import Dropping, News, Taken
from headwater.app.ingest import Ingestor
from headwater.app.workspace import Workspace, workspace
from headwater.base.errors import HeadwaterError

LONG_AGO_SECONDS = 3600


@dataclass(frozen=True)
class Shop:
    """A project whose catalog is on the database of a `Place`."""

    root: Path
    url: str

    @staticmethod
    def at(place: Place, manifest: str = "") -> Shop:
        shop = Shop(place.root.parent / "project", place.url)
        shop.root.mkdir()
        shop.declare(manifest)
        return shop

    def declare(self, manifest: str) -> None:
        head = f'[project]\nname = "{PROJECT}"\n[context]\ncatalog = "{self.url}"\n'
        (self.root / "headwater.toml").write_text(head + manifest)

    def drop(self, name: str, content: bytes, *, age_seconds: float = LONG_AGO_SECONDS) -> Path:
        """A file that has been there for so long."""
        path = self.root / "drop" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        then = time.time() - age_seconds
        os.utime(path, (then, then))
        return path

    @contextmanager
    def opened(self) -> Iterator[tuple[Workspace, Dropping, list[News]]]:
        news: list[News] = []
        with workspace(self.root) as found, closing(Ingestor()) as ingestor:
            dropping = Dropping(found, news.append, ingestor)
            yield found, dropping, news
            dropping.close()


def taken(news: Sequence[News]) -> dict[str, tuple[int, int, int]]:
    """Files, rows and bad rows by table, and none of it twice."""
    found = [each for each in news if isinstance(each, Taken)]
    assert len({each.table for each in found}) == len(found)
    return {each.table: (each.files, each.rows, each.rows_refused) for each in found}


def codes(news: Sequence[News]) -> list[str]:
    """Of files that were put away, and of what was told."""
    return [each.code for each in news if isinstance(each, HeadwaterError)]


# --- what other processes do


def scan_once(shop: Shop) -> int:
    """How many files this process landed."""
    with shop.opened() as (_, dropping, news):
        dropping.scan()
        return sum(files for files, _, _ in taken(news).values())
