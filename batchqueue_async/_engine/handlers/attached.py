"""What a handler of the library's own tells the engine, and is told by it."""

from __future__ import annotations


class Attached:
    """A handler that is told which queues may call it: since when, and until when.

    A queue whose loop ends first doesn't tell it: what it keeps, it must let go of by
    itself when it is collected.
    """

    is_exclusive = False
    """Whether it takes one call at a time, whatever types and drain tasks there are."""

    def attach(self, queue: object) -> None:
        """Get ready: this queue may call from now on. Must not raise."""

    def detach(self, queue: object) -> None:
        """This queue calls no more."""


def is_exclusive(handler: object) -> bool:
    """Whether it says that it takes one call at a time."""
    return isinstance(handler, Attached) and handler.is_exclusive
