"""How often the `on_idle` of a handler is called for which nothing comes."""

from __future__ import annotations

from batchqueue_async._policies.retry import doubled
from batchqueue_async._validation import (
    refuse,
    require_positive,
)

from .value import Value


class IdleBackoff(Value):
    """Naps that double with each empty cycle, from `shortest` to `longest`.

    They are for handlers with an `on_idle`, which is called after each: every handler
    has its own, that begin anew after its batches. Where there is no `on_idle` an idle
    drain task has no timer: it sleeps until an item wakes it.

    An arriving item ends a nap early, so `longest` bounds the cost of idling and
    the period of `on_idle`, not the delay of an item.

    Attributes:
        shortest: Seconds of the first nap after data.
        longest: Seconds that no nap exceeds.
    """

    shortest: float = 0.001
    longest: float = 0.050

    def __post_init__(self) -> None:
        require_positive("shortest", self.shortest)
        require_positive("longest", self.longest)
        if self.longest < self.shortest:
            refuse("longest", f">= shortest ({self.shortest})", self.longest)

    def delay(self, empty_cycles: int) -> float:
        """Return the seconds to nap after so many empty cycles since the last data."""
        return doubled(self.shortest, empty_cycles, self.longest)
