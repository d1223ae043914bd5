"""Drain capacity: how many cycles may run at once, for queues that share it.

A queue holds one permit for one cycle, and permits go round in order of asking: a busy
queue is behind all others again after each of its cycles.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from functools import partial

from batchqueue_async._engine.log import logger
from batchqueue_async._engine.reentrancy import Inside
from batchqueue_async._policies.drain_tasks import DrainTaskPolicy, SharedDrainTasks
from batchqueue_async._policies.errors import WouldDeadlock
from batchqueue_async._wording import shown


class Capacity:
    """Permits of one `SharedDrainTasks`, counted for the queues that use them."""

    def __init__(self, permits: int, on_unused: Callable[[], None]) -> None:
        self.permits = permits
        self._semaphore = asyncio.Semaphore(permits)
        self._on_unused = on_unused
        self._users = 0
        self._waits: dict[object, tuple[Inside, Callable[[], bool]]] = {}

    def join(self) -> None:
        """One more queue uses it."""
        self._users += 1

    def leave(self) -> None:
        """A queue has ended; with the last one the capacity ends, too."""
        self._users -= 1
        if not self._users:
            self._on_unused()

    async def __aenter__(self) -> None:
        await self._semaphore.acquire()

    async def __aexit__(self, *exception: object) -> None:
        self._semaphore.release()

    @contextlib.contextmanager
    def waited_for_by(
        self, call: Inside, is_blocked: Callable[[], bool]
    ) -> Iterator[None]:
        """A handler that holds a permit waits for a queue that needs one.

        Args:
            call: The handler's.
            is_blocked: Whether it has still not got what it waits for.

        Raises:
            WouldDeadlock: All permits are held by handlers that wait so.
        """
        wait = object()
        self._waits[wait] = call, is_blocked
        try:
            if len(self._blocked()) >= self.permits:
                msg = (
                    f"all {self.permits} shared drain tasks are held by handlers that "
                    "wait for a queue which needs one of them"
                )
                raise WouldDeadlock(msg)
            yield
        finally:
            del self._waits[wait]

    def _blocked(self) -> set[Inside]:
        """Return the calls that hold a permit until another one is given back."""
        # Of a copy: handlers may wait on threads, too. And not those that got what
        # they wait for and have only not run since: a chain of queues goes on then.
        return {
            call
            for call, is_blocked in list(self._waits.values())
            if not call.is_over and is_blocked()
        }


class Capacities:
    """The shared capacities of one manager, by name."""

    def __init__(self) -> None:
        self._shared: dict[str, tuple[DrainTaskPolicy, Capacity]] = {}
        self._warned: set[str] = set()

    def of(self, shared: SharedDrainTasks) -> Capacity:
        """Return the capacity of this name; the first policy holds."""
        name = shared.name
        if name not in self._shared:
            self._warned.discard(name)
            capacity = Capacity(shared.policy.resolve(), partial(self._forget, name))
            self._shared[name] = (shared.policy, capacity)
        policy, capacity = self._shared[name]
        if policy != shared.policy and name not in self._warned:
            self._warned.add(name)
            logger.warning(
                "shared drain tasks %r exist with %s, which stays (not %s)",
                name,
                shown(policy),
                shown(shared.policy),
            )
        return capacity

    def _forget(self, name: str) -> None:
        self._shared.pop(name, None)
