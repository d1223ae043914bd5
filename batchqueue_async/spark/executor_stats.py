"""Statistics of executors' queues: told by tasks as they end, added up in the driver.

A task tells what its queue did meanwhile, by an accumulator of Spark's. It does so only
if the driver had a `SparkJobs` when the frame was made.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

from pyspark.accumulators import AccumulatorParam

from batchqueue_async import BatchQueueStats, HandlerStats

from .frames import is_connect

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator
    from pyspark.sql import DataFrame, SparkSession

Report: TypeAlias = Mapping[str, BatchQueueStats]
"""What queues have done, by name."""

OUTCOMES = ("handled", "failed", "dropped", "unhandled", "returned")
_GROWING = (*OUTCOMES, "rejected", "rejected_closed", "retried")
_NOW = ("waiting", "in_flight", "capacity", "waiting_producers", "oldest_age")
_ZEROS = dict.fromkeys((*_GROWING, *_NOW), 0)
# Queues on executors may be named after data, without end. This many names are counted
# each by itself, all others together.
_MOST_NAMES = 200
_OTHERS = "others"


@dataclass(frozen=True, slots=True)
class CallCounts:
    """What the calls of a `map_async` came to, in tasks that Spark has accepted.

    Attributes:
        calls: How many times `call` was called, further attempts included.
        items: How many items were given to it, each counted once.
        retried: How many items were given to it again, counted each time.
        failed: How many items ended as failed, with `on_error="null"` or `"column"`.
    """

    calls: int = 0
    items: int = 0
    retried: int = 0
    failed: int = 0

    def __add__(self, other: CallCounts) -> CallCounts:
        return CallCounts(*map(sum, zip(astuple(self), astuple(other), strict=True)))


def counted(
    name: str,
    handlers: Iterable[HandlerStats] = (),
    not_closed: tuple[str, ...] = (),
    **counts: int,
) -> BatchQueueStats:
    """Return statistics in which only items that have ended are known.

    `accepted` is the sum of the outcomes: an item counts when its task ends.
    """
    known: dict[str, Any] = _ZEROS | counts
    return BatchQueueStats(
        name=name,
        accepted=sum(known[outcome] for outcome in OUTCOMES),
        partitions=(),
        drain_tasks=(),
        last_round=None,
        handlers=tuple(handlers),
        not_closed=not_closed,
        **known,
    )


def of_calls(name: str, counts: CallCounts) -> BatchQueueStats:
    """Return what the calls of a `map_async` come to."""
    given = counts.items + counts.retried
    handler = _handler(name, counts.calls, given, counts.retried)
    return counted(
        f"map_async {name}",
        [handler],
        handled=counts.items - counts.failed,
        failed=counts.failed,
        retried=counts.retried,
    )


def since(before: BatchQueueStats, now: BatchQueueStats) -> BatchQueueStats:
    """Return what a queue has done after `before`."""
    return _combined(now.name, [(1, now), (-1, before)])


def together(one: Report, other: Report) -> Report:
    """Return the sums of both."""
    sums = dict(one)
    for told_as, stats in other.items():
        is_known = told_as in sums or len(sums) < _MOST_NAMES
        name = told_as if is_known else _OTHERS
        known = [(1, sums[name])] if name in sums else []
        sums[name] = _combined(name, [*known, (1, stats)])
    return sums


class Adding(AccumulatorParam[Report]):
    """Tells Spark how the reports of tasks are added."""

    def zero(self, value: Report) -> Report:
        """Return what every task starts with."""
        del value
        return {}

    def addInPlace(  # noqa: N802 - Spark's name
        self, value1: Report, value2: Report
    ) -> Report:
        """Return new sums: another thread may be reading the first report."""
        return together(value1, value2)


class Ledger:
    """What the executors of one session have told its driver. Any thread may use it.

    There is no accumulator with Spark Connect, where tasks can tell nothing.
    """

    def __init__(self, accumulator: Accumulator[Report] | None) -> None:
        self.accumulator = accumulator
        self._lock = threading.Lock()
        self._receipts: Report = {}

    def add(self, stats: BatchQueueStats) -> None:
        """Add what the driver has got to know by itself."""
        with self._lock:
            self._receipts = together(self._receipts, {stats.name: stats})

    def total(self) -> Report:
        """Return what is known by now."""
        told = {} if self.accumulator is None else self.accumulator.value
        return together(told, self._receipts)


_ledgers: WeakKeyDictionary[object, Ledger] = WeakKeyDictionary()


def ledger_of(spark: SparkSession) -> Ledger:
    """Return the session's ledger; from now on its frames' tasks fill it."""
    key = _key(spark)
    found = _ledgers.get(key)
    if found is None:
        accumulator = None
        if not is_connect(spark):
            accumulator = spark.sparkContext.accumulator({}, Adding())
        found = _ledgers[key] = Ledger(accumulator)
    return found


def watching(df: DataFrame) -> Ledger | None:
    """Return the ledger of the frame's session; None if nobody asked for one."""
    return _ledgers.get(_key(df.sparkSession)) if _ledgers else None


def accumulator_of(df: DataFrame) -> Accumulator[Report] | None:
    """Return the accumulator that the frame's tasks add to; None without a ledger."""
    ledger = watching(df)
    return None if ledger is None else ledger.accumulator


def _key(spark: SparkSession) -> object:
    # A context's sessions share its accumulators.
    return spark if is_connect(spark) else spark.sparkContext


def _combined(
    name: str, parts: Iterable[tuple[int, BatchQueueStats]]
) -> BatchQueueStats:
    """Return the sums, with the sign of each part."""
    counts = dict.fromkeys(_GROWING, 0)
    handlers: dict[str, list[int]] = {}
    capacity = 0
    not_closed: dict[str, None] = {}
    for sign, stats in parts:
        for outcome in _GROWING:
            counts[outcome] += sign * getattr(stats, outcome)
        for each in stats.handlers:
            sums = handlers.setdefault(each.name, [0, 0, 0])
            for at, count in enumerate((each.batches, each.items, each.retried)):
                sums[at] += sign * count
        capacity = max(capacity, stats.capacity)
        not_closed |= dict.fromkeys(stats.not_closed)
    told = [_handler(handler, *sums) for handler, sums in handlers.items()]
    return counted(name, told, (*not_closed,), capacity=capacity, **counts)


def _handler(name: str, batches: int, items: int, retried: int) -> HandlerStats:
    return HandlerStats(
        name=name,
        batches=batches,
        items=items,
        retried=retried,
        sizes=None,
        seconds=None,
        cuts=None,
    )
