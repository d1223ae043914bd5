"""Permits: how many cycles may run at once, for queues that share drain tasks.

A queue holds one permit for one cycle, and permits go round in order of asking: a busy
queue is behind all others again after each of its cycles. A handler that waits for a
queue lends its permit, and asks for it again before it goes on.

Invariant: a permit is free, or held by one who knows it, or will be told by whoever
asks next. A signal handler may raise after any call, so there is none where it changes
hands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from batchqueue_async._engine.handlers.wait_for_graph import on
from batchqueue_async._engine.runtime.loop_end import is_cancelled_for_good, uncancel
from batchqueue_async._log import logger
from batchqueue_async._policies.drain_tasks import count_of
from batchqueue_async._wording import shown

if TYPE_CHECKING:
    from batchqueue_async._engine.handlers.handler_lock_and_call import HandlerCall
    from batchqueue_async._policies.drain_tasks import DrainTaskPolicy, SharedDrainTasks


class PermitPool:
    """Permits of one `SharedDrainTasks`, counted for the queues that use them."""

    def __init__(self, permits: int, on_unused: Callable[[PermitPool], None]) -> None:
        # The loop of its drain tasks. Permits of a loop that has ended never come back.
        self.loop = asyncio.get_running_loop()
        self._free = permits
        # In order of asking.
        self.line: dict[Permit, None] = {}
        # Those that have got one, and were not told of it so far.
        self._untold: dict[Permit, None] = {}
        self._on_unused = on_unused
        self._users = 0

    def join(self) -> None:
        self._users += 1

    def leave(self) -> None:
        """A queue has ended; with the last one the pool ends, too."""
        self._users -= 1
        if not self._users:
            self._on_unused(self)

    def ask(self, permit: Permit) -> None:
        """Grant it, now or in its turn."""
        self.tell()
        if self._free and not self.line:
            self._free -= 1
            # No call in between.
            permit.is_held = True
        else:
            self.line[permit] = None

    def take_back(self, permit: Permit) -> None:
        """Hand a permit on to the first in line, if there is one."""
        first = next(iter(self.line), None)
        # No call in between.
        permit.is_held = False
        if first is None:
            self._free += 1
            return
        del self.line[first]
        first.is_held = True
        self._untold[first] = None
        self.tell()

    def tell(self) -> None:
        """Tell those that have got a permit; a signal may have cut that short."""
        while self._untold:
            first = next(iter(self._untold))
            first.tell()
            # No call in between.
            self._untold.pop(first, None)


class Permit:
    """A drain task's permit: held during a cycle, and lent while its handler waits.

    A handler that waits for another queue may wait for a drain task that is in line for
    a permit, so keeping its own could make both wait for ever.
    """

    def __init__(self, pool: PermitPool) -> None:
        self.pool = pool
        self.is_held = False
        self._loop = asyncio.get_running_loop()
        # Called when it is granted, or no longer asked for.
        self._listeners: list[Callable[[], object]] = []

    async def acquire(self) -> None:
        """Wait for it, in order of asking; cancelled, it is not asked for any more."""
        try:
            await self._acquire()
        except BaseException:
            self.lend()
            raise

    def lend(self) -> None:
        """Give it back, or take the request for it back."""
        if self.is_held:
            self.pool.take_back(self)
        elif self._is_asked:
            self.pool.line.pop(self, None)
            self.tell()

    def leave(self) -> None:
        """Its queue has ended: nobody needs it any more."""
        self.lend()
        self.pool.leave()

    async def regain(self, *, or_tell: bool = False) -> None:
        """Get it back for the drain task itself, before it calls anything else.

        With `or_tell` it returns without it where the task is to end, since at a
        deadline nobody may give one back: what failed is told, and the cancellation
        comes with the next wait.
        """
        while not self.is_held:
            try:
                await self._acquire()
            except asyncio.CancelledError:
                if not is_cancelled_for_good():
                    uncancel()
                    continue
                task = asyncio.current_task()
                if not or_tell or task is None:
                    raise
                self.lend()
                task.cancel()
                return

    def look(self, call: HandlerCall) -> None:
        """A wait of the call has begun or ended: lend it, or ask for it, if need be.

        Several tasks of a handler may wait at once, and it is lent until none does. May
        be called on any loop and thread.
        """
        on(self._loop, self._look, call)

    def when_back(self, call: HandlerCall, tell: Callable[[], object]) -> None:
        """Call `tell` once the call has the permit, or may go on without it.

        It goes on without it while other tasks of the call wait. May be called on any
        loop and thread; `tell` is called on the permit's loop.
        """
        if not on(self._loop, self._when_back, call, tell):
            # The loop is closed, and its drain tasks are no more.
            tell()

    @property
    def _is_asked(self) -> bool:
        return self in self.pool.line

    def tell(self) -> None:
        """Tell who waits that it is granted, or no longer asked for."""
        while self._listeners:
            tell = self._listeners[0]
            tell()
            # Last: if this is cut short, it is called again.
            if tell in self._listeners:
                self._listeners.remove(tell)

    def _look(self, call: HandlerCall) -> None:
        # After the call the drain task gets its permit back by itself.
        if call.is_over:
            return
        if call.is_waiting:
            self.lend()
        else:
            self._ask()

    def _when_back(self, call: HandlerCall, tell: Callable[[], object]) -> None:
        if call.is_over or not self._is_asked:
            tell()
        else:
            self._listeners.append(tell)

    def _ask(self) -> None:
        if not self.is_held and not self._is_asked:
            self.pool.ask(self)

    async def _acquire(self) -> None:
        self._ask()
        while self._is_asked:
            answer = self._loop.create_future()
            self._listeners.append(partial(_answer, answer))
            await answer


def _answer(answer: asyncio.Future[None]) -> None:
    # When a closed loop is collected, its drain tasks give their permits back.
    if not (answer.done() or answer.get_loop().is_closed()):
        answer.set_result(None)


class SharedPermits:
    """The pools of one manager, by name."""

    def __init__(self) -> None:
        self._shared: dict[str, tuple[DrainTaskPolicy, PermitPool]] = {}
        self._warned: set[str] = set()

    def permit_of(self, shared: SharedDrainTasks) -> Permit:
        """Return the permit of one queue more."""
        pool = self._pool_of(shared)
        permit = Permit(pool)
        pool.join()
        return permit

    def _pool_of(self, shared: SharedDrainTasks) -> PermitPool:
        """Return the pool of this name; the first policy holds."""
        name = shared.name
        policy, pool = self._shared.get(name) or (shared.policy, None)
        if pool is None or pool.loop is not asyncio.get_running_loop():
            self._warned.discard(name)
            policy, pool = (
                shared.policy,
                PermitPool(count_of(shared.policy), partial(self._forget, name)),
            )
            self._shared[name] = policy, pool
        if policy != shared.policy and name not in self._warned:
            self._warned.add(name)
            logger.warning(
                "shared drain tasks %r exist with %s, which stays (not %s)",
                name,
                shown(policy),
                shown(shared.policy),
                shared_drain_tasks=name,
            )
        return pool

    def _forget(self, name: str, unused: PermitPool) -> None:
        # A pool of another loop may have the same name by now.
        if name in self._shared and self._shared[name][1] is unused:
            del self._shared[name]
