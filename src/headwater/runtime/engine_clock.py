"""The engine's own time: the system's, unless that goes back."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from headwater.base.clock import now_us

SLOWER = 2
"""How much slower the engine's time goes while it is ahead of the system's."""


@dataclass
class EngineClock:
    """Always moves forward. If the system's clock is set back, the engine's continues from its last time at half the
    speed until the system's has caught up: nothing runs twice, and nothing waits for a day."""

    last_us: int = 0
    _ticked: float = field(default_factory=time.monotonic)

    def now_us(self) -> int:
        ticked = time.monotonic()
        slowly = self.last_us + int((ticked - self._ticked) * 1e6) // SLOWER
        self.last_us, self._ticked = max(now_us(), slowly), ticked
        return self.last_us

    def on_the_system(self, moment_us: int) -> int:
        """The system's time at which the engine's clock will show this time."""
        ours = self.now_us()
        now = now_us()
        return now + (moment_us - ours) * (SLOWER if ours > now else 1)
