"""`/metrics`: gauges of the moment and counters of this process, as OpenMetrics."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from headwater.app.health import Gauges
from headwater.app.telemetry import LABELS, Counted, Counters

OPENMETRICS = CONTENT_TYPE_LATEST
WEIGHTS = ("small", "big")

_COUNTED: dict[Counted, tuple[str, str]] = {
    "runs": ("headwater_runs", "Runs of a pipeline that have ended, by their state."),
    "ripple_failures": ("headwater_failures", "Executions of a ripple that have failed."),
    "demands_refused": ("headwater_demands_refused", "Demand that was refused because a pipeline is blocked."),
    "rows_pushed": ("headwater_rows_pushed", "Rows that were pushed into a table."),
    "rows_rescued": ("headwater_rows_rescued", "Pushed rows with keys that have no column: they are in `_rescued`."),
    "rows_dead_lettered": (
        "headwater_rows_dead_lettered",
        "Bad rows of a source or a push that were kept as dead letters.",
    ),
    "files_dead_lettered": (
        "headwater_files_dead_lettered",
        "Files that could not be read and were kept as dead letters.",
    ),
    "lease_takeovers": ("headwater_lease_takeovers", "Jobs taken over from workers that were lost."),
}


def openmetrics(gauges: Gauges, counters: Counters) -> bytes:
    """The whole page."""
    registry = CollectorRegistry()
    registry.register(_Page(gauges, counters))
    return bytes(generate_latest(registry))  # type: ignore[no-untyped-call]


class _Page(Collector):
    def __init__(self, gauges: Gauges, counters: Counters):
        self._gauges = gauges
        self._counters = counters

    def describe(self) -> list[Metric]:
        return []  # nothing to collect for a registry that lives for one page

    def collect(self) -> Iterator[Metric]:
        yield from _gauges(self._gauges)
        for kind, (name, text) in _COUNTED.items():
            counter = CounterMetricFamily(name, text, labels=LABELS[kind])
            for labels, count in sorted(self._counters.counts(kind).items()):
                counter.add_metric(labels, count)
            yield counter


def _gauges(found: Gauges) -> Iterator[Metric]:
    stale = GaugeMetricFamily(
        "headwater_staleness_seconds", "The age of a pipeline's freshness.", labels=["pipeline"], unit="seconds"
    )
    for pipeline, seconds in found.staleness_seconds.items():
        stale.add_metric([pipeline], seconds)
    yield stale
    states = GaugeMetricFamily("headwater_pipelines", "Pipelines, by their state.", labels=["state"])
    for state, count in found.pipelines.items():
        states.add_metric([state], count)
    yield states
    for name, text, counts in (
        ("headwater_queue_depth", "Jobs that wait for a worker.", found.queue.queued),
        ("headwater_jobs_running", "Jobs that workers hold.", found.queue.running),
    ):
        gauge = GaugeMetricFamily(name, text, labels=["weight"])
        for weight in WEIGHTS:
            gauge.add_metric([weight], counts.get(weight, 0))
        yield gauge
    yield GaugeMetricFamily(
        "headwater_queue_oldest_wait_seconds",
        "How long the oldest job has waited for a worker.",
        value=found.queue.oldest_wait_us / 1e6,
        unit="seconds",
    )
    yield GaugeMetricFamily(
        "headwater_engine_owned", "1 while a process runs the engine.", value=1 if found.engine_owned else 0
    )
