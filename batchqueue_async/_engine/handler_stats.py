"""Statistics of one handler at one moment, which do not change after that.

And the counters for them: why batches were cut, and their sizes, only if configured.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

from batchqueue_async._policies.value import Value

if TYPE_CHECKING:
    from batchqueue_async._engine.draining.batch import Batch
    from batchqueue_async._engine.partitions.partition import Partition


class Histogram(Value):
    """How often values of each size were seen."""

    bounds: tuple[float, ...]
    """The upper bounds of all classes but the last one, ascending; a value that equals
    a bound belongs to the class below it."""
    counts: tuple[int, ...]
    """How many values fell into each class: one more than there are bounds."""
    total: float
    """The sum of all values."""

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self.counts)

    @property
    def mean(self) -> float:
        """The mean of all values; 0.0 where there is none."""
        return self.total / self.count if self.count else 0.0


class Cuts(Value, kw_only=True):
    """Why a handler's batches were cut where they were: a number of batches each."""

    full: int
    """`max_batch` or `buffer_size` was reached, or a producer waited for room."""
    due: int
    """Without `linger`: the drain task looked, and took what was there."""
    linger: int
    """The oldest item had waited for `linger`."""
    flush: int
    """A `flush` asked for it."""
    close: int
    """The queue was closing."""


LimitReason: TypeAlias = Literal[
    "start", "faster", "no_gain", "slower", "throttled", "failed"
]
"""Why a limit is what it is; see `BatchLimit`."""


class BatchLimit(Value, kw_only=True):
    """What limit `max_batch="auto"` has found, and why.

    The last five count how often the limit was changed for that reason.
    """

    max_batch: int
    """What it found the best size of a batch to be; sizes around it are tried."""
    before: int
    """What that was before the last change."""
    reason: LimitReason
    """Why it was changed last: one of the names below, or "start"."""
    faster: int
    """Raised: larger batches brought more items per second."""
    no_gain: int
    """Lowered: smaller batches brought nearly as many items per second, or more."""
    slower: int
    """Lowered: calls suddenly took twice as long, or longer, for each item."""
    throttled: int
    """Lowered: the handler raised `RetryAfter`, or a `PartialFailure` that has one."""
    failed: int
    """Lowered: the handler raised anything else."""

    def __str__(self) -> str:
        return (
            f"batches have about {self.max_batch} items, {self.before} before: "
            f"{self.why}{_times(self)}"
        )

    @property
    def why(self) -> str:
        """The reason for the last change, in words."""
        return _OF_SIZES[self.reason]


CountReason: TypeAlias = Literal["start", "faster", "no_gain", "idle", "throttled"]
"""Why there are so many drain tasks at work; see `DrainTaskLimit`."""


class DrainTaskLimit(Value, kw_only=True):
    """What number of drain tasks `DrainTaskPolicy.adaptive` has found, and why.

    The last four count how often it was changed for that reason.
    """

    drain_tasks: int
    """How many own partitions, those that are only tried included."""
    before: int
    """How many owned partitions before the last change."""
    reason: CountReason
    """Why it was changed last: one of the names below, or "start"."""
    faster: int
    """Raised: more of them handled more items per second."""
    no_gain: int
    """Lowered: fewer of them handled nearly as many, or more."""
    idle: int
    """Lowered: they were idle for half of the time."""
    throttled: int
    """Lowered: handlers raised, and items are tried again."""

    def __str__(self) -> str:
        tasks = "drain task works" if self.drain_tasks == 1 else "drain tasks work"
        return (
            f"{self.drain_tasks} {tasks}, {self.before} did before: "
            f"{self.why}{_times(self)}"
        )

    @property
    def why(self) -> str:
        """The reason for the last change, in words."""
        return _OF_COUNTS[self.reason]


_NOTHING_CHANGED = "nothing has been changed yet"
_OF_SIZES: dict[LimitReason, str] = {
    "start": _NOTHING_CHANGED,
    "faster": "larger ones brought more items per second",
    "no_gain": "smaller ones brought nearly as many items per second",
    "slower": "calls took twice as long for each item",
    "throttled": "the handler was asked to wait",
    "failed": "the handler failed",
}
_OF_COUNTS: dict[CountReason, str] = {
    "start": _NOTHING_CHANGED,
    "faster": "more of them handled more items per second",
    "no_gain": "fewer of them handled nearly as many items per second",
    "idle": "they were idle for half of the time",
    "throttled": "items had to be tried again",
}


def _times(limit: BatchLimit | DrainTaskLimit) -> str:
    if limit.reason == "start":
        return ""
    times = getattr(limit, limit.reason)
    return f" (changed {times} {'time' if times == 1 else 'times'} for that)"


class HandlerStats(Value, kw_only=True):
    """One handler of one type, or the consumer, up to one moment.

    `sizes`, `seconds` and `cuts` are there only where `BatchQueueConfig` says
    `measure_handlers=True`.
    """

    name: str
    """As in logs: the name of the handler, and that of its type."""
    batches: int
    """Batches of it that have ended, however they did; halves of a batch count, too."""
    items: int
    """The items of these batches."""
    retried: int
    """Items that were to be tried again, counted each time."""
    sizes: Histogram | None
    """The sizes of its batches, as they were cut."""
    seconds: Histogram | None
    """How long its calls took, retries included."""
    cuts: Cuts | None
    """Why its batches were cut."""
    inside_for: float = 0.0
    """For how many seconds the longest call that runs now, of it or of one of its
    hooks, has run; 0.0 if none runs."""
    limit: BatchLimit | None = None
    """What its batches are limited to now, where `max_batch` is "auto"."""


Causes: TypeAlias = "dict[Partition[Any], int]"

SIZES: Final = tuple(2**power for power in range(17))
"""Upper bounds of batch sizes."""
SECONDS: Final = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""Upper bounds of the seconds that a call took."""
DUE, LINGER, FULL, FLUSH, CLOSE = range(5)
"""Why a batch was cut; of several partitions' causes, the largest number counts."""


class BatchListener(Protocol):
    """Something that is told of each single batch, on the loop; it must not raise."""

    def cut(self, handler: str, size: int) -> None:
        """A batch was made for the handler of this name."""

    def called(self, handler: str, seconds: float) -> None:
        """A call of it has ended."""


class Meter:
    """Counts by class; the last class of each is for what exceeds all bounds."""

    def __init__(self, handler: str, listeners: Sequence[BatchListener]) -> None:
        self._handler = handler
        # The list of the queue, which may get more listeners later.
        self._listeners = listeners
        self.sizes = [0] * (len(SIZES) + 1)
        self.items = 0
        self.seconds = [0] * (len(SECONDS) + 1)
        self.total_seconds = 0.0
        self.cuts = [0] * 5

    def cut(self, size: int, why: int) -> None:
        self.sizes[bisect_left(SIZES, size)] += 1
        self.items += size
        self.cuts[why] += 1
        for listener in self._listeners:
            listener.cut(self._handler, size)

    def called(self, seconds: float) -> None:
        self.seconds[bisect_left(SECONDS, seconds)] += 1
        self.total_seconds += seconds
        for listener in self._listeners:
            listener.called(self._handler, seconds)

    def read(self) -> tuple[Histogram, Histogram, Cuts]:
        cuts = self.cuts
        return (
            Histogram(SIZES, tuple(self.sizes), self.items),
            Histogram(SECONDS, tuple(self.seconds), self.total_seconds),
            Cuts(
                full=cuts[FULL],
                due=cuts[DUE],
                linger=cuts[LINGER],
                flush=cuts[FLUSH],
                close=cuts[CLOSE],
            ),
        )


def causes_of(partitions: Iterable[Partition[Any]]) -> Causes:
    """Return why each partition is taken from; to be called before the take."""
    return {partition: _cause(partition) for partition in partitions}


def _cause(partition: Partition[Any]) -> int:
    if partition.is_closed:
        return CLOSE
    if partition.accounts.is_watched:
        return FLUSH
    if partition.is_due():
        return FULL
    return LINGER if partition.ages.linger else DUE


def note_cuts(batches: Iterable[Batch[Any]], causes: Causes) -> None:
    """Count the batches of a take, and why they were cut, with their handlers."""
    for batch in batches:
        if batch.registration is None or (meter := batch.registration.meter) is None:
            continue
        most = batch.registration.max_batch
        # It may be full with items of several partitions, none of which was full.
        is_full = most is not None and len(batch) >= most
        why = max(causes[share.partition] for share in batch.shares)
        meter.cut(len(batch), FULL if is_full else why)
