"""`/metrics`: gauges of the moment and counters of this process, as OpenMetrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest

from headwater.app.health import Gauges
from headwater.app.telemetry import LABELS, Counted, Counters

OPENMETRICS = CONTENT_TYPE_LATEST
NO_JOBS = {"small": 0, "big": 0}

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
    return bytes(generate_latest(_Page(gauges, counters)))  # type: ignore[no-untyped-call]


@dataclass
class _Page:
    """All that `generate_latest` needs of a registry."""

    gauges: Gauges
    counters: Counters

    def collect(self) -> Iterator[Metric]:
        yield from _gauges(self.gauges)
        for kind, (name, text) in _COUNTED.items():
            counter = CounterMetricFamily(name, text, labels=LABELS[kind])
            for labels, count in sorted(self.counters.counts(kind).items()):
                counter.add_metric(labels, count)
            yield counter


def _gauges(found: Gauges) -> Iterator[Metric]:
    yield _gauge(
        "headwater_staleness_seconds", "The age of a pipeline's freshness.", "pipeline", found.staleness_seconds
    )
    yield _gauge("headwater_pipelines", "Pipelines, by their state.", "state", found.pipelines)
    queued, running = {**NO_JOBS, **found.queue.queued}, {**NO_JOBS, **found.queue.running}
    yield _gauge("headwater_queue_depth", "Jobs that wait for a worker.", "weight", queued)
    yield _gauge("headwater_jobs_running", "Jobs that workers hold.", "weight", running)
    text, seconds = "How long the oldest job has waited for a worker.", found.queue.oldest_wait_us / 1e6
    yield GaugeMetricFamily("headwater_queue_oldest_wait_seconds", text, value=seconds, unit="seconds")
    text, owned = "1 while a process runs the engine.", int(found.engine_owned)
    yield GaugeMetricFamily("headwater_engine_owned", text, value=owned)


def _gauge(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    gauge = GaugeMetricFamily(name, text, labels=[label], unit="seconds" if name.endswith("_seconds") else "")
    for value, number in values.items():
        gauge.add_metric([value], number)
    return gauge
