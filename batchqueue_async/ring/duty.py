"""Which call of a handler something was started by.

Tasks inherit it, and threads of `asyncio.to_thread`: so a wait that only the end of
that call could end is found out wherever it begins.
"""

from __future__ import annotations

from contextvars import ContextVar

from .sequence import Sequence


class Duty:
    """One batch that is with a handler, or one call of a hook.

    Attributes:
        of: The sequencer of the ring.
        sequence: The consumer's own: it grows when the handler has returned.
        is_over: Whether it has; who was started meanwhile may wait now.
    """

    __slots__ = ("is_over", "of", "sequence")

    def __init__(self, of: object, sequence: Sequence) -> None:
        self.of = of
        self.sequence = sequence
        self.is_over = False
        _current.set(self)


_current: ContextVar[Duty | None] = ContextVar("batchqueue_async.ring", default=None)


def current_duty() -> Duty | None:
    """Return what the running code was started by; it may be over."""
    return _current.get()
