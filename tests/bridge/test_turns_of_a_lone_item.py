"""What an item from a thread costs of the loop's turns."""

import asyncio
import selectors
import threading

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig, SyncBatchQueue

pytestmark = pytest.mark.real_time


class Counting(selectors.DefaultSelector):
    """Counts the loop's turns, and tells when it has nothing to do."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = 0
        self.sleeps = threading.Event()

    def select(
        self, timeout: float | None = None
    ) -> list[tuple[selectors.SelectorKey, int]]:
        self.turns += 1
        if timeout is None:
            self.sleeps.set()
        return super().select(timeout)


def test_it_is_handled_in_the_turn_that_it_begins() -> None:
    selector, handled_in = Counting(), list[int]()

    async def handle(_: list[int]) -> None:
        handled_in.append(selector.turns)

    async def main() -> int:
        async with BatchQueue("lone", BatchQueueConfig(consumer=handle)) as queue:
            producer = SyncBatchQueue(queue)

            def produce() -> int:
                assert selector.sleeps.wait(30.0)
                turn = selector.turns
                producer.produce(1)
                return turn

            selector.sleeps.clear()
            return await asyncio.to_thread(produce)

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as it:
        asleep_in = it.run(main())

    assert handled_in == [asleep_in]
