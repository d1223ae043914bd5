"""What goes wrong in a way that a caller can act on."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from typing import Literal, TypeAlias

Outcome: TypeAlias = Literal["failed", "dropped", "unhandled", "returned", "on_flush"]


class BatchQueueError(Exception):
    """A queue was used in a way that cannot work; base of the others."""


class WouldDeadlock(BatchQueueError):
    """A handler would wait for itself, directly or by way of others that wait for it.

    Raised at once, where waiting would never end; if somebody else closes the circle
    later, one that waits in it already gets it. Produce into another queue, make the
    buffer larger, or use `produce_nowait` and accept a refusal.
    """


class DuplicateQueue(BatchQueueError):
    """The manager already has a queue of this name; nothing was started."""


class ConfigConflict(BatchQueueError):
    """The queue of this name exists and dispatches in another way."""


class InvalidSelection(BatchQueueError, ValueError):
    """A selector returned something that is not the index of a partition."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One accepted item that did not end as handled.

    Attributes:
        item: The item; None if it was an `on_flush` callback that failed.
        error: What was raised; None where nothing was, as for a dropped item.
        outcome: How the item ended.
    """

    item: object | None
    error: BaseException | None
    outcome: Outcome

    def __str__(self) -> str:
        """Return the outcome, the item and the error, shortened."""
        subject = "" if self.outcome == "on_flush" else f" {_short(self.item)}"
        cause = "" if self.error is None else f" ({_short(self.error)})"
        return f"{self.outcome}{subject}{cause}"


class DeliveryError(BatchQueueError):
    """Items that were accepted before a `flush` ended other than handled.

    Attributes:
        queue_name: The queue that was flushed.
        count: How many items (and `on_flush` callbacks) that were.
        failures: The first of them, fewer than `count` if there were many.
    """

    def __init__(
        self, queue_name: str, count: int, failures: tuple[Failure, ...]
    ) -> None:
        # All three go to `args`, so that the error survives pickling.
        super().__init__(queue_name, count, failures)
        self.queue_name = queue_name
        self.count = count
        self.failures = failures

    def __str__(self) -> str:
        """Return the count, the queue and the first failure."""
        noun = "failure" if self.count == 1 else "failures"
        first = f"; first: {self.failures[0]}" if self.failures else ""
        return f"{self.count} {noun} in queue {self.queue_name!r}{first}"


def _short(value: object) -> str:
    """Return the repr of anything: bounded in length, and never raising."""
    try:
        return _SHORTENER.repr(value)
    except Exception:  # noqa: BLE001 - a user's class may do anything
        return f"<{type(value).__name__} without a repr>"


_SHORTENER = reprlib.Repr()
_SHORTENER.maxstring = _SHORTENER.maxother = 200
