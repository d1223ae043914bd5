"""When one drain task takes what, and how long it may sleep in between.

There is no timer per item: at most one per sleeping drain task, and none at all when
nothing is expected.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from types import coroutine
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from batchqueue_async._loop_time import LoopTurn, Sleeper, clock_of
from batchqueue_async._policies.selectors import by_type

if TYPE_CHECKING:
    from batchqueue_async._engine.partitions.partition import Partition
    from batchqueue_async._engine.queue_parts import Parts

T = TypeVar("T")

# Partitions that a cycle takes from together. With thousands of them, what is taken
# long before its handler is called has left the processor's caches by then.
PARTITIONS_AT_ONCE = 128

# Partitions that linger, and for each of more how many seconds too early one is taken
# from at most: an eighth of its linger, and less for few.
FEW, EARLY = 64, 100e-6

# Loops wait in whole milliseconds, rounded up: that is what epoll counts in. So if
# items gathered for less than half of one, it would take more than twice as long.
TICK = 0.001


class Schedule(Generic[T]):
    """Looks at the partitions of one drain task, and decides by the clock."""

    __slots__ = (
        "_drain_task",
        "_idle",
        "_is_mixed",
        "_owned",
        "_parts",
        "_seen",
        "terms",
    )

    def __init__(self, parts: Parts, drain_task: int) -> None:
        self._parts = parts
        self.terms = parts.batch_terms
        self._drain_task = drain_task
        config = parts.config
        self._idle = config.idle
        # A handler's items may be anywhere: all must be taken before it is called.
        self._is_mixed = config.consumer is not None or config.selector is not by_type
        # Its partitions, as of a version of the ownership.
        self._owned: Sequence[Partition[T]] = ()
        self._seen = -1
        self._owned_now()

    def has_items(self) -> bool:
        """Whether anything waits in its partitions, be it held back or not."""
        return any(partition.items for partition in self._owned_now())

    def _owned_now(self) -> Sequence[Partition[T]]:
        ownership = self._parts.ownership
        if ownership.version != self._seen:
            self._seen = ownership.version
            partitions = self._parts.partitions
            owned = ownership.owned_by(self._drain_task)
            self._owned = tuple(partitions[index] for index in owned)
        return self._owned

    def due(
        self, waiting: list[Partition[T]], now: float
    ) -> Iterable[list[Partition[T]]]:
        """Return the waiting partitions that this cycle takes from, part by part."""
        due = waiting
        if self.terms.lingers:
            # Some a little early where many linger, each until a time of its own: to
            # look at all of them for each would take a processor.
            early = len(waiting) * EARLY if len(waiting) > FEW else 0.0
            due = [each for each in waiting if self._due_at(each, now, early) <= now]
            # A consumer gets one batch of all partitions: when one is due, all are.
            if due and self._parts.config.consumer is not None:
                due = waiting
        if self._is_mixed or len(due) <= PARTITIONS_AT_ONCE:
            return (due,)
        return self._in_parts(due)

    def _in_parts(self, due: list[Partition[T]]) -> Iterator[list[Partition[T]]]:
        owner_of, own = self._parts.ownership.owner_of, self._drain_task
        for start in range(0, len(due), PARTITIONS_AT_ONCE):
            # Handlers were called since the partitions were looked at.
            yield [
                partition
                for partition in due[start : start + PARTITIONS_AT_ONCE]
                if partition.items
                and partition.pausing is None
                and owner_of(partition.index) == own
            ]

    def waiting(self) -> list[Partition[T]]:
        """Return the partitions from which something might be taken."""
        is_known = self._parts.ownership.version == self._seen
        owned = self._owned if is_known else self._owned_now()  # Spares a call.
        if len(owned) == 1 and (only := owned[0]).pausing is None:
            return [only] if only.items else []  # A comprehension is a call, too.
        return [each for each in owned if each.items and each.pausing is None]

    def arrival_ends_nap(
        self, partition: Partition[T], since: float, now: float
    ) -> float:
        """Return when a nap must end for what just came; items gather since `since`."""
        if not (linger := partition.ages.linger):
            return self._gathered_at(since, now)
        # Of its partition alone: to look at all for each arrival would be quadratic.
        return self._due_at(partition, now) if partition.items else now + linger

    def arrivals_end_nap(self, since: float, now: float) -> float:
        """Return the same for what comes now to partitions that are empty."""
        gathered = now if since < 0.0 else self._gathered_at(since, now)
        if not self.terms.lingers:
            return gathered
        lingers = [each.ages.linger for each in self._owned_now()]
        return min([now + each if each else gathered for each in lingers], default=now)

    def gather_until(
        self, waiting: list[Partition[T]], started: float, now: float
    ) -> float:
        """Return when the next cycle may start after one that delivered.

        Items gather for at most the shortest nap since the last cycle's start, unless
        something is due: no item waits longer for it, as all came after that start.
        """
        if any(each.is_due() for each in waiting):
            return now
        dues = [self._due_at(each, now) for each in waiting if each.ages.linger]
        # If all linger, a cycle that finds nothing comes first: hooks are called there.
        is_all = len(dues) == len(waiting)
        return now if is_all else min([self._gathered_at(started, now), *dues])

    def _gathered_at(self, since: float, now: float) -> float:
        """Return when items have gathered for long enough: one shortest nap."""
        shortest = self._idle.shortest
        until = since + shortest
        return now if until - now < min(TICK, shortest) / 2 else until

    def nap_until(
        self, waiting: list[Partition[T]], dues: Iterable[float], now: float
    ) -> float | None:
        """Return when a nap ends by itself; None where only an arrival ends it.

        That is with partitions from which something might be taken, and with deferred
        batches and hooks that are due then.
        """
        ends = [*dues, *(self._due_at(each, now) for each in waiting)]
        return min(ends) if ends else None

    def _due_at(self, partition: Partition[T], now: float, early: float = 0.0) -> float:
        linger = partition.ages.linger
        if not linger or partition.is_due():
            return now
        return partition.oldest(now) + linger - min(early, linger / 8)


class Nap:
    """A drain task's sleep between two cycles, which an arrival may cut short."""

    __slots__ = (
        "_clock",
        "_gathering",
        "_is_called",
        "_loop",
        "_schedule",
        "_sleeper",
        "_slept_until",
        "_started",
        "_timer",
        "_turn",
        "_until",
        "has_news",
        "is_over_next_turn",
        "listens",
        "revive",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        schedule: Schedule[Any],
        gathering: Gathering,
    ) -> None:
        self._loop = loop
        self._clock = clock_of(loop)
        self._schedule = schedule
        self._gathering = gathering
        self._turn = LoopTurn.of(loop)
        self._sleeper: Sleeper | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._started = self._slept_until = 0.0
        self._until: float | None = None
        self._is_called = False
        # Whether anything came since the drain task looked, if only from a `__del__`.
        self.has_news = False
        # Whether the drain task does not nap, and looks again in the loop's next turn:
        # a hint, which may be out of date where it was cancelled, and starts again.
        self.is_over_next_turn = False
        # Whether arrivals have to call `notify`: it naps, or has to be revived.
        self.listens = False
        # Set if the drain task was cancelled: whoever needs it calls this to run it.
        self.revive: Callable[[], None] | None = None

    def notify(
        self, partition: Partition[Any], coming: int, *, may_run: bool = False
    ) -> None:
        """Note that items, or a waiting producer, are at or come to a partition.

        `coming` items are not there yet. With `may_run`, in a callback of the loop, a
        drain task that is alone on the loop runs at once: that spares a turn.
        """
        if self._sleeper is None:
            self._note_news()
            return
        # If items neither gather nor linger, the first one ends the nap.
        may_gather = self._gathering.pays or self._schedule.terms.lingers
        if may_gather and self._sleeps_on(partition, coming):
            return
        if may_run and not self._turn.is_shared:
            self._sleeper.run_now()
        else:
            self.wake()

    def _sleeps_on(self, partition: Partition[Any], coming: int) -> bool:
        """Whether it goes on though something came, or comes; then it ends in time."""
        if partition.is_due(coming):
            return False
        since, now = self._gathering_since(), self._clock()
        when = self._schedule.arrival_ends_nap(partition, since, now)
        if is_later := when > now:
            self.end_by(when)
        return is_later

    def expect(self, *, is_due: bool) -> None:
        """Items come now to some of its partitions, which were empty or are due."""
        if self._sleeper is None:
            self._note_news()
        elif is_due:
            self.wake()
        else:
            since = self._gathering_since()
            self.end_by(self._schedule.arrivals_end_nap(since, self._clock()))

    def be_revived(self, revive: Callable[[], None] | None) -> None:
        """Have `revive` called by whoever needs the drain task next; None ends that."""
        self.revive, self.is_over_next_turn = revive, False
        self.listens = revive is not None or self._sleeper is not None

    def _note_news(self) -> None:
        self.has_news = True
        if self.revive is not None:
            self.revive()

    def _gathering_since(self) -> float:
        # Where gathering makes batches, a nap lasts for its first part at least.
        return self._started if self._gathering.pays else -math.inf

    @coroutine
    def sleep(self, until: float | None) -> Generator[Any, None, float]:
        """Sleep, and return the time it is then; None ends by `wake` or `end_by` only.

        It is never before a moment slept for, although a loop's timer may fire early.
        """
        self._started = self._clock()
        if self._is_called:
            self._is_called = False
            return self._started
        self._until = None
        self._slept_until = 0.0
        sleeper = self._sleeper = Sleeper(self._loop)
        self.listens = True
        try:
            if until is not None:
                self.end_by(until)
            if self.has_news:
                self.wake()
            if not sleeper.is_woken:
                yield sleeper.fall_asleep()
        finally:
            self.listens, self._sleeper = False, None
            self._cancel_timer()
            self._turn.note_resume()
        return max(self._clock(), self._slept_until)

    def end_by(self, when: float) -> None:
        """Let the nap end at `when`, or earlier if that was agreed already."""
        if self._until is not None and self._until <= when:
            if self._until > self._clock():
                return
            when = self._until  # The timer's callback was cut short.
        if when <= self._clock():
            self.wake()
        else:
            timer = self._loop.call_at(when, self._timer_fired, when)
            self._cancel_timer()
            self._timer = timer
        # Set last: if anything above raises, the next caller sets the timer again.
        self._until = when

    def wake(self) -> None:
        """End the nap now, or else the next one before it begins."""
        if self._sleeper is None:
            self._is_called = True
        else:
            if not self._sleeper.is_woken:
                # First: the turn must have begun before the sleeper runs in it.
                self._turn.note_yield()
            self._sleeper.is_woken = False  # Its callback may have been cut short.
            self._sleeper.wake()

    def _timer_fired(self, when: float) -> None:
        self._timer = None
        self._slept_until = when
        self.wake()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


# Lone items in quick succession before a try; at most so many if tries are in vain.
_FIRST_TRY = 16
_RAREST_TRY = 4096


class Gathering:
    """Learns from what cycles delivered whether to let items gather before the next.

    Fast producers on threads would get tiny batches if each of their items were taken
    at once. But a lone item gathers in vain if its sender waits until it is handled.

    It pays after a cycle that delivered several items. After lone items it is tried
    where they follow each other more quickly than a shortest nap; each try in vain
    makes the next one rarer, so that a request and its answer are not held up.
    """

    __slots__ = (
        "_is_tried",
        "_last_started",
        "_lone",
        "_next_try",
        "_shortest",
        "pays",
    )

    def __init__(self, shortest: float) -> None:
        self._shortest = shortest
        self._last_started = 0.0
        self._lone = 0
        self._next_try = _FIRST_TRY
        self._is_tried = False
        self.pays = False

    def delivered(self, items: int, started: float) -> None:
        """Note what a cycle delivered that started at this time of the loop."""
        before, self._last_started = self._last_started, started
        if items > 1:
            self.pays = True
            self._is_tried = False
            self._lone = 0
            self._next_try = _FIRST_TRY
            return
        is_quick = started - before < self._shortest
        if self._is_tried:
            self._next_try = min(2 * self._next_try, _RAREST_TRY)
        self._lone = self._lone + 1 if is_quick else 0
        self.pays = self._is_tried = self._lone >= self._next_try
        if self.pays:
            self._lone = 0
