"""What goes wrong in a way that a user of the ring can act on."""

from __future__ import annotations


class RingError(Exception):
    """A ring was used in a way that cannot work; base of the others."""


class InvalidArgument(RingError, ValueError):
    """A capacity, a count or a handler that no ring can work with."""


class InsufficientCapacity(RingError):
    """There is no room now: consumers are behind, or others wait for their turn."""


class RingHalted(RingError):
    """The ring takes no more events: it was shut down, or a handler's error halted it.

    In the latter case `__cause__` is that error.
    """


class RewindBatch(Exception):
    """Raised by a handler that wants its whole batch again, from its first event on.

    For failures that may pass, such as a lost connection. How often, and after which
    pause, is what `Rewind` says.
    """
