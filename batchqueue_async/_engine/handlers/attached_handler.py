"""What a handler of the library's own tells the engine, and is told by it."""

from __future__ import annotations

from batchqueue_async._engine.handlers.handler_lock_and_call import HandlerLock


class Attached:
    """A handler that is told which queues may call it: since when, and until when.

    A queue whose loop ends first doesn't tell it: what it keeps, it must let go of by
    itself when it is collected.
    """

    concurrency = 1
    """How many of its calls may run at once, in all queues together."""

    is_exclusive = False
    """Whether it takes one call at a time, whatever types and drain tasks there are."""

    def attach(self, queue: object) -> None:
        """Get ready: this queue may call from now on. Must not raise."""

    def detach(self, queue: object) -> None:
        """This queue calls no more."""

    def new_lock(self) -> HandlerLock:
        """Return what a queue's calls of it enter by."""
        return HandlerLock()


def attached(handler: object) -> Attached | None:
    """Return the handler of the library's own that this is, or stands in for.

    What stands in for one says so as `functools.wraps` does.
    """
    seen = 0
    while not isinstance(handler, Attached):
        handler = getattr(handler, "__wrapped__", None)
        seen += 1
        if handler is None or seen > _MOST_WRAPPERS:
            return None
    return handler


def concurrency_of(handler: object) -> tuple[str, int]:
    """Return its name, and how many of its calls may run at once; 1 if nobody says."""
    known = attached(handler) or handler
    name = getattr(known, "__qualname__", type(known).__qualname__)
    return name, known.concurrency if isinstance(known, Attached) else 1


# Of an object that has any attribute there is no end.
_MOST_WRAPPERS = 16
