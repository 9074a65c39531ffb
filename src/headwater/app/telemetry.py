"""The counters of this process, for `/metrics`, and the end of its tracing."""

from __future__ import annotations

from headwater.observe.counters import COUNTERS, LABELS, Counted, Counters
from headwater.observe.tracing import shutdown

__all__ = ["COUNTERS", "LABELS", "Counted", "Counters", "shutdown"]
