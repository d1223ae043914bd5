"""The wait-for graph of handlers, by which waits that would never end are refused.

A handler's call waits for drain tasks: that they make room, settle items, or end. A
drain task waits for the call that it runs, or at a handler's lock for the calls inside.

For instance the handler of queue A awaits `B.produce`, and B is full: the call waits
for B's drain task, and that for the call of B's handler which it runs. If this one
awaits `A.produce`, and A is full as well, it waits for A's drain task, that for the
first call, and the cycle is closed: the second `produce` raises `WouldDeadlock`. B's
handler ends with that, B's drain task takes the next batch, and A goes on.

A wait needs all of its targets, unless it `needs_one`, so a cycle would last for ever.
If a call's wait would close a cycle, it is refused at once; if another step closes it
(a drain task comes to a lock), a call that waits already is refused.

A call that is about to wait for some nodes searches whether one of them waits, perhaps
by way of others, for this very call. If A waits for B, and B is about to wait for A,
then B's search starts at A, comes from A's wait to B, and finds B's own.

Delays that time resolves are no edges: retries, naps, linger, slow handlers, and
permits, since a call that waits has lent its own.

The queues may be on the loops of several threads, and there is no lock. Each call notes
its own wait first and searches then, so of the calls that close a cycle together at
least one sees it. What other threads may change is read in one step, or copied.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from batchqueue_async._engine.handlers.handler_lock_and_call import (
    BackgroundCall,
    HandlerCall,
    HandlerLock,
)
from batchqueue_async._policies.errors import WouldDeadlock
from batchqueue_async._policies.value import Value

if TYPE_CHECKING:
    from batchqueue_async._engine.handlers.deadlock_detector import DeadlockDetector
    from batchqueue_async._engine.partitions.partition import Partition


class Node(Protocol):
    """What a call may wait for."""

    def waits(self) -> Iterable[Wait]:
        """Return the waits that have to end before it can go on."""


class DrainTaskNode(Value):
    """A drain task of a queue; None for the shutdown, which calls `on_close`."""

    detector: DeadlockDetector
    drain_task: int | None

    def waits(self) -> Iterable[Wait]:
        at_lock = self.detector.at_lock.get(self.drain_task)
        if at_lock is not None:
            return self.detector.waits_inside(*at_lock)
        return self.detector.waits_of(self._waits_for)

    def _waits_for(self, call: HandlerCall) -> bool:
        if call in call.detector.calls.left_behind:
            # It keeps its partitions, and batches of others, from being delivered.
            return True
        return call.drain_task == self.drain_task and not isinstance(
            call, BackgroundCall
        )


class OnFlushNode(Value):
    """A call of `on_flush`, from its place in the handler's line to its end."""

    detector: DeadlockDetector
    lock: HandlerLock
    answer: asyncio.Future[None]
    task: asyncio.Task[Any]

    def waits(self) -> Iterable[Wait]:
        if self.task.done():
            return ()
        return self.detector.waits_inside(self.lock, self.answer)


class OnFlushesNode(Value):
    """All calls of `on_flush` of a queue, for which its end waits."""

    detector: DeadlockDetector

    def waits(self) -> Iterable[Wait]:
        return self.detector.waits_of(lambda call: isinstance(call, BackgroundCall))


class Wait(ABC):
    """One wait of a handler's call, from `begin` to `end`.

    Meanwhile the call's drain task lends its permit, if it needs one for its cycles.
    Used as `async with wait`, it is over afterwards; a call that is cancelled goes on
    at once, and its drain task gets the permit back later.
    """

    __slots__ = ("_loop", "call", "refusal")

    needs_one = False
    """Whether one of its targets is enough to serve it."""
    is_refusable = True
    """Whether it can end with `WouldDeadlock`; else another wait of its cycle does."""

    def __init__(self, call: HandlerCall) -> None:
        self.call = call
        # Set while it waits, if a step of another task has closed a cycle.
        self.refusal: WouldDeadlock | None = None
        # None where a thread waits that has no loop.
        self._loop = asyncio._get_running_loop()  # noqa: SLF001

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()
        if error is None or isinstance(error, WouldDeadlock):
            await self.over()

    @abstractmethod
    def targets(self) -> Collection[Node]:
        """Return what it waits for now: nothing once it is served, or refused."""

    def needs(self, partition: Partition[Any]) -> bool:
        """Whether it waits until some drain task takes from this partition."""
        return False

    @abstractmethod
    def _describe(self) -> str: ...

    @abstractmethod
    def _wake(self) -> None: ...

    def begin(self) -> None:
        """Wait from now on, for what `targets` says, which may be more than before."""
        self.note()
        if self._closes_cycle():
            raise self._error()
        if (permit := self.call.permit) is not None:
            permit.look(self.call)

    def note(self) -> None:
        """Let others see that the call is about to wait."""
        self.call.detector.waits[self] = None

    def end(self) -> None:
        """Wait no longer; the permit is asked for if the call waits for nothing else.

        Harmless where it has not begun, or has ended.
        """
        if self.call.detector.waits.pop(self, self) is None and (
            (permit := self.call.permit) is not None
        ):
            permit.look(self.call)

    async def over(self) -> None:
        """End it, and have the permit back before the call goes on."""
        loop = asyncio.get_running_loop()
        is_back = loop.create_future()

        def tell() -> None:
            if not is_back.done():
                is_back.set_result(None)

        self.when_over(partial(on, loop, tell))
        await is_back

    def when_over(self, tell: Callable[[], object]) -> None:
        """End it, and call `tell` on some thread when the call may go on."""
        self.end()
        permit = self.call.permit
        if permit is None:
            tell()
        else:
            permit.when_back(self.call, tell)

    def check(self) -> None:
        if self.refusal is not None:
            raise self.refusal

    def refuse(self) -> None:
        """Let it end with `WouldDeadlock`, from any thread."""
        self.refusal = self._error()
        on(self._loop, self._wake)

    def _closes_cycle(self) -> bool:
        return find(self.targets(), lambda each: each.call is self.call) is not None

    def _error(self) -> WouldDeadlock:
        name = self.call.detector.name
        return WouldDeadlock(
            f"a handler of {name!r} would wait for itself: {self._describe()} before "
            "it returns"
        )


def end_of(detector: DeadlockDetector) -> Collection[Node]:
    """Return what the end of a queue waits for."""
    drain_tasks = (*range(detector.ownership.drain_tasks), None)
    return [
        *(DrainTaskNode(detector, each) for each in drain_tasks),
        OnFlushesNode(detector),
    ]


def on(
    loop: asyncio.AbstractEventLoop | None,
    call: Callable[..., None],
    *arguments: object,
) -> bool:
    """Call it on this loop: at once if this loop runs here; False if it is closed."""
    if loop is None or asyncio._get_running_loop() is loop:  # noqa: SLF001
        call(*arguments)
        return True
    try:
        loop.call_soon_threadsafe(call, *arguments)
    except RuntimeError:
        # The loop is closed: nobody waits there any more.
        return False
    return True


def find(
    start: Iterable[Node],
    matches: Callable[[Wait], bool],
    held_up: Collection[Node] = (),
) -> Wait | None:
    """Return a matching wait of one of these nodes, perhaps by way of others.

    A wait that `needs_one` of several nodes is not followed to them. It is returned if
    all of these nodes wait for each other, or for nodes that are held up.
    """
    seen: set[Node] = set()
    choices: list[Wait] = []
    ahead = list(start)
    while ahead:
        node = ahead.pop()
        if node in seen:
            continue
        seen.add(node)
        for wait in node.waits():
            if wait.needs_one:
                choices.append(wait)
                continue
            if matches(wait):
                return wait
            ahead.extend(wait.targets())
    return next((each for each in choices if is_stuck(each, held_up)), None)


def is_stuck(wait: Wait, held_up: Collection[Node] = ()) -> bool:
    """Whether no node that it waits for can go on before it does.

    All nodes within its reach count as stuck until they are found to go on: a node goes
    on if it waits for none, or only for nodes that go on. A wait that needs one of
    several nodes goes on with the first of them. The nodes that are left wait for each
    other, or for nodes that are `held_up`, for reasons that are not known here.
    """
    return bool(_stuck_together(wait, held_up))


def _stuck_together(wait: Wait, held_up: Collection[Node] = ()) -> list[Wait]:
    """Return a wait that is stuck, and those that it is stuck with; else nothing."""
    waits = _within_reach(wait)
    stuck = set(waits)
    targets = {each: each.targets() for known in waits.values() for each in known}
    targets[wait] = wait.targets()

    def goes_on(each: Wait) -> bool:
        goals = targets[each]
        count = len(stuck.intersection(goals))
        return not count or (each.needs_one and count < len(goals))

    ahead = stuck.difference(held_up)
    while free := [node for node in ahead if all(map(goes_on, waits[node]))]:
        stuck.difference_update(free)
        ahead.difference_update(free)
    if goes_on(wait):
        return []
    held = (each for node in waits if node in stuck for each in waits[node])
    return [wait, *(each for each in held if not goes_on(each))]


def _within_reach(wait: Wait) -> dict[Node, list[Wait]]:
    """Return the nodes that a wait needs, also by way of others, with their waits."""
    waits: dict[Node, list[Wait]] = {}
    ahead = list(wait.targets())
    while ahead:
        node = ahead.pop()
        if node not in waits:
            waits[node] = list(node.waits())
            for each in waits[node]:
                ahead.extend(each.targets())
    return waits


def refuse_cycles(node: Node) -> None:
    """Refuse waits for this node for which the node, as of now, waits itself."""
    while (wait := find((node,), lambda each: node in each.targets())) is not None:
        together = _stuck_together(wait) if wait.needs_one else (wait,)
        refused = next((each for each in together if each.is_refusable), None)
        if refused is None:
            return
        refused.refuse()
