"""What became of an item that was offered."""

from __future__ import annotations

from enum import Enum


class Offer(Enum):
    """What `offer` returns: true where the item was accepted, else why it was not.

    A refused item is the caller's again, and counts as rejected.
    """

    ACCEPTED = "accepted"
    """It waits, and will be accounted for. The only one that is true."""

    FULL = "full"
    """There was no room without waiting: later there may be (HTTP's 429). Also in the
    middle of a change of the queue on the same thread, where a `__del__` or a signal
    handler may run."""

    CLOSED = "closed"
    """Shutdown has begun, or the loop has ended: nothing is accepted any more (503)."""

    def __bool__(self) -> bool:
        return self is Offer.ACCEPTED

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"
