"""F4: lists that a manager's shutdown has given back, since nobody waited for them, are
told at the loop's end, also to an async `on_error`."""

import asyncio
import logging

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig, BatchQueueManager
from batchqueue_async.testing import VirtualTimeLoop
from tests.engine.until import turns, until
from tests.support.oracle import check_settled
from tests.support.real_loops import LoopFactory, real_loops

every_loop = pytest.mark.parametrize(
    "new_loop",
    [VirtualTimeLoop, *real_loops().values()],
    ids=["virtual", *real_loops().keys()],
)


class DeadLetters:
    """What an async `on_error` was told; the queue's handler never ends."""

    def __init__(self) -> None:
        self.told: list[int] = []
        self.manager = BatchQueueManager()
        self.queues: list[BatchQueue[int]] = []

    async def tell(self, batch: list[int], _: BaseException) -> None:
        await asyncio.sleep(0.001)
        self.told += batch

    async def fill(self) -> None:
        async def never(_: list[int]) -> None:
            await asyncio.Event().wait()

        config = BatchQueueConfig(consumer=never, max_batch=1, on_error=self.tell)
        queue = await self.manager.create("rows", config)
        await queue.produce_many([1, 2, 3])
        self.queues.append(queue)

    async def command(self, _: list[str]) -> None:
        await self.manager.shutdown_all(0.05)

    async def all_ended(self) -> None:
        # One whose list nobody has fetched is among the manager's queues until then.
        await until(lambda: len(self.manager.queues) == 1)
        await turns()


@every_loop
def test_a_handlers_shutdown_of_all(
    new_loop: LoopFactory, caplog: pytest.LogCaptureFixture
) -> None:
    letters = DeadLetters()

    async def main() -> None:
        config = BatchQueueConfig(consumer=letters.command)
        commands = await letters.manager.create("commands", config)
        await letters.fill()
        # That queue ends last, and has nothing left.
        await commands.produce("stop")
        await letters.all_ended()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())
    assert letters.told == [1, 2, 3]
    assert check_settled(letters.queues[0]).returned == 3
    assert {each.levelno for each in caplog.records} == {logging.ERROR}
    assert [
        each.getMessage().partition(" of 'rows'")[0] for each in caplog.records
    ] == [
        "3 items",
        "nobody came for the 3 items that the shutdown",
    ]


@every_loop
def test_a_call_that_fetches_them_leaves_nothing_to_tell(new_loop: LoopFactory) -> None:
    letters = DeadLetters()

    async def main() -> None:
        config = BatchQueueConfig(consumer=letters.command)
        commands = await letters.manager.create("commands", config)
        await letters.fill()
        await commands.produce("stop")
        await letters.all_ended()
        assert await letters.manager.shutdown_all() == {"rows": [1, 2, 3]}
        # The loop goes on with other queues.
        await letters.fill()
        await letters.manager.close(0.05)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())
    assert letters.told == [1, 2, 3]
