"""F: a signal handler raises while a manager ends, and its loop runs on: a notebook."""

import asyncio
from typing import Any

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig, BatchQueueManager
from batchqueue_async.testing import Deadlock, VirtualTimeLoop
from tests.bridge.interruptions import Interruption, ctrl_c
from tests.support.striking import OUT_OF_REACH

STEP = 5
MOST = 5_000
# Callbacks of the loop: struck as it begins one is gone, and the next call heals that.
HEALED_BY_THE_NEXT = ("LoopTurn._begin", "Asleep._resume")


def drive(loop: VirtualTimeLoop, body: Any) -> None:  # noqa: ANN401 - any coroutine
    task = loop.create_task(body)
    while not task.done():
        try:
            loop.run_until_complete(task)
        except (KeyboardInterrupt, RuntimeError, TypeError):
            # A TypeError is CPython 3.11's own, where a trace function raises: it takes
            # the traceback for what is called. What came of it is checked.
            continue


class Scene:
    """A manager with two queues, of which each has items."""

    def __init__(self) -> None:
        self.manager = BatchQueueManager()
        self.queues: list[BatchQueue[int]] = []
        self.got: list[int] = []

    async def handle(self, batch: list[int]) -> None:
        await asyncio.sleep(1.0)

    async def begin(self) -> None:
        config = BatchQueueConfig[int](consumer=self.handle, max_batch=2)
        for name in "ab":
            self.queues.append(await self.manager.create(name, config))
            await self.queues[-1].produce_many(range(4))

    async def end(self, timeout: float | None) -> None:
        for items in (await self.manager.shutdown_all(timeout)).values():
            self.got.extend(items)

    def check(self) -> None:
        assert self.manager.queues == ()
        assert len(self.got) == sum(each.stats().returned for each in self.queues)


def struck(verb: str, at: int) -> bool:
    """Strike the verb at this point, and end all; returns whether it was struck."""
    loop, scene = VirtualTimeLoop(), Scene()
    loop.set_exception_handler(lambda *_: None)
    drive(loop, scene.begin())
    point = Interruption(at, ctrl_c, at_entries=True)
    with point:
        try:
            if verb == "by name":
                drive(loop, scene.manager.shutdown("a", None))
            else:
                drive(loop, scene.end(1.5 if verb == "in time" else None))
        except Deadlock:
            where = (point.where or "").partition(":")[0]
            assert where in (*HEALED_BY_THE_NEXT, OUT_OF_REACH)
    if OUT_OF_REACH not in (point.where or ""):
        drive(loop, scene.end(None))
        scene.check()
    loop.close()
    return point.has_acted


@pytest.mark.parametrize("verb", ["by name", "all", "in time"])
@pytest.mark.filterwarnings("ignore")
def test_each_queue_is_ended_and_each_list_is_fetched(verb: str) -> None:
    for at in range(0, MOST, STEP):
        if not struck(verb, at):
            return
    pytest.fail("it never came to an end")
