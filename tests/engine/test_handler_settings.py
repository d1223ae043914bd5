"""Settings of one handler, in place of its queue's."""

import asyncio
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    LoopThread,
    PartitionPolicy,
    Retry,
)
from tests.engine.every_loop import every_loop
from tests.engine.until import until
from tests.support.oracle import check_settled
from tests.support.recording_handler import RecordingHandler

pytestmark = every_loop

virtual = pytest.mark.asyncio(loop_factories=["virtual"])

TWO: dict[str, Any] = {"partitions": PartitionPolicy.fixed(2)}


def sizes(handler: RecordingHandler[Any]) -> list[int]:
    return [len(batch) for batch in handler.batches]


class TestMaxBatch:
    async def test_its_batches_are_no_larger(self) -> None:
        small, usual = RecordingHandler[int](), RecordingHandler[str]()
        async with BatchQueue[Any]("q") as queue:
            queue.add_handler(int, small, max_batch=3)
            queue.add_handler(str, usual)
            await queue.produce_many([*range(8), *"abcdefgh"])
        assert sizes(small) == [3, 3, 2]
        assert sizes(usual) == [8]
        assert small.handled == [*range(8)]

    async def test_they_may_be_larger_than_the_queues(self) -> None:
        large, usual = RecordingHandler[int](), RecordingHandler[str]()
        async with BatchQueue("q", BatchQueueConfig[Any](max_batch=2, **TWO)) as queue:
            queue.add_handler(int, large, max_batch=100)
            queue.add_handler(str, usual)
            await queue.produce_many([*range(8), *"abcd"])
        assert sizes(large) == [8]
        assert sizes(usual) == [2, 2]

    @virtual
    async def test_it_ends_a_linger(self) -> None:
        handler = RecordingHandler[int]()
        async with BatchQueue("q", BatchQueueConfig[int](linger=60.0)) as queue:
            queue.add_handler(int, handler, max_batch=3)
            await queue.produce_many([0, 1])
            await asyncio.sleep(1)
            assert handler.batches == []
            await queue.produce(2)
            await asyncio.sleep(1)
            assert handler.batches == [[0, 1, 2]]


@virtual
class TestLinger:
    async def test_one_lingers_where_its_queue_does_not(self) -> None:
        slow, prompt = RecordingHandler[int](), RecordingHandler[str]()
        async with BatchQueue("q", BatchQueueConfig[Any](**TWO)) as queue:
            queue.add_handler(int, slow, linger=10.0)
            queue.add_handler(str, prompt)
            await queue.produce(1)
            await queue.produce("a")
            await asyncio.sleep(5)
            assert (slow.handled, prompt.handled) == ([], ["a"])
            await queue.produce(2)
            await queue.produce("b")
            await asyncio.sleep(4.9)
            assert (slow.handled, prompt.handled) == ([], ["a", "b"])
            await asyncio.sleep(0.2)
            assert slow.batches == [[1, 2]]

    async def test_one_is_prompt_where_its_queue_lingers(self) -> None:
        slow, prompt = RecordingHandler[int](), RecordingHandler[str]()
        async with BatchQueue("q", BatchQueueConfig[Any](linger=10.0, **TWO)) as queue:
            queue.add_handler(int, slow)
            queue.add_handler(str, prompt, linger=0)
            await queue.produce(1)
            await queue.produce_many(["a", "b"])
            await asyncio.sleep(0.1)
            assert (slow.handled, prompt.handled) == ([], ["a", "b"])
            await asyncio.sleep(10)
            assert slow.handled == [1]

    async def test_in_a_shared_partition_the_first_that_is_due_takes_all(self) -> None:
        slow, quick = RecordingHandler[int](), RecordingHandler[str]()
        async with BatchQueue[Any]("q") as queue:
            queue.add_handler(int, slow, linger=10.0)
            queue.add_handler(str, quick, linger=1.0)
            await queue.produce(1)
            await queue.produce("a")
            await asyncio.sleep(0.9)
            assert (slow.handled, quick.handled) == ([], [])
            await asyncio.sleep(0.2)
            assert (slow.handled, quick.handled) == ([1], ["a"])

    async def test_what_waits_already_goes_by_the_new_one(self) -> None:
        handler = RecordingHandler[int]()
        async with BatchQueue("q", BatchQueueConfig[int](linger=60.0)) as queue:
            queue.add_handler(int, handler)
            await queue.produce(1)
            await asyncio.sleep(1)
            queue.add_handler(int, handler, linger=0.5)
            await asyncio.sleep(0.6)
            assert handler.handled == [1]
            queue.add_handler(int, handler, linger=5.0)
            await queue.produce(2)
            await asyncio.sleep(4)
            assert handler.handled == [1]
            assert queue.remove_handler(int)
            queue.add_handler(int, handler)
            await asyncio.sleep(10)
            assert handler.handled == [1]
        assert handler.handled == [1, 2]

    async def test_with_a_selector_it_holds_everywhere(self) -> None:
        handler = RecordingHandler[int]()
        config = BatchQueueConfig[Any](selector=lambda item, n: item % n, **TWO)
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, handler, linger=1.0)
            await queue.produce(1)
            await queue.produce(2)
            await asyncio.sleep(0.9)
            assert handler.handled == []
            await asyncio.sleep(0.2)
            assert sorted(handler.handled) == [1, 2]

    async def test_partitions_that_grow_later_know_it_too(self) -> None:
        first, second = RecordingHandler[int](), RecordingHandler[str]()
        config = BatchQueueConfig[Any](partitions=PartitionPolicy.adaptive())
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, first, linger=1.0)
            queue.add_handler(str, second, linger=2.0)
            await queue.produce_many([1, "a"])
            await asyncio.sleep(1.1)
            assert (first.handled, second.handled) == ([1], [])
            await asyncio.sleep(1)
            assert second.handled == ["a"]


class TestFailing:
    async def test_each_has_its_retry_and_its_on_error(self) -> None:
        told: list[tuple[str, list[Any]]] = []
        often = RecordingHandler[int](fail_when=lambda _: OSError())
        once = RecordingHandler[str](fail_when=lambda _: OSError())
        config = BatchQueueConfig[Any](
            on_error=lambda batch, _: told.append(("queue", batch))
        )
        async with BatchQueue("q", config) as queue:
            queue.add_handler(
                int,
                often,
                retry=Retry(attempts=3, wait_initial=0),
                on_error=lambda batch, _: told.append(("own", batch)),
            )
            queue.add_handler(str, once)
            await queue.produce_many([1, "a"])
            await until(lambda: len(told) == 2)
        assert sorted(told) == [("own", [1]), ("queue", ["a"])]
        assert (sizes(often), sizes(once)) == ([1] * 3, [1])
        assert check_settled(queue).failed == 2

    @virtual
    async def test_its_timeout_bounds_its_hooks_and_its_on_error_too(self) -> None:
        class Slow(RecordingHandler[int]):
            async def on_flush(self) -> None:
                await asyncio.sleep(1000)

        async def on_error(_batch: object, _error: object) -> None:
            await asyncio.sleep(1000)

        patient = RecordingHandler[str](delay=50.0)
        async with BatchQueue[Any]("q") as queue:
            queue.add_handler(
                int, Slow(delay=50.0), handler_timeout=5.0, on_error=on_error
            )
            queue.add_handler(str, patient)
            started = asyncio.get_running_loop().time()
            await queue.produce_many([1, "a"])
            with pytest.raises(Exception, match="failure"):
                await queue.flush()
            assert asyncio.get_running_loop().time() - started < 70
        assert patient.handled == ["a"]
        assert check_settled(queue).failed == 1


@pytest.mark.parametrize(
    "setting, message",
    [
        ({"max_batch": 0}, r"^max_batch must be >= 1, got 0$"),
        ({"linger": -1}, r"^linger must be >= 0, got -1$"),
        ({"retry": 3}, r"^retry must be a Retry .*, or None, got 3$"),
        ({"on_error": 3}, r"^on_error must be callable.*, got 3$"),
        ({"handler_timeout": 0}, r"^handler_timeout must be > 0, got 0$"),
    ],
)
async def test_a_wrong_one_changes_nothing(
    setting: dict[str, Any], message: str
) -> None:
    async with BatchQueue[int]("q") as queue:
        with pytest.raises((TypeError, ValueError), match=message):
            queue.add_handler(int, RecordingHandler[int](), **setting)
        assert queue.stats().handlers == ()


@pytest.mark.real_time
@pytest.mark.asyncio(loop_factories=["asyncio"])
async def test_from_a_thread_too() -> None:
    handler = RecordingHandler[int]()

    def program() -> None:
        with LoopThread() as loop_thread:
            queue = loop_thread.open("q", BatchQueueConfig[int](linger=60.0))
            queue.add_handler(int, handler, max_batch=2, linger=0, handler_timeout=9)
            queue.produce_many([1, 2, 3])

    await asyncio.to_thread(program)
    assert sizes(handler) == [2, 1]
