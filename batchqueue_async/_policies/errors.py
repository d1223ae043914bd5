"""What goes wrong in a way that a caller can act on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from batchqueue_async._count_in_error import say_count
from batchqueue_async._wording import kind_of, reason

from .value import Value

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


class ProcessDied(BatchQueueError):
    """The process of an `in_process` handler ended in the middle of a call.

    Whether its batch was handled, in part or as a whole, is not known. The next batch
    gets a new process.
    """


class InvalidSelection(BatchQueueError, ValueError):
    """A selector returned something that is not the index of a partition."""


class ItemTooLarge(BatchQueueError):
    """An item that can never fit was produced: it is larger than `buffer_bytes`.

    It was not accepted. An item may be larger than `max_batch_bytes`: it goes alone.

    Attributes:
        size: Of the item.
        buffer_bytes: Of the queue.
    """

    def __init__(self, size: float, buffer_bytes: float) -> None:
        # Both go to `args`, so that the error survives pickling.
        super().__init__(size, buffer_bytes)
        self.size = size
        self.buffer_bytes = buffer_bytes

    def __str__(self) -> str:
        return (
            f"size_of(item) must be <= buffer_bytes, which is {self.buffer_bytes}, "
            f"got {self.size}"
        )


KEPT_FAILURES = 100
"""The number of failures kept for one flush; all are counted."""
KEPT_BYTES = 2**20
"""The memory that their items and errors may keep alive, by an estimate."""


class OmittedItem(Value):
    """Stands for a failed item that was too large to be kept for the next `flush`.

    An `on_error` gets every item, whatever its size.

    Attributes:
        type_name: The qualified name of the item's class.
    """

    type_name: str

    @classmethod
    def of(cls, item: object) -> OmittedItem:
        """Return what stands for the item."""
        return cls(type(item).__qualname__)

    def __repr__(self) -> str:
        return f"<{self.type_name}, too large to be kept>"


class Failure(Value):
    """One accepted item that did not end as handled.

    Failures wait for the next `flush` of the object that flushes, which may never come.
    So no more than about a megabyte of items and errors is kept, and of an error's
    traceback the places, without the local variables.

    Attributes:
        item: The item; None if it was an `on_flush` callback that failed, and an
            `OmittedItem` where keeping the item would have exceeded the megabyte.
        error: What was raised; None where nothing was, as for a dropped item. A
            `BatchQueueError` with its text, shortened, where it was too large itself.
        outcome: How the item ended.
    """

    item: object | None
    error: BaseException | None
    outcome: Outcome

    def __str__(self) -> str:
        item = self.item
        # Not `isinstance`: it asks an item, such as a proxy, for its `__class__`.
        told = repr(item) if type(item) is OmittedItem else kind_of(item)
        subject = "" if self.outcome == "on_flush" else f" {told}"
        cause = "" if self.error is None else f" ({reason(self.error)})"
        if self.outcome == "returned" and not cause:
            # Else it reads as if a handler had returned that.
            cause = " (left at a deadline or loop's end)"
        return f"{self.outcome}{subject}{cause}"

    def __repr__(self) -> str:
        """Return the text of `str`: an item may be large, or confidential."""
        return f"<Failure: {self}>"


class DeliveryError(BatchQueueError):
    """Items that were accepted before a `flush` ended other than handled.

    Attributes:
        queue_name: The queue that was flushed.
        count: How many items (and `on_flush` callbacks) that were.
        failures: The first 100 of them, fewer than `count` if there were more.
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
        noun = "failure" if self.count == 1 else "failures"
        first = f"; first: {self.failures[0]}" if self.failures else ""
        return f"{self.count} {noun} in queue {self.queue_name!r}{first}"


def delivery_error_of(errors: Sequence[DeliveryError]) -> DeliveryError | None:
    """Return one error that stands for several queues' errors; None for none."""
    if len(errors) <= 1:
        return errors[0] if errors else None
    failures = [failure for error in errors for failure in error.failures]
    names = ", ".join(error.queue_name for error in errors)
    count = sum(error.count for error in errors)
    return DeliveryError(names, count, tuple(failures[:KEPT_FAILURES]))


def with_accepted(error: BaseException, accepted: int) -> None:
    """Let an error that leaves a bulk verb say how many items were accepted before it.

    It stands in `error.accepted`.
    """
    say_count(error, "accepted", accepted)
