"""What one handler was like up to one moment: frozen, and apart from the handler."""

from __future__ import annotations

from batchqueue_async._policies.value import Value, frozen


@frozen
class Histogram(Value):
    """How often something was how large."""

    bounds: tuple[float, ...]
    """The upper bounds of all classes but the last one, ascending; a value that is
    equal to one is below it."""
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


@frozen(kw_only=True)
class Cuts(Value):
    """Why a handler's batches were cut where they were, in batches."""

    full: int
    """`max_batch` or `buffer_size` was reached, or a producer waited for room."""
    due: int
    """Without `linger`: the drain task came by, and took what was there."""
    linger: int
    """The oldest item had waited for `linger`."""
    flush: int
    """A `flush` asked for it."""
    close: int
    """The queue was closing."""


@frozen(kw_only=True)
class HandlerStats(Value):
    """One handler of one type, or the consumer, up to one moment.

    `sizes`, `seconds` and `cuts` are there only where `BatchQueueConfig` says
    `measure_handlers=True`.
    """

    name: str
    """As in logs: the handler's, and that of its type."""
    batches: int
    """Batches of it that have ended, however they did; halves of one, too."""
    items: int
    """The items of these."""
    retried: int
    """Items that were to be tried again, each time."""
    sizes: Histogram | None
    """The sizes of its batches, as they were cut."""
    seconds: Histogram | None
    """What its calls took, retries included."""
    cuts: Cuts | None
    """Why its batches were cut."""
    inside_for: float = 0.0
    """For how many seconds the longest call that runs now has been inside of it, or of
    one of its hooks; 0.0 where none runs."""
