"""The metrics by OpenTelemetry's API: who has no SDK pays for nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Any, Self
from weakref import WeakSet

from opentelemetry.metrics import (
    CallbackOptions,
    Meter,
    MeterProvider,
    Observation,
    get_meter_provider,
)

from batchqueue_async._bridge.loop_thread import LoopThread, run_of
from batchqueue_async._engine.handler_stats import SECONDS, SIZES
from batchqueue_async._engine.manager import BatchQueueManager, on_create
from batchqueue_async._engine.queue import BatchQueue, parts_of
from batchqueue_async._policies.errors import BatchQueueError
from batchqueue_async._version import __version__
from batchqueue_async.telemetry._metric_table import (
    HISTOGRAMS,
    METRICS,
    Metric,
    values_of,
)
from batchqueue_async.telemetry._source import (
    PATIENCE,
    Reading,
    Source,
    Target,
    Watched,
    queues_of,
)

# All instruments of one collection are observed within it, and share one reading.
_FRESH = 0.05


def instrument(
    target: Target,
    *,
    meter_provider: MeterProvider | None = None,
    patience: float = PATIENCE,
) -> Instrumentation:
    """Have OpenTelemetry observe all queues of a target, those of the future, too.

    Counters and gauges are observed when metrics are collected: they cost nothing per
    item. The loop answers between its other callbacks; one that does not is waited for
    `patience` seconds, then the figures are read past it and `batchqueue.loop.blocked`
    is 1. Queues with `measure_handlers=True` record a batch's size and seconds as
    histograms when it ends, from this call on.

    Instruments cannot be taken back from OpenTelemetry's providers: after `close` they
    observe nothing.

    Args:
        target: A queue, from either side, a manager, a running LoopThread,
            `QueuesElsewhere`, or several of them.
        meter_provider: OpenTelemetry's global one unless given.
        patience: Seconds that a loop gets to answer.

    Raises:
        TypeError: The target is none of these.
        BatchQueueError: The LoopThread does not run.
    """
    provider = get_meter_provider() if meter_provider is None else meter_provider
    source = Source(target, patience=patience)
    return Instrumentation(source, provider.get_meter("batchqueue_async", __version__))


class Instrumentation:
    """What `instrument` has begun; `close` ends it, as does leaving `with`."""

    def __init__(self, source: Source, meter: Meter) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._readings: list[Reading] = []
        self._read_at = float("-inf")
        self._is_closed = False
        self._record_size, self._record_seconds = (
            meter.create_histogram(
                each.name,
                each.unit,
                each.description,
                explicit_bucket_boundaries_advisory=list(bounds),
            ).record
            for each, bounds in zip(HISTOGRAMS, (SIZES, SECONDS), strict=True)
        )
        self._endings: list[Callable[[], None]] = []
        self._heard: WeakSet[BatchQueue[Any]] = WeakSet()
        try:
            for each in source.watched:
                self._follow(each)
        except BatchQueueError:
            self.close()
            raise
        for metric in METRICS:
            self._create(meter, metric)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Observe nothing from now on. Idempotent."""
        self._is_closed = True
        while self._endings:
            self._endings.pop()()

    def _create(self, meter: Meter, metric: Metric) -> None:
        create = {
            "counter": meter.create_observable_counter,
            "sum": meter.create_observable_up_down_counter,
            "gauge": meter.create_observable_gauge,
        }[metric.kind]
        names = tuple(f"batchqueue.{each}" for each in ("queue", *metric.labels))

        def observe(_: CallbackOptions) -> Iterable[Observation]:
            return [
                Observation(value, dict(zip(names, labels, strict=True)))
                for labels, value in values_of(metric, self._read()).items()
            ]

        create(metric.name, [observe], metric.unit, metric.description)

    def _read(self) -> list[Reading]:
        if self._is_closed:
            return []
        with self._lock:
            now = time.monotonic()
            if now - self._read_at > _FRESH:
                self._readings = self._source.read()
                self._read_at = time.monotonic()
            return self._readings

    def _follow(self, watched: Watched) -> None:
        """Listen to each queue, those of the future, too."""
        if isinstance(watched, LoopThread):
            run = run_of(watched)
            if run is None:
                msg = "target must be a LoopThread that runs, got one that does not"
                raise BatchQueueError(msg)
            watched = run.manager
        if isinstance(watched, BatchQueueManager):
            self._endings.append(on_create(watched, self._listen))
            return
        for queue in queues_of(watched):
            self._listen(queue)

    def _listen(self, queue: BatchQueue[Any]) -> None:
        if queue in self._heard:
            # Watched by itself, and as one of a manager's.
            return
        self._heard.add(queue)
        listeners = parts_of(queue).handlers.settings.listeners
        listener = _Recorder(queue.name, self._record_size, self._record_seconds)
        listeners.append(listener)
        self._endings.append(partial(listeners.remove, listener))


class _Recorder:
    """Records each batch of one queue, on its loop."""

    def __init__(
        self, queue: str, size: Callable[..., None], seconds: Callable[..., None]
    ) -> None:
        self._size = size
        self._seconds = seconds
        self._of = cache(
            lambda handler: {
                "batchqueue.queue": queue,
                "batchqueue.handler": handler,
            }
        )

    def cut(self, handler: str, size: int) -> None:
        self._size(size, self._of(handler))

    def called(self, handler: str, seconds: float) -> None:
        self._seconds(seconds, self._of(handler))
