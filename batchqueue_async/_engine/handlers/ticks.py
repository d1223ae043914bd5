"""When a handler's `on_tick` is due."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from batchqueue_async._engine.handlers.registration import Hook


# Of a period, how much earlier than due is in time.
_ROUNDING = 1e-3


class Ticks:
    """When `on_tick` is due: at equal intervals; ticks that were missed count as one.

    All types that a handler handles share one.
    """

    def __init__(self, hook: Hook, every: float) -> None:
        self.hook = hook
        self.every = every
        # None before anybody has looked, and after its handler was removed.
        self.due: float | None = None
        # By how many types its handler is registered.
        self.types = 1

    def next_due(self, now: float) -> float:
        """Return when it ticks next, or should have ticked."""
        if self.due is None:
            self.due = now + self.every
        return self.due

    def late(self, now: float) -> float:
        """Return for how many seconds it has been due; less than 0 before it is."""
        return now - self.next_due(now)

    def leave(self) -> None:
        """A type is taken from its handler; with the last one its time ends, too.

        If the handler comes back, its first tick is not due before that.
        """
        self.types -= 1
        if self.types <= 0:
            self.due = None

    def done(self, now: float) -> None:
        """Note a tick now, which stands for all that were missed before."""
        if self.due is None:
            # Its handler was removed just now.
            return
        # With what is due just now, and by rounding a moment later.
        missed = math.floor((now - self.due) / self.every + _ROUNDING)
        self.due += (missed + 1) * self.every
        if self.due <= now:
            # Where the clock's own steps are coarser than that.
            self.due += self.every
