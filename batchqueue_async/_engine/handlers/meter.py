"""What handlers' batches were like, and why they were cut: only where somebody asks."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from batchqueue_async._engine.handler_stats import Cuts, Histogram

if TYPE_CHECKING:
    from batchqueue_async._engine.draining.batch import Batch
    from batchqueue_async._engine.partitions.partition import Partition

Causes: TypeAlias = "dict[Partition[Any], int]"

SIZES: Final = tuple(2**power for power in range(17))
"""Upper bounds of batch sizes."""
SECONDS: Final = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""Upper bounds of the seconds that a call took."""
DUE, LINGER, FULL, FLUSH, CLOSE = range(5)
"""Why a batch was cut; where several partitions say so, the later one counts."""


class BatchListener(Protocol):
    """Somebody who wants to know of each single batch, on the loop; must not raise."""

    def cut(self, handler: str, size: int) -> None:
        """A batch was made for the handler of this name."""

    def called(self, handler: str, seconds: float) -> None:
        """A call of it has ended."""


class Meter:
    """Counts by class; the last class of each is what exceeds all bounds."""

    def __init__(self, handler: str, listeners: Sequence[BatchListener]) -> None:
        self._handler = handler
        # Those of the queue: there may be more of them later.
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
    """Return why each partition is taken from; to be asked before that is done."""
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
    """Book the batches that were made of it, with their handlers."""
    for batch in batches:
        if batch.registration is None or (meter := batch.registration.meter) is None:
            continue
        most = batch.registration.max_batch
        # A piece of several partitions, each of which holds less.
        is_full = most is not None and len(batch) >= most
        why = max(causes[share.partition] for share in batch.shares)
        meter.cut(len(batch), FULL if is_full else why)
