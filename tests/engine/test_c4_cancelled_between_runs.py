"""C4: all tasks are cancelled while their loop does not run, and then it runs again.

As scripts do that call `run_until_complete` again and again, after a Ctrl-C say.
"""

import asyncio
from collections.abc import Iterator

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig
from tests.engine.until import until
from tests.support.oracle import check_settled
from tests.support.real_loops import LoopFactory, real_loops


class Script:
    """A loop that is run piece by piece, and a queue that lives on in between."""

    def __init__(self, new_loop: LoopFactory) -> None:
        self.handled: list[int] = []
        self.loop = new_loop()
        self.run = self.loop.run_until_complete
        config = BatchQueueConfig[int](consumer=self.handled.extend, linger=0.001)
        self.queue = BatchQueue("q", config)
        self.run(self.queue.start())

    def cancel_all(self) -> None:
        for task in asyncio.all_tasks(self.loop):
            task.cancel()


@pytest.fixture(params=[*real_loops().values()], ids=[*real_loops()])
def script(request: pytest.FixtureRequest) -> Iterator[Script]:
    script = Script(request.param)
    yield script
    script.run(script.queue.close())
    assert check_settled(script.queue).handled == len(script.handled)
    script.loop.close()


def test_what_waits_is_handled_by_itself(script: Script) -> None:
    script.run(script.queue.produce(1))
    script.cancel_all()
    script.run(until(lambda: script.handled))
    assert script.handled == [1]


def test_a_flush_in_the_first_turn_gets_its_answer(script: Script) -> None:
    """It looks before the cancelled drain tasks have ended."""
    script.run(script.queue.produce(1))
    script.cancel_all()
    script.run(script.queue.flush(timeout=30.0))
    assert script.handled == [1]


def test_an_item_that_comes_in_the_first_turn_is_handled(script: Script) -> None:
    script.run(script.queue.flush())
    script.cancel_all()
    script.run(script.queue.produce(1))
    script.run(until(lambda: script.handled))


def test_it_is_the_end_where_a_runner_does_it() -> None:
    """However long the program's own tasks take to end: no handler is called."""
    entered: list[list[int]] = []
    told: list[int] = []

    async def consume(batch: list[int]) -> None:
        entered.append(batch)
        await asyncio.Event().wait()

    async def be_slow_to_end() -> None:
        try:
            await asyncio.sleep(3600.0)
        finally:
            await asyncio.sleep(0.2)

    async def main() -> list[object]:
        config = BatchQueueConfig[int](
            consumer=consume, max_batch=1, on_error=lambda batch, _: told.extend(batch)
        )
        queue = BatchQueue("q", config)
        await queue.start()
        await queue.produce_many([1, 2])
        task = asyncio.create_task(be_slow_to_end())
        await until(lambda: entered)
        return [task, queue]

    with pytest.warns(ResourceWarning):
        asyncio.run(main())
    assert (entered, told) == ([[1]], [1, 2])
