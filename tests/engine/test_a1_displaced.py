"""A1: what is displaced is accounted for, wherever a signal handler raises."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DeliveryError,
    SyncBatchQueue,
    WhenFull,
)
from tests.bridge.interruptions import Interruption
from tests.support.oracle import check_accounts, check_settled

SIZE = 4
MOST_POINTS = 2_000


class Struck(Exception):
    """As from a SIGALRM's handler."""


def strike() -> None:
    raise Struck


class Blocked:
    """A full queue that displaces, and whose handler waits until it is let go."""

    def __init__(self) -> None:
        self.handled: list[int] = []
        self.gate = asyncio.Event()
        config = BatchQueueConfig[int](
            buffer_size=SIZE, when_full=WhenFull.DROP_OLDEST, consumer=self._consume
        )
        self.queue = BatchQueue[int]("q", config)

    @asynccontextmanager
    async def full(self) -> AsyncIterator[None]:
        async with self.queue:
            await self.queue.produce(-10)
            await asyncio.sleep(0.01)
            assert await self.queue.produce_many(range(-SIZE, 0)) == SIZE
            yield
            self.gate.set()

    async def _consume(self, batch: list[int]) -> None:
        await self.gate.wait()
        self.handled += batch


async def produce(queue: BatchQueue[int], items: list[int]) -> None:
    for item in items:
        await queue.produce(item)


async def produce_nowait(queue: BatchQueue[int], items: list[int]) -> None:
    for item in items:
        queue.produce_nowait(item)


async def produce_many(queue: BatchQueue[int], items: list[int]) -> None:
    await queue.produce_many(items)


Produce = Callable[[BatchQueue[int], list[int]], Awaitable[None]]


async def check(blocked: Blocked, length: int, where: str | None) -> None:
    """Look at the accounts at once, and at what became of all items."""
    queue = blocked.queue
    stats = check_accounts(queue)
    before = SIZE + 1
    accepted = stats.accepted - before
    assert accepted == length if where is None else 0 <= accepted <= length
    assert stats.waiting <= SIZE
    blocked.gate.set()
    told = 0
    try:
        await queue.flush()
    except DeliveryError as failures:
        told = failures.count
    # The account is exact at any point, the report but for where it is written.
    if where is None or not where.startswith(("FailureLog", "Guard")):
        assert told == stats.dropped
    settled = check_settled(queue)
    assert settled.handled == len(blocked.handled) == settled.accepted - settled.dropped
    assert blocked.handled == sorted(set(blocked.handled))


# It may strike between a coroutine's being made and being awaited, as in any program.
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "way, length",
    [(produce, 2), (produce_nowait, 2), (produce_many, 3), (produce_many, SIZE + 3)],
)
async def test_a_signal_handler_may_raise_at_any_point(
    way: Produce, length: int
) -> None:
    dropped = set()
    for at in range(MOST_POINTS):
        blocked = Blocked()
        async with blocked.full():
            interruption, error = Interruption(at, strike), None
            try:
                with interruption:
                    await way(blocked.queue, [*range(length)])
            except Struck as struck:
                error = struck
            stats = blocked.queue.stats()
            dropped.add(stats.dropped)
            if error is not None and way is produce_many:
                assert getattr(error, "accepted", 0) == stats.accepted - SIZE - 1
            await check(blocked, length, interruption.where)
        if not interruption.has_acted:
            # Also in between; Python 3.13 traces fewer points.
            assert 1 < len(dropped) <= length + 1
            return
    pytest.fail("it never came to an end")


@pytest.mark.real_time
@pytest.mark.parametrize(
    "length, is_bulk",
    [
        (2, False),
        pytest.param(3, True, marks=pytest.mark.slow),
        pytest.param(SIZE + 3, True, marks=pytest.mark.slow),
    ],
)
async def test_so_may_one_on_a_thread(length: int, *, is_bulk: bool) -> None:
    """Signal handlers run on the main thread: a loop may be on another one."""

    def put(bridge: SyncBatchQueue[int], interruption: Interruption) -> Struck | None:
        items = range(length)
        try:
            with interruption:
                if is_bulk:
                    bridge.produce_many(items)
                else:
                    for item in items:
                        bridge.produce(item)
        except Struck as struck:
            return struck
        return None

    for at in range(MOST_POINTS):
        blocked = Blocked()
        async with blocked.full():
            interruption = Interruption(at, strike)
            bridge = SyncBatchQueue(blocked.queue)
            error = await asyncio.to_thread(put, bridge, interruption)
            if error is not None and is_bulk:
                accepted = blocked.queue.stats().accepted - SIZE - 1
                assert getattr(error, "accepted", 0) == accepted
            await check(blocked, length, interruption.where)
        if not interruption.has_acted:
            return
    pytest.fail("it never came to an end")
