"""The calls of handlers, and which of their waits would never end.

A claim waits until every gating sequence has passed what is in its slot. A consumer's
sequence moves when its handler has returned; if that waits for room as well, in this
ring or another one, it is what that ring's consumers do that counts. Where this leads
back to the call that is about to wait, nobody would ever go on.

What time resolves is no part of it: a thread's timeouts, slow handlers, producers that
have claimed and not published yet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from contextvars import ContextVar
from typing import TYPE_CHECKING

from .errors import RingError
from .sequence import Sequence

if TYPE_CHECKING:
    from .claim_queue import WaitingClaim
    from .sequence_barrier import SequenceBarrier
    from .sequencer import MultiProducerSequencer


class ConsumerSequence(Sequence):
    """One that a consumer moves; it waits at `barrier`, or is inside of `call`."""

    __slots__ = ("barrier", "call")

    def __init__(self, barrier: SequenceBarrier) -> None:
        super().__init__()
        self.barrier: SequenceBarrier = barrier
        self.call: HandlerCall | None = None

    def needs(self) -> Iterable[Sequence]:
        """Return what has to move before it can."""
        if self.call is None:
            return self.barrier.before(self.value + 1)
        return self.call.needs()


class HandlerCall:
    """One batch that is with a handler, or one call of a hook.

    Tasks that it starts inherit it, and threads of `asyncio.to_thread`: so a wait that
    only the end of that call could end is found out wherever it begins.

    Attributes:
        is_over: Whether it has returned; what was started meanwhile may wait now.
    """

    __slots__ = ("_waits", "is_over", "sequence")

    def __init__(self, sequence: ConsumerSequence) -> None:
        self.sequence: ConsumerSequence = sequence
        self.is_over: bool = False
        # Claims of its tasks and threads, and where they are in line.
        self._waits: dict[WaitingClaim, MultiProducerSequencer] = {}
        sequence.call = self
        _handler_call.set(self)

    def end(self) -> None:
        """The handler has returned."""
        self.is_over = True
        self.sequence.call = None

    def begin_wait(
        self, claim: WaitingClaim, sequencer: MultiProducerSequencer
    ) -> None:
        """Let others see, until `end_wait`, that a claim of its is in line.

        Raises:
            RingError: It would be for ever.
        """
        # Before it looks: so of those that close a circle together one sees it.
        self._waits[claim] = sequencer
        try:
            self._refuse_circle(sequencer.behind({claim}))
        except BaseException:
            self.end_wait(claim)
            raise

    def end_wait(self, claim: WaitingClaim) -> None:
        """It waits no longer."""
        self._waits.pop(claim, None)

    def needs(self) -> Iterable[Sequence]:
        """Return what has to move before all that it waits for is granted."""
        lines: defaultdict[MultiProducerSequencer, set[WaitingClaim]] = defaultdict(set)
        # Threads add and remove theirs at any time.
        for claim, sequencer in list(self._waits.items()):
            lines[sequencer].add(claim)
        return [each for line, claims in lines.items() for each in line.behind(claims)]

    def _refuse_circle(self, needed: Iterable[Sequence]) -> None:
        """Search the wait-for graph, where everybody needs all that he waits for."""
        ahead, seen = list(needed), set[Sequence]()
        if self.sequence in ahead:
            msg = (
                "a handler waits for room in its own ring, which there is only after "
                "it returns: use try_publish_event, or another ring"
            )
            raise RingError(msg)
        while ahead:
            sequence = ahead.pop()
            if sequence is self.sequence:
                msg = (
                    "a handler waits for room in a ring whose handlers wait until it "
                    "returns: use try_publish_event in one of them"
                )
                raise RingError(msg)
            if isinstance(sequence, ConsumerSequence) and sequence not in seen:
                seen.add(sequence)
                ahead += sequence.needs()


_handler_call: ContextVar[HandlerCall | None] = ContextVar(
    "batchqueue_async.ring", default=None
)


def running_call() -> HandlerCall | None:
    """Return the call that this task or thread belongs to, if it is not over."""
    call = _handler_call.get()
    return None if call is None or call.is_over else call
