"""F4: two copies of the library on one loop, as in a notebook that imports it anew."""

from tests.bridge.programs import Program

TWO_COPIES = """
import batchqueue_async as old
for name in [each for each in sys.modules if each.startswith("batchqueue_async")]:
    del sys.modules[name]
import batchqueue_async as new
assert new is not old
handled = []

async def open_queue(copy, linger=0.0):
    config = copy.BatchQueueConfig(consumer=handled.append, linger=linger)
    queue = copy.BatchQueue(copy is old and "old" or "new", config)
    await queue.start()
    return queue
"""


def test_each_has_queues_of_its_own_there() -> None:
    ended = Program(
        TWO_COPIES
        + """
async def main():
    before = await open_queue(old)
    queues = [before, await open_queue(new), await open_queue(old)]
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.sleep(0.2)
    for number, each in enumerate(queues):
        await each.produce(number)
        assert await each.shutdown() == []
    print(sorted(handled))

asyncio.run(main())
"""
    ).end()
    assert (ended.status, ended.output, ended.log) == (0, "[[0], [1], [2]]", "")


def test_what_the_loops_end_leaves_is_told_by_both() -> None:
    ended = Program(
        TWO_COPIES
        + """
warnings.simplefilter("ignore", ResourceWarning)

async def main():
    for copy in (old, new):
        await (await open_queue(copy, linger=60)).produce(1)

asyncio.run(main())
"""
    ).end()
    assert ended.status == 0
    assert sorted(ended.log.splitlines()) == [
        f"ERROR the loop of queue {name!r} ended without its shutdown: 1 items are left"
        for name in ("new", "old")
    ]
