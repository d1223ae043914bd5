"""Choices that have a name: what a full partition means, what became of an offer."""

from __future__ import annotations

from enum import Enum
from typing import Final, Literal, TypeAlias


class WhenFull(Enum):
    """What happens to an item whose partition is full."""

    WAIT = "wait"
    """`produce` waits for room, in order of arrival: nothing is lost, and a slow
    handler slows its producers. `produce_nowait` returns False."""

    DROP_NEWEST = "drop newest"
    """The new item is refused: `produce` returns False at once, and the item counts
    as rejected. What waits already is kept."""

    DROP_OLDEST = "drop oldest"
    """The new item is accepted and the longest-waiting one gives way: it was accepted
    before, is lost now, and counts as dropped. Its producer isn't told."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


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


class Declared(Enum):
    """A value of its own for "as declared", because None means no limit."""

    SHUTDOWN_TIMEOUT = "shutdown_timeout"

    def __repr__(self) -> str:
        return self.value


SHUTDOWN_TIMEOUT: Final = Declared.SHUTDOWN_TIMEOUT
"""Stands for the `shutdown_timeout` that was declared."""

Timeout: TypeAlias = float | Literal[Declared.SHUTDOWN_TIMEOUT] | None
"""Seconds, None for no limit, or `SHUTDOWN_TIMEOUT` for what was declared."""
