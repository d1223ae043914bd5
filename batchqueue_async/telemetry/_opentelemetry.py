"""The metrics by OpenTelemetry's API, which does nothing without its SDK."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache, partial
from typing import Any, Self
from weakref import WeakKeyDictionary, WeakSet

from opentelemetry.metrics import (
    CallbackOptions,
    Meter,
    MeterProvider,
    Observation,
    get_meter_provider,
)

from batchqueue_async._bridge.loop_thread import LoopThread, run_of
from batchqueue_async._engine.manager import BatchQueueManager, on_create
from batchqueue_async._engine.queue import BatchQueue, parts_of
from batchqueue_async._policies.errors import BatchQueueError
from batchqueue_async._validation import refuse
from batchqueue_async._version import __version__
from batchqueue_async.telemetry._growing_counts import GrowingCounts
from batchqueue_async.telemetry._metric_table import (
    HISTOGRAMS,
    METRICS,
    Metric,
)
from batchqueue_async.telemetry._no_harm import NoHarm
from batchqueue_async.telemetry._source import (
    PATIENCE,
    Reading,
    Source,
    Target,
    Watched,
    queues_of,
)

# Seconds that a reading is used for at most: a collection's instruments share it.
_FRESH = 0.05


def instrument(
    target: Target,
    *,
    meter_provider: MeterProvider | None = None,
    patience: float = PATIENCE,
) -> Instrumentation:
    """Have OpenTelemetry observe all queues of a target, also those made later.

    Counters and gauges are observed when metrics are collected: they cost nothing per
    item. The loop answers between its other callbacks; one that does not is waited for
    `patience` seconds, then the figures are read without it and
    `batchqueue.loop.blocked` is 1. Queues with `measure_handlers=True` record a batch's
    size and seconds as histograms when it ends, from this call on.

    Instruments cannot be taken back from OpenTelemetry's providers: after `close` they
    observe nothing.

    Args:
        target: A queue, from either side, a manager, a running LoopThread,
            `QueuesElsewhere`, or several of them.
        meter_provider: OpenTelemetry's global one unless given.
        patience: Seconds that a loop gets to answer.

    Raises:
        TypeError: The target is none of these, or another argument is of the wrong
            kind.
        ValueError: `patience` is not above 0.
        BatchQueueError: The LoopThread does not run.
    """
    provider = get_meter_provider() if meter_provider is None else meter_provider
    if not hasattr(provider, "get_meter"):
        refuse("meter_provider", "a MeterProvider, or None", provider, TypeError)
    source = Source(target, patience=patience)
    return Instrumentation(source, _observed_by(provider))


class Instrumentation:
    """What `instrument` has begun; `close` ends it, as does leaving `with`."""

    def __init__(self, source: Source, observed: _Observed) -> None:
        self._source = source
        self._observed = observed
        # Of managers; and of queues, which go as their queues do, so that a manager's
        # may come and go for as long as it lives.
        self._endings: list[Callable[[], None]] = []
        self._heard: WeakKeyDictionary[BatchQueue[Any], Callable[[], None]] = (
            WeakKeyDictionary()
        )
        try:
            for each in source.watched:
                self._follow(each)
        except BatchQueueError:
            self.close()
            raise
        observed.add(source)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Observe nothing from now on. Idempotent."""
        self._observed.remove(self._source)
        while self._endings:
            self._endings.pop()()
        # A KeyError is its end; a queue may be collected in between.
        with suppress(KeyError):
            while True:
                self._heard.popitem()[1]()

    def _follow(self, watched: Watched) -> None:
        """Listen to each queue, also to those made later."""
        if isinstance(watched, LoopThread):
            run = run_of(watched)
            if run is None:
                msg = "target must be a LoopThread that runs, got one that does not"
                raise BatchQueueError(msg)
            watched = run.manager
        if isinstance(watched, BatchQueueManager):
            note_end = self._source.note_end
            self._endings.append(on_create(watched, self._listen, note_end))
            return
        for queue in queues_of(watched):
            self._listen(queue)

    def _listen(self, queue: BatchQueue[Any]) -> None:
        listeners = parts_of(queue).handlers.settings.listeners
        record = self._observed.record
        with _finding:
            if queue in self._heard:
                # It is watched by itself, and as one of a manager's; or it was made
                # while that was looked through.
                return
            found = [
                each
                for each in listeners
                if isinstance(each, _Recorder) and each.record == record
            ]
            recorder = found[0] if found else _Recorder(queue.name, record)
            recorder.users += 1
            if not found:
                listeners.append(recorder)
            self._heard[queue] = partial(_leave, listeners, recorder)


class _Observed:
    """What one provider observes: all that is instrumented there, until it is closed.

    An SDK has each instrument once, with the callbacks that it was first created with;
    those of a second creation are never asked.
    """

    def __init__(self, meter: Meter) -> None:
        # Two locks: a reader waits for loops, on which targets are added and removed.
        self._changing, self._reading = threading.Lock(), threading.Lock()
        self._open: tuple[Source, ...] = ()
        self._readings: list[Reading] = []
        self._read_of: tuple[Source, ...] = ()
        self._read_at = float("-inf")
        # Which metrics have been told of it: who asks again is another collection.
        self._told: set[str] = set()
        # The last figures of queues, which this collection has.
        self._ended: list[Reading] = []
        self._counts = GrowingCounts()
        self.record: tuple[Callable[..., None], ...] = tuple(
            meter.create_histogram(
                each.name,
                each.unit,
                each.description,
                explicit_bucket_boundaries_advisory=list(each.bounds),
            ).record
            for each in HISTOGRAMS
        )
        for metric in METRICS:
            self._create(meter, metric)

    def add(self, source: Source) -> None:
        source.on_too_many = self._counts.add
        with self._changing:
            self._open = (*self._open, source)

    def remove(self, source: Source) -> None:
        with self._changing:
            self._open = tuple(each for each in self._open if each is not source)

    def _create(self, meter: Meter, metric: Metric) -> None:
        create = {
            "counter": meter.create_observable_counter,
            "sum": meter.create_observable_up_down_counter,
            "gauge": meter.create_observable_gauge,
        }[metric.kind]
        names = tuple(f"batchqueue.{each}" for each in ("queue", *metric.labels))

        def observe(_: CallbackOptions) -> Iterable[Observation]:
            found = self._counts.values_of(metric, self._read(metric.name))
            return [
                Observation(value, dict(zip(names, labels, strict=True)))
                for labels, value in found.items()
            ]

        create(metric.name, [observe], metric.unit, metric.description)

    def _read(self, metric: str) -> list[Reading]:
        with self._reading:
            known, age = self._open, time.monotonic() - self._read_at
            begins = not self._told or metric in self._told
            if begins or known is not self._read_of or age > _FRESH:
                found = [each for source in known for each in source.read()]
                if begins:  # so that each metric has them, however long it takes
                    self._told.clear()
                    ended = (each for source in known for each in source.take_ended())
                    self._ended = [*{each.identity: each for each in ended}.values()]
                self._readings = self._together(found)
                if begins:
                    self._counts.forget(self._readings)
                self._read_of, self._read_at = known, time.monotonic()
            self._told.add(metric)
            return self._readings

    def _together(self, found: list[Reading]) -> list[Reading]:
        """Return readings with those of queues that have ended, each queue once.

        It may have been instrumented twice, or have ended since it was looked at.
        """
        gone = {each.identity for each in self._ended}
        here = {each.identity: each for each in found if each.identity not in gone}
        return [*here.values(), *self._ended]


_observed: WeakKeyDictionary[MeterProvider, _Observed] = WeakKeyDictionary()
_stand_ins: WeakSet[MeterProvider] = WeakSet()
_finding = threading.Lock()


def _observed_by(provider: MeterProvider) -> _Observed:
    with _finding:
        meter = _meter_of(provider)
        found = _observed.get(provider)
        for other in () if found else [*_stand_ins]:
            # The API's stand-in, for which the real provider was set since.
            if _meter_of(other) is meter:
                found = _observed[other]
        if found is None:
            found = _Observed(meter)
            if _meter_of(provider) is not meter:
                _stand_ins.add(provider)
        _observed[provider] = found
        return found


def _meter_of(provider: MeterProvider) -> Meter:
    return provider.get_meter("batchqueue_async", __version__)


class _Recorder:
    """Records each batch of one queue, on its loop.

    One for each provider, however often the queue was instrumented there.
    """

    def __init__(self, queue: str, record: tuple[Callable[..., None], ...]) -> None:
        self.record = record
        self.users = 0
        self._size, self._seconds = record
        self._no_harm = NoHarm(queue=queue)
        self._of = cache(
            lambda handler: {
                "batchqueue.queue": queue,
                "batchqueue.handler": handler,
            }
        )

    def cut(self, handler: str, size: int) -> None:
        # What it raised would be taken for the drain task's.
        with self._no_harm:
            self._size(size, self._of(handler))

    def called(self, handler: str, seconds: float) -> None:
        with self._no_harm:
            self._seconds(seconds, self._of(handler))


def _leave(listeners: list[Any], recorder: _Recorder) -> None:
    with _finding:
        recorder.users -= 1
        if not recorder.users:
            listeners.remove(recorder)
