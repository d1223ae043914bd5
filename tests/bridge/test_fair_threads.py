"""`fair_by` through the bridge: threads of one key don't hold up those of another."""

import asyncio
import gc
import weakref
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    LoopThread,
    PartitionPolicy,
    PartitionSelector,
    SyncBatchQueue,
    WhenFull,
    fair_by,
)
from tests.bridge.background import all_answers, answers, in_background, wait_until
from tests.bridge.gated import Gated
from tests.support.oracle import check_accounts, check_settled

Item = tuple[Any, int, int]

Bridge = SyncBatchQueue[Item]


def declared(handler: Any, **settings: Any) -> BatchQueueConfig[Item]:  # noqa: ANN401
    selector: PartitionSelector[Item] = fair_by(lambda item: item[0], quantum=5)
    return BatchQueueConfig(consumer=handler, selector=selector, **settings)


def test_a_thread_of_another_key_does_not_stand_behind_the_flood(
    loop_thread: LoopThread,
) -> None:
    handler = Gated(is_open=False)
    queue: Bridge = loop_thread.open("q", declared(handler, buffer_size=2))
    queue.produce(("first", 0, 0))
    assert handler.entered.wait(10)
    floods = [
        in_background(queue.produce_many, [("flood", thread, n) for n in range(10)])
        for thread in range(3)
    ]
    wait_until(lambda: queue.stats().waiting == 2)
    assert queue.produce(("quiet", 0, 0), timeout=0)
    assert queue.produce(("quiet", 0, 1), timeout=10)
    assert not queue.produce(("quiet", 0, 2), timeout=0.01)
    assert not queue.offer(("flood", 0, 10))
    check_accounts(queue)
    handler.gate.set()
    assert answers(floods) == [10, 10, 10]
    queue.flush(10)
    assert check_settled(queue).handled == 33
    for thread in range(3):
        own = [n for key, of, n in handler.items if key == "flood" and of == thread]
        assert own == list(range(10))


@pytest.mark.usefixtures("eager_switches")
@pytest.mark.parametrize("when_full", [WhenFull.WAIT, WhenFull.DROP_OLDEST])
def test_keys_that_come_and_go_keep_their_order_from_each_thread(
    loop_thread: LoopThread, when_full: WhenFull
) -> None:
    """A buffer may go in the moment between being found and being put into."""
    handler = Gated()
    config = declared(
        handler, buffer_size=4, when_full=when_full, partitions=PartitionPolicy.fixed(2)
    )
    queue: Bridge = loop_thread.open("q", config)

    def produce(thread: int) -> int:
        accepted = 0
        for n in range(150):
            key = n % 3
            if n % 10 == 9:
                accepted += queue.produce_many([(key, thread, n)])
            else:
                accepted += queue.produce((key, thread, n))
        return accepted

    calls = [in_background(produce, thread) for thread in range(4)]
    assert answers(calls) == [150] * 4
    queue.flush(20) if when_full is WhenFull.WAIT else queue.shutdown(20)
    stats = check_settled(queue)
    assert stats.handled + stats.dropped == 600
    for thread in range(4):
        for key in range(3):
            own = [n for k, of, n in handler.items if (k, of) == (key, thread)]
            assert own == sorted(own)
            assert len(own) == 50 or when_full is WhenFull.DROP_OLDEST


@pytest.mark.slow
@pytest.mark.real_time
@pytest.mark.usefixtures("eager_switches")
async def test_keys_of_threads_leave_nothing_behind() -> None:
    class Key:
        pass

    known: list[weakref.ref[Key]] = []

    async with BatchQueue("q", declared(lambda _: None, buffer_size=3)) as queue:
        bridge: Bridge = SyncBatchQueue(queue)

        def produce() -> None:
            for _ in range(100):
                key = Key()
                known.append(weakref.ref(key))
                assert bridge.produce((key, 0, 0))
                assert bridge.produce_many([(key, 0, n) for n in range(5)]) == 5

        calls = [in_background(produce) for _ in range(3)]
        for _ in range(100):
            key = Key()
            known.append(weakref.ref(key))
            assert await queue.produce((key, 0, 0))
            assert queue.offer((key, 0, 1))
            await asyncio.sleep(0)
        del key
        await all_answers(calls)
        await queue.flush()
        assert check_settled(queue).handled == 300 * 6 + 200
        # On other threads a frame may end a moment after its answer.
        del calls
        await asyncio.sleep(0.01)
        gc.collect()
        assert [ref for ref in known if ref() is not None] == []
        assert queue.stats().capacity == 3


def test_ctrl_c_in_the_middle_of_a_change_leaves_the_guard_free(
    loop_thread: LoopThread,
) -> None:
    """A key function that raises what Ctrl-C does."""
    handler = Gated()
    strikes = [True]

    def key(item: Item) -> int:
        if strikes and item[2] == 1:
            strikes.clear()
            raise KeyboardInterrupt
        return item[2]

    config = BatchQueueConfig[Item](consumer=handler, selector=fair_by(key))
    queue: Bridge = loop_thread.open("q", config)
    with pytest.raises(KeyboardInterrupt):
        queue.produce(("a", 0, 1))
    assert queue.produce(("a", 0, 1))
    queue.flush(10)
    assert check_settled(queue).handled == 1
