"""New orders for the demo shop: a file every second or two, while the demo is served."""

from __future__ import annotations

import json
import random
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from headwater.app.init import an_order
from headwater.base.blobs import write_whole

FIRST_LIVE_ORDER = 1_000_000
"""Far above the ids of the demo's first orders."""
ORDERS_PER_FILE = 5
MOST_PAUSE_SECONDS = 2.0
LIVE = "live-"


@dataclass
class Arrivals:
    """A thread that drops files into the demo's folder until the block ends. It continues the numbers of earlier
    files."""

    folder: Path
    files: int = 0
    ended: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Arrivals:
        self._thread = threading.Thread(target=self._run, name="arrivals", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self._thread.join()

    @property
    def orders(self) -> int:
        return self.files * ORDERS_PER_FILE

    def _run(self) -> None:
        number = 1 + max((int(path.stem.removeprefix(LIVE)) for path in self.folder.glob(f"{LIVE}*.ndjson")), default=0)
        while not self.ended.wait(random.Random(number).uniform(1.0, MOST_PAUSE_SECONDS)):
            drop(self.folder, number)
            self.files += 1
            number += 1


def drop(folder: Path, number: int) -> Path:
    """Write one file of new orders, which appears at once as a whole."""
    chance = random.Random(number)
    first = FIRST_LIVE_ORDER + number * ORDERS_PER_FILE
    orders = [an_order(first + i, datetime.now(UTC), chance) for i in range(ORDERS_PER_FILE)]
    path = folder / f"{LIVE}{number:06d}.ndjson"
    write_whole(path, "".join(json.dumps(order) + "\n" for order in orders).encode(), durable=False)
    return path
