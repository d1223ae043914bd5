"""The calls of handlers, and which of their waits would never end.

A claim waits until every gating sequence has passed what is in its slot. A consumer's
sequence moves when its handler has returned; if that waits for room as well, in this
ring or another one, it is what that ring's consumers do that counts. Where this leads
back to the call that is about to wait, nobody would ever go on.

What time resolves is no part of it: a thread's timeouts, slow handlers, producers that
have claimed and not published yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import TYPE_CHECKING

from .errors import RingError

if TYPE_CHECKING:
    from .sequence import Sequence

Awaited = Callable[[], Iterable["Sequence"]]
"""Returns the sequences that a wait needs, as far as they are behind."""


class HandlerCall:
    """One batch that is with a handler, or one call of a hook.

    Tasks that it starts inherit it, and threads of `asyncio.to_thread`: so a wait that
    only the end of that call could end is found out wherever it begins.

    Attributes:
        sequence: The consumer's own: it grows when the handler has returned.
        is_over: Whether it has; what was started meanwhile may wait now.
        waits: What its tasks and threads wait for now.
    """

    __slots__ = ("is_over", "sequence", "waits")

    def __init__(self, sequence: Sequence) -> None:
        self.sequence: Sequence = sequence
        self.is_over: bool = False
        self.waits: dict[object, Awaited] = {}
        sequence.call = self
        _handler_call.set(self)

    def end(self) -> None:
        """The handler has returned."""
        self.is_over = True
        self.sequence.call = None

    def begin_wait(self, key: object, awaited: Awaited) -> None:
        """Wait from now on for what `awaited` returns, until `end_wait` of that key.

        Raises:
            RingError: It would be for ever; and it does not begin.
        """
        # Before it looks: so of those that close a circle together one sees it.
        self.waits[key] = awaited
        try:
            self._refuse_circle(awaited())
        except RingError:
            self.end_wait(key)
            raise

    def end_wait(self, key: object) -> None:
        """Wait no longer; harmless if it does not."""
        self.waits.pop(key, None)

    def _refuse_circle(self, awaited: Iterable[Sequence]) -> None:
        """Search the wait-for graph, where everybody needs all that he waits for."""
        ahead = list(awaited)
        if self.sequence in ahead:
            msg = (
                "a handler waits for room in its own ring, which there is only after "
                "it returns: use try_publish_event, or another ring"
            )
            raise RingError(msg)
        seen = set[int]()
        while ahead:
            sequence = ahead.pop()
            if sequence is self.sequence:
                msg = (
                    "a handler waits for room in a ring whose handlers wait until it "
                    "returns: use try_publish_event in one of them"
                )
                raise RingError(msg)
            if id(sequence) not in seen:
                seen.add(id(sequence))
                ahead += _needed_by(sequence)


_handler_call: ContextVar[HandlerCall | None] = ContextVar(
    "batchqueue_async.ring", default=None
)


def running_call() -> HandlerCall | None:
    """Return the call that this task or thread belongs to, if it is not over."""
    call = _handler_call.get()
    return None if call is None or call.is_over else call


def _needed_by(sequence: Sequence) -> Iterable[Sequence]:
    """Return what has to move before `sequence` can."""
    running = sequence.call
    if running is not None:
        # Threads add and remove theirs at any time.
        return [each for awaited in list(running.waits.values()) for each in awaited()]
    if sequence.barrier is None:
        return ()
    return sequence.barrier.before(sequence.value + 1)
