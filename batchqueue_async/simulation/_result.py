"""What a simulation has found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from batchqueue_async import BatchQueueStats
from batchqueue_async._validation import refuse


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """A load as the queue took it; seconds are virtual ones."""

    arrivals: int
    """Items that came."""
    seconds: float
    """From the start to the end of the shutdown."""
    peak_waiting: int
    """The most items that waited in partitions at the same time, and..."""
    peak_producers: int
    """...the most producers that waited for room, each with an item."""
    batches: int
    """Calls of handlers."""
    last_seconds: float
    """Seconds from the last arrival until everything was settled, or given up."""
    stats: BatchQueueStats
    """The queue's account at the end: outcomes, partitions, drain tasks."""
    ages: Sequence[float] = field(repr=False)
    """Seconds from arrival to the end of the handler's call, of each handled item;
    ascending."""

    @property
    def handled(self) -> int:
        """Items whose handler returned."""
        return self.stats.handled

    @property
    def failed(self) -> int:
        """Items whose handler failed for good."""
        return self.stats.failed

    @property
    def lost(self) -> int:
        """Items that were refused, displaced, of no handler's type, or left."""
        stats = self.stats
        return stats.rejected + stats.dropped + stats.unhandled + stats.returned

    @property
    def left(self) -> int:
        """Items that the shutdown's deadline left unhandled."""
        return self.stats.returned

    @property
    def p50(self) -> float:
        """The median age."""
        return self.age(0.5)

    @property
    def p99(self) -> float:
        """The age that 99 of 100 items do not exceed."""
        return self.age(0.99)

    @property
    def mean_batch(self) -> float:
        """Items per call of a handler; 0.0 if there was none."""
        return len(self.ages) / self.batches if self.batches else 0.0

    @property
    def use(self) -> tuple[float, ...]:
        """The part of its time that each drain task spent in cycles."""
        span = self.seconds or 1.0
        return tuple(each.busy / span for each in self.stats.drain_tasks)

    def age(self, part: float) -> float:
        """Return the age that this part of all handled items do not exceed.

        Args:
            part: From 0.0 to 1.0.

        Returns:
            Seconds; 0.0 if nothing was handled.

        Raises:
            ValueError: It is no such part.
        """
        if not 0 <= part <= 1:
            refuse("part", "from 0 to 1", part)
        if not self.ages:
            return 0.0
        return self.ages[min(len(self.ages) - 1, int(part * len(self.ages)))]
