"""How long a drain task naps when it found nothing."""

from __future__ import annotations

from .retrying import doubled
from .validation import refuse, require_positive
from .value import Value, frozen


@frozen
class IdleBackoff(Value):
    """Naps that double with each empty cycle, from `shortest` to `longest`.

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
