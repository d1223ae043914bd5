"""What the machines and the sweep found, as small as it gets, against public names."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DeliveryError,
    DrainTaskPolicy,
    PartitionPolicy,
    Rebalancing,
    Retry,
)
from tests.support.oracle import check_settled


async def test_b1_a_cut_batch_whose_first_piece_is_parked() -> None:
    """Its second piece, of the same partition, came before the retry of the first."""
    attempts: list[list[int]] = []

    def consume(batch: list[int]) -> None:
        attempts.append(batch)
        if len(attempts) == 1:
            raise ValueError

    config = BatchQueueConfig[int](
        consumer=consume,
        partitions=PartitionPolicy.fixed(2),
        selector=lambda item, _: item // 10,
        max_batch=3,
        retry=Retry(attempts=2),
    )
    async with BatchQueue("q", config) as queue:
        await queue.produce_many([1, 2, 11, 12])
        await queue.flush()
    assert attempts == [[1, 2, 11], [1, 2, 11], [12]]


async def test_b3_a_handler_that_comes_back_before_it_was_closed() -> None:
    """It got a second gate, and its `on_flush` ran twice at once."""

    class Handler:
        inside = 0
        most = 0

        async def consume(self, batch: list[Any]) -> None: ...

        async def on_flush(self) -> None:
            self.inside += 1
            self.most = max(self.most, self.inside)
            await asyncio.sleep(0.01)
            self.inside -= 1

        async def on_close(self) -> None: ...

    comes_back = Handler()
    async with BatchQueue[Any]("q") as queue:
        queue.add_handler(str, Handler())
        for handler in (Handler(), comes_back, Handler(), Handler(), comes_back):
            queue.add_handler(int, handler)
        await queue.flush()
    assert comes_back.most == 1


async def test_c1_a_handler_that_cancels_its_own_task() -> None:
    """The drain task went on, and took again before the rest was delivered."""
    most = 0

    def cancel_me(_: list[int]) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    async def slow(_: list[str]) -> None:
        nonlocal most
        most = max(most, queue.stats().in_flight)
        await asyncio.sleep(0.01)

    config = BatchQueueConfig[int | str](max_batch=2)
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, cancel_me)
        queue.add_handler(str, slow)
        await queue.produce_many([1, "a", 2, "b", 3, "c"])
        await queue.flush()
    assert most <= 2
    assert check_settled(queue).handled == 6


@pytest.mark.parametrize("handler_timeout", [None, 10.0])
async def test_f2_finished_at_the_deadline_is_handled(
    handler_timeout: float | None,
) -> None:
    """With `handler_timeout` it was returned as well."""

    async def consume(_: list[int]) -> None:
        try:
            await asyncio.sleep(100.0)
        except asyncio.CancelledError:
            return  # it finishes its batch first

    queue = BatchQueue("q", BatchQueueConfig[int](handler_timeout=handler_timeout))
    await queue.start()
    queue.add_handler(int, consume)
    await queue.produce(1)
    await asyncio.sleep(0.01)
    assert await queue.shutdown(timeout=1.0) == []
    assert check_settled(queue).handled == 1


async def test_f2_one_that_cannot_be_stopped_is_removed() -> None:
    """Its drain task waited to close it; its other partitions stood still."""
    gate = asyncio.Event()
    received: list[str] = []

    class Stubborn:
        closed = 0

        async def consume(self, batch: list[int]) -> None:
            while not gate.is_set():
                try:
                    await gate.wait()
                except asyncio.CancelledError:
                    continue

        async def on_close(self) -> None:
            self.closed += 1

    stubborn = Stubborn()
    config = BatchQueueConfig[int | str](
        partitions=PartitionPolicy.fixed(2),
        handler_timeout=0.1,
        on_error=lambda _batch, _error: None,
    )
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, stubborn)
        queue.add_handler(str, received.extend)
        await queue.produce(1)
        await asyncio.sleep(1.0)
        queue.remove_handler(int)
        await asyncio.sleep(0.1)
        await queue.produce("a")
        await asyncio.sleep(0.1)
        was_received = list(received)
        # In use again before its `on_close`: that is for its end.
        queue.add_handler(int, stubborn)
        gate.set()
        await asyncio.sleep(0.1)
        assert was_received == ["a"]
        assert stubborn.closed == 0
    assert stubborn.closed == 1


async def test_f5_a_deadline_that_cuts_on_flush_off() -> None:
    """A `CancelledError` came out of a `flush` that nobody had cancelled."""

    class Handler:
        async def consume(self, batch: list[int]) -> None: ...

        async def on_flush(self) -> None:
            await asyncio.sleep(100.0)

    queue = BatchQueue[int]("q")
    await queue.start()
    queue.add_handler(int, Handler())
    await queue.produce(1)
    flushing = asyncio.create_task(queue.flush())
    await asyncio.sleep(0.01)
    await queue.shutdown(timeout=0.1)
    with pytest.raises(DeliveryError):
        await flushing


class MoveOnce:
    """Everything to the other drain task, in the first round."""

    rounds = 0

    def assign(
        self, loads: Sequence[float], owners: Sequence[int], drain_tasks: int
    ) -> Sequence[int] | None:
        self.rounds += 1
        return [1 - each for each in owners] if self.rounds == 1 else None


async def test_b1_a_cycle_that_is_cut_short_in_a_handoff() -> None:
    received: list[str] = []

    async def cancels(_: list[int]) -> None:
        await asyncio.sleep(1.5)  # the round begins at 1.0
        task = asyncio.current_task()
        assert task is not None
        task.cancel()  # hits the drain task behind this call

    async def slow(_: list[float]) -> None:
        await asyncio.sleep(0.5)

    config = BatchQueueConfig[Any](
        drain_tasks=DrainTaskPolicy.fixed(2),
        partitions=PartitionPolicy.fixed(2),
        selector=lambda _item, _partitions: 0,
        rebalancing=Rebalancing(MoveOnce(), 1.0),
    )
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, cancels)
        queue.add_handler(float, slow)
        queue.add_handler(str, received.extend)
        await queue.produce_many([1, 1.0, "older"])
        await asyncio.sleep(0.5)
        await queue.produce("younger")
        await asyncio.sleep(3.0)
    assert received == ["older", "younger"]
