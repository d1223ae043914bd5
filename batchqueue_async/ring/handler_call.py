"""The calls of handlers, and which of their waits would never end.

A claim waits until every gating sequence has passed the event in its slot. So far have
all consumers to come that are before it in the graph, however far they can go now. A
consumer's sequence moves when its handler has returned. If that handler waits for room
too, in this ring or another one, it depends on the consumers of that ring. When this
chain leads back to the call that is about to wait, none of them could ever go on.

Waits that end with time are not searched: those of threads with a timeout, for slow
handlers, and for producers that have claimed and not published yet.
"""

from __future__ import annotations

from collections import defaultdict
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeAlias

from .errors import RingError
from .sequence import Sequence

if TYPE_CHECKING:
    from .claim_queue import WaitingClaim
    from .sequence_barrier import SequenceBarrier
    from .sequencer import MultiProducerSequencer


Need: TypeAlias = tuple[Sequence, int]
"""A sequence that is behind, and how far it has to come."""


class ConsumerSequence(Sequence):
    """A consumer's sequence; the consumer waits at `barrier`, or is inside `call`."""

    __slots__ = ("barrier", "call")

    def __init__(self, barrier: SequenceBarrier) -> None:
        super().__init__()
        self.barrier: SequenceBarrier = barrier
        self.call: HandlerCall | None = None

    def needs(self, aim: int) -> list[Need]:
        """Return what has to come how far before this one can reach `aim`."""
        before = [(each, aim) for each in self.barrier.before(aim)]
        return before if self.call is None else [*before, *self.call.needs()]


class HandlerCall:
    """One batch that is with a handler, or one call of a hook.

    Tasks and `asyncio.to_thread` threads that the handler starts inherit the call: so a
    wait that only the end of the call could end is found in them, too.

    Attributes:
        is_over: Whether the handler has returned; tasks it has started may wait then.
    """

    __slots__ = ("_waits", "is_over", "sequence")

    def __init__(self, sequence: ConsumerSequence) -> None:
        self.sequence: ConsumerSequence = sequence
        self.is_over: bool = False
        # Waiting claims of its tasks and threads, with the sequencer of each.
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
        """Let other calls see, until `end_wait`, that a claim of this one waits.

        Raises:
            RingError: The wait would never end.
        """
        # Before the search, so that of calls that close a circle together one sees it.
        self._waits[claim] = sequencer
        try:
            self._refuse_circle(sequencer.behind({claim}))
        except BaseException:
            self.end_wait(claim)
            raise

    def end_wait(self, claim: WaitingClaim) -> None:
        """The claim waits no longer."""
        self._waits.pop(claim, None)

    def needs(self) -> list[Need]:
        """Return what has to come how far before all its claims are granted."""
        lines: defaultdict[MultiProducerSequencer, set[WaitingClaim]] = defaultdict(set)
        # A copy: threads add and remove their claims at any time.
        for claim, sequencer in list(self._waits.items()):
            lines[sequencer].add(claim)
        return [each for line, claims in lines.items() for each in line.behind(claims)]

    def _refuse_circle(self, needed: list[Need]) -> None:
        """Search the wait-for graph, in which a call needs all that it waits for."""
        ahead, seen = needed, dict[Sequence, int]()
        if any(sequence is self.sequence for sequence, _ in needed):
            msg = (
                "a handler waits for room in its own ring, which there is only after "
                "it returns: use try_publish_event, or another ring"
            )
            raise RingError(msg)
        while ahead:
            sequence, aim = ahead.pop()
            if sequence is self.sequence:
                msg = (
                    "a handler waits for room in a ring whose handlers wait until it "
                    "returns: use try_publish_event in one of them"
                )
                raise RingError(msg)
            known = seen.get(sequence)
            if isinstance(sequence, ConsumerSequence) and (
                known is None or known < aim
            ):
                seen[sequence] = aim
                ahead += sequence.needs(aim)


_handler_call: ContextVar[HandlerCall | None] = ContextVar(
    "batchqueue_async.ring", default=None
)


def running_call() -> HandlerCall | None:
    """Return the call that this task or thread belongs to, if it is not over."""
    call = _handler_call.get()
    return None if call is None or call.is_over else call
