"""What a handler may wait for: room in a partition, a flush, the end of queues."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from batchqueue_async._engine.partition import Partition
from batchqueue_async._engine.reentrancy import Inside
from batchqueue_async._engine.wait_for_graph import (
    DrainTaskNode,
    Node,
    OnFlushNode,
    Wait,
    end_of,
)

if TYPE_CHECKING:
    from batchqueue_async._engine.own_work import OwnWork


class RoomWait(Wait):
    """A producer in a handler waits for room in a partition."""

    __slots__ = ("_partition", "_waiter", "_work")

    def __init__(
        self, call: Inside, work: OwnWork, partition: Partition[Any], waiter: Producer
    ) -> None:
        super().__init__(call)
        self._work = work
        self._partition = partition
        self._waiter = waiter

    def targets(self) -> Collection[Node]:
        if not self.needs(self._partition):
            return ()
        return (DrainTaskNode(self._work, self._owner),)

    def needs(self, partition: Partition[Any]) -> bool:
        # One that has been served and has only not run since blocks nobody: a chain of
        # queues goes on then.
        return (
            partition is self._partition
            and self._waiter.wants > self._waiter.granted
            and not partition.is_closed
            and self.refusal is None
        )

    def end(self) -> None:
        key = self.call, self._partition
        if self.call.work.rooms.get(key) is self:
            self.call.work.rooms.pop(key, None)
        super().end()

    def _closes_cycle(self) -> bool:
        if self.call.work is self._work and self.call.drain_task == self._owner:
            # `on_flush`, too: the owner will stand at its gate with the next batch.
            return bool(self.targets())
        key = self.call, self._partition
        known = self.call.work.rooms.get(key)
        # Having looked once is enough: whatever closes a cycle later looks by itself.
        if known is not None and known.needs(self._partition):
            # Of thousands of tasks of one handler that wait here only one has to look.
            return False
        self.call.work.rooms[key] = self
        return super()._closes_cycle()

    @property
    def _owner(self) -> int:
        return self._work.ownership.last_owner(self._partition.index)

    def _describe(self) -> str:
        return (
            f"nobody makes room in partition {self._partition.index} of "
            f"{self._work.name!r}"
        )

    def _wake(self) -> None:
        self._waiter.wake()


class Producer(Protocol):
    """What a `RoomWait` asks of a waiter in line."""

    wants: int
    granted: int

    def wake(self) -> None:
        """Let the producer look again."""


class CallWait(Wait):
    """A handler awaits a future on a loop; what else it needs, subclasses know."""

    __slots__ = ("_refused",)

    def __init__(self, call: Inside) -> None:
        super().__init__(call)
        self._refused: asyncio.Future[None]
        self._refused = asyncio.get_running_loop().create_future()

    async def until(self, done: asyncio.Future[Any]) -> None:
        """Wait for it; a cancelled wait leaves it alone.

        Raises:
            WouldDeadlock: Somebody closed a cycle in the meantime.
        """
        await asyncio.wait({done, self._refused}, return_when=asyncio.FIRST_COMPLETED)
        if not done.done():
            self.check()

    def _wake(self) -> None:
        if not self._refused.done():
            self._refused.set_result(None)


class FlushWait(CallWait):
    """A handler waits until what it saw in some partitions is settled."""

    __slots__ = ("_work", "hooks", "partitions", "watcher")

    def __init__(self, call: Inside, work: OwnWork, watcher: Any) -> None:  # noqa: ANN401
        super().__init__(call)
        self._work = work
        self.watcher = watcher
        self.partitions: Sequence[Partition[Any]] = ()
        # The calls of `on_flush` that it waits for afterwards.
        self.hooks: Sequence[OnFlushNode] = ()

    def targets(self) -> Collection[Node]:
        if self.refusal is not None:
            return ()
        last_owner = self._work.ownership.last_owner
        owners = {
            last_owner(each.index) for each in self.partitions if self.needs(each)
        }
        hooks = [each for each in self.hooks if not each.task.done()]
        return [*(DrainTaskNode(self._work, each) for each in owners), *hooks]

    def needs(self, partition: Partition[Any]) -> bool:
        return self.refusal is None and partition.accounts.is_watched_by(self.watcher)

    def _describe(self) -> str:
        return f"a flush of {self._work.name!r} does not end"


class AllEndWait(CallWait):
    """A handler waits until somebody else has ended some queues."""

    __slots__ = ("_nodes",)

    def __init__(self, call: Inside, nodes: Callable[[], Collection[Node]]) -> None:
        super().__init__(call)
        self._nodes = nodes

    def targets(self) -> Collection[Node]:
        return () if self.refusal is not None else self._nodes()

    def needs(self, partition: Partition[Any]) -> bool:
        # Whoever takes from it: all drain tasks have to end.
        return False

    def _describe(self) -> str:
        return "the shutdown of all queues, which goes on, does not end"


class EndWait(CallWait):
    """A handler waits until a queue, which closes, has ended."""

    __slots__ = ("_has_ended", "_work")

    def __init__(
        self, call: Inside, work: OwnWork, has_ended: Callable[[], bool]
    ) -> None:
        super().__init__(call)
        self._work = work
        self._has_ended = has_ended

    def targets(self) -> Collection[Node]:
        if self.refusal is not None or self._has_ended():
            return ()
        return end_of(self._work)

    def needs(self, partition: Partition[Any]) -> bool:
        # Whoever takes from it: all drain tasks have to end.
        return False

    def _describe(self) -> str:
        return f"{self._work.name!r}, which goes on closing, does not end"
