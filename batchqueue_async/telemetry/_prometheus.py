"""The metrics for `prometheus_client`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.registry import Collector

from batchqueue_async._engine.handler_stats import Histogram
from batchqueue_async.telemetry._metric_table import (
    HISTOGRAMS,
    METRICS,
    HistogramMetric,
    Metric,
    values_of,
)
from batchqueue_async.telemetry._source import PATIENCE, Reading, Source, Target

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric as Family


class PrometheusCollector(Collector):
    """What all queues of a target count, read when Prometheus asks.

    Register it: `REGISTRY.register(PrometheusCollector(manager))`. It may be asked on
    any thread; the loop answers between its other callbacks. A loop that does not
    answer is not waited for any longer than `patience` seconds: then the figures are
    read without it, and `batchqueue_loop_blocked` is 1.

    Args:
        target: A queue, from either side, a manager, a LoopThread, `QueuesElsewhere`,
            or several of them.
        patience: Seconds that a loop gets to answer.

    Raises:
        TypeError: The target is none of these.
    """

    def __init__(self, target: Target, *, patience: float = PATIENCE) -> None:
        self._source = Source(target, patience=patience)

    def describe(self) -> Iterable[Family]:
        """Return what it will collect, without a look at any queue."""
        return self._families([])

    def collect(self) -> Iterator[Family]:
        yield from self._families(self._source.read())

    @staticmethod
    def _families(readings: list[Reading]) -> Iterator[Family]:
        for metric in METRICS:
            yield _family(metric, readings)
        for histogram in HISTOGRAMS:
            yield _histogram_family(histogram, readings)


def _family(metric: Metric, readings: list[Reading]) -> Family:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(_name(metric), metric.description, labels=("queue", *metric.labels))
    for labels, value in values_of(metric, readings).items():
        family.add_metric(labels, value)
    return family


def _histogram_family(metric: HistogramMetric, readings: list[Reading]) -> Family:
    family = HistogramMetricFamily(
        _name(metric), metric.description, labels=("queue", "handler")
    )
    merged: dict[tuple[str, str], list[Histogram]] = {}
    for reading in readings:
        for handler in reading.stats.handlers:
            histogram = metric.of(handler)
            if histogram is not None:
                key = (reading.stats.name, handler.name)
                merged.setdefault(key, []).append(histogram)
    for labels, histograms in merged.items():
        total = sum(each.total for each in histograms)
        family.add_metric(labels, _buckets(histograms), sum_value=total)
    return family


def _buckets(histograms: list[Histogram]) -> list[tuple[str, float]]:
    """Return how many values were at most each bound, as Prometheus counts."""
    bounds = (*map(str, map(float, histograms[0].bounds)), "+Inf")
    counts = map(sum, zip(*(each.counts for each in histograms), strict=True))
    return [*zip(bounds, accumulate(counts), strict=True)]


def _name(metric: Metric | HistogramMetric) -> str:
    name = metric.name.replace(".", "_")
    return f"{name}_seconds" if metric.unit == "s" else name
