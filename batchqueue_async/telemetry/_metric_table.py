"""The one table of all metrics: what they are called, and where their values are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from operator import add, attrgetter
from typing import Any, Final, Literal

from batchqueue_async._engine.handler_stats import (
    SECONDS,
    SIZES,
    Cuts,
    HandlerStats,
    Histogram,
)
from batchqueue_async.telemetry._source import Reading

Kind = Literal["counter", "sum", "gauge"]
"""A number that only grows; one that also falls; one whose sum means nothing."""

Values = Iterable[tuple[tuple[str, ...], float]]
"""Pairs of the labels' values, without the queue's name, and the value."""

_LIMIT_REASONS: Final = ("faster", "no_gain", "slower", "throttled", "failed")
OUTCOMES: Final = ("handled", "failed", "dropped", "unhandled", "returned")


@dataclass(frozen=True, slots=True)
class Metric:
    """Something that is read off a queue's statistics.

    OpenTelemetry uses the name as it is, and calls labels `batchqueue.<label>`.
    Prometheus has underscores instead of dots, then `seconds` if that is the unit, then
    `total` for a counter.
    """

    name: str
    kind: Kind
    unit: str
    description: str
    values: Callable[[Reading], Values]
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HistogramMetric:
    """Something that each batch adds a value to, with `measure_handlers=True`."""

    name: str
    unit: str
    description: str
    bounds: tuple[float, ...]
    of: Callable[[HandlerStats], Histogram | None]


def _field(
    name: str, kind: Kind, unit: str, description: str, field: str = ""
) -> Metric:
    """Return a metric that is a field of statistics: its name says whose and which."""
    whose, _, known_as = name.rpartition(".")
    path = (field or known_as).split(".")

    def values(reading: Reading) -> Iterator[tuple[tuple[str, ...], float]]:
        for labels, owner in _owners(reading, whose):
            found = owner
            for step in path:
                found = None if found is None else getattr(found, step)
            if found is not None:
                yield labels, found

    labels = (whose,) if whose in ("handler", "drain_task") else ()
    return Metric(f"batchqueue.{name}", kind, unit, description, values, labels)


def _owners(reading: Reading, whose: str) -> list[tuple[tuple[str, ...], Any]]:
    if whose == "handler":
        return [((each.name,), each) for each in reading.stats.handlers]
    if whose == "drain_task":
        return [((str(each.index),), each) for each in reading.stats.drain_tasks]
    return [((), reading.stats)]


def _outcomes(reading: Reading) -> Values:
    return [((outcome,), getattr(reading.stats, outcome)) for outcome in OUTCOMES]


def _refusals(reading: Reading) -> Values:
    closed = reading.stats.rejected_closed
    return [(("full",), reading.stats.rejected - closed), (("closed",), closed)]


def _by_reason(field: str, reasons: Sequence[str]) -> Callable[[Reading], Values]:
    def values(reading: Reading) -> Iterator[tuple[tuple[str, ...], float]]:
        for handler in reading.stats.handlers:
            if (counts := getattr(handler, field)) is not None:
                for reason in reasons:
                    yield (handler.name, reason), getattr(counts, reason)

    return values


def _fullest(reading: Reading) -> Values:
    used = reading.overview.used_fractions
    return [((), max(used))] if used else []


def _active(reading: Reading) -> Values:
    limit = reading.stats.drain_task_limit
    return [] if limit is None else [((), limit.drain_tasks)]


METRICS: Final = (
    _field("items.accepted", "counter", "{item}", "Items that were let in."),
    Metric(
        "batchqueue.items.rejected",
        "counter",
        "{item}",
        "Items that were refused, by what was in the way.",
        _refusals,
        ("reason",),
    ),
    Metric(
        "batchqueue.items.settled",
        "counter",
        "{item}",
        "Items that have ended, by outcome.",
        _outcomes,
        ("outcome",),
    ),
    _field(
        "items.retried",
        "counter",
        "{item}",
        "Items that were to be tried again, each time.",
    ),
    _field("items.waiting", "sum", "{item}", "Items that wait for their drain task."),
    _field(
        "items.in_flight", "sum", "{item}", "Items whose handler has not ended yet."
    ),
    _field(
        "items.unaccounted",
        "sum",
        "{item}",
        "Accepted items that are neither there nor settled: 0, or something is lost. "
        "Measured with `audit=True`, else 0 by definition.",
    ),
    _field(
        "items.oldest_age",
        "gauge",
        "s",
        "How long the oldest item that waits has waited.",
    ),
    _field(
        "producers.waiting",
        "sum",
        "{producer}",
        "Producers that wait for room.",
        "waiting_producers",
    ),
    _field("capacity", "sum", "{item}", "Items that may wait at the same time."),
    Metric(
        "batchqueue.partition.fullest",
        "gauge",
        "1",
        "How full the fullest partition is, from 0 to 1.",
        _fullest,
    ),
    Metric(
        "batchqueue.partition.count",
        "sum",
        "{partition}",
        "Partitions.",
        lambda reading: [((), len(reading.overview.used_fractions))],
    ),
    _field(
        "drain_task.cycles",
        "counter",
        "{cycle}",
        "Cycles in which a drain task delivered something.",
    ),
    _field(
        "drain_task.busy",
        "counter",
        "s",
        "Seconds that a drain task has spent in cycles.",
    ),
    Metric(
        "batchqueue.drain_task.active",
        "sum",
        "{drain_task}",
        "Drain tasks that own partitions, where their number is adaptive.",
        _active,
    ),
    _field(
        "rebalancing.rounds",
        "counter",
        "{round}",
        "Rounds of rebalancing.",
        "last_round.number",
    ),
    _field(
        "handler.batches",
        "counter",
        "{batch}",
        "Batches that have ended, however they did.",
    ),
    _field("handler.items", "counter", "{item}", "The items of these."),
    _field(
        "handler.retried",
        "counter",
        "{item}",
        "Items of a handler that were to be tried again, each time.",
    ),
    _field(
        "handler.inside",
        "gauge",
        "s",
        "For how long the longest call that runs has been inside of a handler.",
        "inside_for",
    ),
    Metric(
        "batchqueue.handler.cuts",
        "counter",
        "{batch}",
        "Batches by why they were cut, with `measure_handlers=True`.",
        _by_reason("cuts", [each.name for each in fields(Cuts)]),
        ("handler", "reason"),
    ),
    _field(
        "handler.max_batch",
        "gauge",
        "{item}",
        'What `max_batch="auto"` has come to.',
        "limit.max_batch",
    ),
    Metric(
        "batchqueue.handler.limit_changes",
        "counter",
        "{change}",
        "How often that was changed, by reason.",
        _by_reason("limit", _LIMIT_REASONS),
        ("handler", "reason"),
    ),
    Metric(
        "batchqueue.handler.not_closed",
        "sum",
        "{handler}",
        "Handlers whose `on_close` was due and did not complete.",
        lambda reading: [((), len(reading.stats.not_closed))],
    ),
    Metric(
        "batchqueue.loop.blocked",
        "gauge",
        "1",
        "1 while the queue's loop does not answer: something blocks it, or it ended.",
        lambda reading: [((), float(not reading.loop_responds))],
    ),
)

HISTOGRAMS: Final = (
    HistogramMetric(
        "batchqueue.handler.batch_size",
        "{item}",
        "Items per batch.",
        SIZES,
        attrgetter("sizes"),
    ),
    HistogramMetric(
        "batchqueue.handler.duration",
        "s",
        "Seconds that each call of a handler took, those of retries, too.",
        SECONDS,
        attrgetter("seconds"),
    ),
)


def values_of(
    metric: Metric, readings: Iterable[Reading]
) -> dict[tuple[str, ...], float]:
    """Return the metric's values by labels, the queue's first.

    Handlers of one name are counted together, and queues, of which one may be ending.
    """
    together = max if metric.kind == "gauge" else add
    merged: dict[tuple[str, ...], float] = {}
    for reading in readings:
        for labels, value in metric.values(reading):
            key = (reading.stats.name, *labels)
            merged[key] = together(merged[key], value) if key in merged else value
    return merged


def histograms_of(
    metric: HistogramMetric, reading: Reading
) -> dict[tuple[str, ...], tuple[float, ...]]:
    """Return each class's count, and then the total, by queue and handler."""
    merged: dict[tuple[str, ...], tuple[float, ...]] = {}
    for handler in reading.stats.handlers:
        if (histogram := metric.of(handler)) is not None:
            key = (reading.stats.name, handler.name)
            counts = (*histogram.counts, histogram.total)
            known = merged.get(key, (0,) * len(counts))
            merged[key] = tuple(map(add, known, counts))
    return merged
