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

from batchqueue_async.telemetry._growing_counts import GrowingCounts
from batchqueue_async.telemetry._metric_table import (
    HISTOGRAMS,
    METRICS,
    HistogramMetric,
    Metric,
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
        TypeError: The target is none of these, or `patience` is no number.
        ValueError: `patience` is not above 0.
    """

    def __init__(self, target: Target, *, patience: float = PATIENCE) -> None:
        self._source = Source(target, patience=patience)
        self._counts = GrowingCounts()

    def describe(self) -> Iterable[Family]:
        """Return what it will collect, without a look at any queue."""
        return self._families([])

    def collect(self) -> Iterator[Family]:
        readings = self._source.read()
        self._counts.forget(readings)
        yield from self._families(readings)

    def _families(self, readings: list[Reading]) -> Iterator[Family]:
        for metric in METRICS:
            yield self._family(metric, readings)
        for histogram in HISTOGRAMS:
            yield self._histogram_family(histogram, readings)

    def _family(self, metric: Metric, readings: list[Reading]) -> Family:
        kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
        labels = ("queue", *metric.labels)
        family = kind(_name(metric), metric.description, labels=labels)
        for values, value in self._counts.values_of(metric, readings).items():
            family.add_metric(values, value)
        return family

    def _histogram_family(
        self, metric: HistogramMetric, readings: list[Reading]
    ) -> Family:
        family = HistogramMetricFamily(
            _name(metric), metric.description, labels=("queue", "handler")
        )
        bounds = (*map(str, map(float, metric.bounds)), "+Inf")
        found = self._counts.histograms_of(metric, readings)
        for labels, (*counts, total) in found.items():
            # How many were at most each bound, as Prometheus counts.
            buckets = [*zip(bounds, accumulate(counts), strict=True)]
            family.add_metric(labels, buckets, sum_value=total)
        return family


def _name(metric: Metric | HistogramMetric) -> str:
    name = metric.name.replace(".", "_")
    return f"{name}_seconds" if metric.unit == "s" else name
