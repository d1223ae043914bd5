"""B2, B3 and C4 with placement decided on several threads at once."""

import asyncio
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    LoopThread,
    PartitionPolicy,
    SyncBatchQueue,
    by_key,
    round_robin,
)
from batchqueue_async._engine.partitions.chunk_by_partition import runs_of
from batchqueue_async._engine.queue import parts_of
from tests.bridge.background import (
    all_answers,
    answers,
    in_background,
)
from tests.bridge.gated import Gated
from tests.support.oracle import check_accounts, check_settled

Bridge = SyncBatchQueue[Any]


class OneAtATime:
    """A selector that must never be called on two threads at once."""

    def __init__(self) -> None:
        self.overlaps = 0
        self.calls = 0
        self._inside = 0

    def __call__(self, item: int, partitions: int) -> int:
        self._inside += 1
        if self._inside > 1:
            self.overlaps += 1
        chosen = (self.calls, item)
        self.calls += 1
        for _ in range(10):
            self.overlaps += self._inside > 1
        self._inside -= 1
        return chosen[0] % partitions


@pytest.mark.real_time
@pytest.mark.usefixtures("eager_switches")
async def test_a_selector_is_never_called_on_two_threads_at_once() -> None:
    selector = OneAtATime()
    config = BatchQueueConfig[Any](
        partitions=PartitionPolicy.fixed(4), selector=selector, consumer=lambda _: None
    )
    async with BatchQueue("q", config) as queue:
        bridge: Bridge = SyncBatchQueue(queue)

        def produce() -> None:
            for item in range(0, 60, 3):
                assert bridge.produce(item)
                assert bridge.produce_many([item + 1, item + 2]) == 2

        calls = [in_background(produce) for _ in range(4)]
        for item in range(60):
            assert await queue.produce(item)
            assert queue.produce_nowait(item)
            assert await queue.produce_many([item, item]) == 2
            await asyncio.sleep(0)
        await all_answers(calls)
    assert selector.overlaps == 0
    assert selector.calls == 4 * 60 + 4 * 60
    per_partition = [each.accepted for each in check_settled(queue).partitions]
    assert per_partition == [120] * 4


@pytest.mark.real_time
@pytest.mark.usefixtures("eager_switches")
async def test_round_robin_goes_round_whoever_produces() -> None:
    config = BatchQueueConfig[Any](
        partitions=PartitionPolicy.fixed(5),
        selector=round_robin,
        consumer=lambda _: None,
    )
    async with BatchQueue("q", config) as queue:
        bridge: Bridge = SyncBatchQueue(queue)

        def produce() -> None:
            for item in range(100):
                assert bridge.produce(item)
            assert bridge.produce_many(range(100)) == 100

        calls = [in_background(produce) for _ in range(4)]
        for item in range(200):
            assert await queue.produce(item)
        await all_answers(calls)
    assert [each.accepted for each in check_settled(queue).partitions] == [200] * 5


def test_what_a_selector_raises_reaches_its_own_caller(loop_thread: LoopThread) -> None:
    def moody(item: Any, partitions: int) -> int:  # noqa: ANN401 - any item
        if item == "raise":
            raise LookupError
        return int(item) if isinstance(item, str) else item % partitions

    handler = Gated()
    config = BatchQueueConfig[Any](
        partitions=PartitionPolicy.fixed(2), selector=moody, consumer=handler
    )
    queue: Bridge = loop_thread.open("q", config)
    with pytest.raises(LookupError):
        queue.produce("raise")
    for wrong in ("7", "-1"):
        with pytest.raises(ValueError, match="selector must return"):
            queue.produce(wrong)
    with pytest.raises(LookupError):
        queue.produce_many([1, "raise", 2])
    before = check_accounts(queue)
    assert before.rejected == 0
    assert queue.produce(3)
    queue.flush(10)
    assert handler.handled[-1] == 3
    assert check_settled(queue).accepted == before.accepted + 1


@pytest.mark.usefixtures("eager_switches")
def test_keys_keep_their_order_from_each_thread(loop_thread: LoopThread) -> None:
    handled: list[tuple[str, int, int]] = []
    config = BatchQueueConfig[Any](
        drain_tasks=DrainTaskPolicy.fixed(2),
        partitions=PartitionPolicy.fixed(4),
        buffer_size=3,
        selector=by_key(lambda item: item[0]),
        consumer=handled.extend,
    )
    queue: Bridge = loop_thread.open("q", config)

    def produce(thread: int) -> None:
        for step in range(60):
            assert queue.produce(("abcdefg"[step % 7], thread, step))

    answers(in_background(produce, n) for n in range(4))
    queue.flush(10)
    assert len(handled) == 240
    for key in "abcdefg":
        for thread in range(4):
            steps = [s for k, t, s in handled if (k, t) == (key, thread)]
            assert steps == sorted(steps)


@pytest.mark.real_time
async def test_a_chunk_takes_the_guard_a_few_times_and_never_for_all_of_it() -> None:
    """For each item it cost as much as the answer; for all the loop would wait."""
    asked: list[int] = []

    class Counting:
        def __enter__(self) -> None:
            asked.append(0)

        def __exit__(self, *_: object) -> None: ...

    def selector(_: int, __: int) -> int:
        asked[-1] += 1
        return 0

    config = BatchQueueConfig[Any](
        partitions=PartitionPolicy.fixed(4), selector=selector, consumer=lambda _: None
    )
    async with BatchQueue("q", config) as queue:
        placement = parts_of(queue).placement
        placement.guard = Counting()
        ((_, items),) = runs_of(range(1000), placement)
    assert list(items) == list(range(1000))
    assert sum(asked) == 1000
    assert max(asked) <= 32
    assert len(asked) <= 100
