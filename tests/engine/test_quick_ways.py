"""Items that go by the last look at the edges: whatever comes in between, all adds up.

What comes in between is a signal handler that puts an item in, or raises, at any point.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueError,
    WhenFull,
    fair_by,
)
from batchqueue_async._engine.partitions.fair_partition import FairPartition
from batchqueue_async._engine.partitions.sized_partition import SizedPartition
from batchqueue_async.testing import VirtualTimeLoop
from tests.bridge.interruptions import Interruption
from tests.support.oracle import check_accounts, check_settled
from tests.support.own_lines import own_lines
from tests.support.striking import Struck

SLOTS, BYTES, FILLS_A_BATCH = 6, 14, 4
KINDS: dict[str, dict[str, Any]] = {
    "sized": {"size_of": len, "buffer_bytes": BYTES, "max_batch_bytes": 10},
    "fair": {"selector": fair_by(lambda item: "key")},
    "keys": {"selector": fair_by(len)},
}
kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
SOON = 1.0
"""Long after all that is due, and long before what lingers."""


class Handler(list[list[str]]):
    def consume(self, batch: list[str]) -> None:
        self.append(batch)


def queue_with(handler: Handler, kind: dict[str, Any], **more: Any) -> BatchQueue[str]:  # noqa: ANN401
    config = BatchQueueConfig(
        consumer=handler,
        buffer_size=SLOTS,
        when_full=WhenFull.DROP_NEWEST,
        **{"max_batch": FILLS_A_BATCH, "linger": 600.0, **kind, **more},
    )
    return BatchQueue("q", config)


def check_counts(queue: BatchQueue[str], *, is_over: bool = True) -> None:
    """Check what is counted beside the items, and that no bound is exceeded."""
    check_accounts(queue)
    (partition,) = queue._parts.partitions
    if isinstance(partition, SizedPartition):
        assert [*partition.sizes] == [*map(len, partition.items)]
        size = sum(partition.sizes)
        assert (partition.waiting_size, partition.budget.waiting) == (size, size)
        assert size <= BYTES
        assert len(partition.items) <= SLOTS
        assert not partition.budget.is_changing
    if isinstance(partition, FairPartition):
        buffers = [*partition._buffers.values()]
        assert all(len(each.items) <= SLOTS for each in buffers)
        if is_over:
            # What one call has missed, the next one of the key counts.
            assert partition.ready == sum(each.ready for each in buffers)
            ready = {id(each): each.ready for each in buffers}
            assert ready == {id(each): len(each.items) for each in buffers}


def swept(
    kind: dict[str, Any],
    waiting: int,
    action: Callable[[BatchQueue[str], list[str]], None],
) -> None:
    """Act at each point of a `produce_nowait` behind so many items."""

    async def run(point: int) -> bool:
        handler, given = Handler(), list[str]()
        async with queue_with(handler, kind) as queue:
            for item in "abcde"[:waiting]:
                given += [item] * queue.produce_nowait(item)
            interruption = Interruption(
                point, lambda: action(queue, given), at_entries=True
            )
            with suppress(Struck), interruption:
                given += ["xx"] * queue.produce_nowait("xx")
            check_counts(queue, is_over=False)
            (partition,) = queue._parts.partitions
            is_due = partition.is_due()
            await asyncio.sleep(SOON)
            assert bool(handler) == is_due, interruption.where
            given += [item for item in ("y", "yy") if queue.produce_nowait(item)]
            check_counts(queue)
        # Struck, it may have got in or not.
        handled = sorted(item for batch in handler for item in batch)
        assert [each for each in handled if each != "xx"] == sorted(
            each for each in given if each != "xx"
        )
        check_settled(queue)
        return interruption.has_acted

    for point in range(1_000):
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            if not runner.run(run(point)):
                break
    assert point > 5


def put_one_more(queue: BatchQueue[str], given: list[str]) -> None:
    given += ["z"] * bool(queue.offer("z"))


def strike(queue: BatchQueue[str], given: list[str]) -> None:
    raise Struck


@kinds
@pytest.mark.parametrize("waiting", [2, 3, 5])
def test_a_signal_handlers_item_comes_in_between(
    kind: dict[str, Any], waiting: int
) -> None:
    swept(kind, waiting, put_one_more)


@kinds
@pytest.mark.parametrize("waiting", [2, 3, 5])
def test_a_signal_handler_raises_in_between(kind: dict[str, Any], waiting: int) -> None:
    swept(kind, waiting, strike)


@pytest.mark.parametrize("size", [1, 1.5], ids=["whole", "fractions"])
def test_a_signal_handlers_item_comes_during_a_take(
    size: float, caplog: pytest.LogCaptureFixture
) -> None:
    async def run(point: int) -> bool:
        handler = Handler()
        config = {"size_of": lambda _: size, "max_batch_bytes": 4}
        more = {"max_batch": None, "linger": 0.0}
        async with queue_with(handler, config, **more) as queue:
            for item in "abcde":
                assert queue.produce_nowait(item)
            at_point = Interruption(point, lambda: queue.offer("z"), is_in_take)
            with at_point:
                await asyncio.sleep(SOON / 10)
        assert [item for batch in handler for item in batch if item != "z"] == [
            *"abcde"
        ]
        assert max(map(len, handler)) * size <= 4
        return at_point.has_acted

    for point in range(1_000):
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            if not runner.run(run(point)):
                break
    assert point > 5
    assert not own_lines(caplog.records)


def is_in_take() -> bool:
    task = asyncio.current_task()
    return task is not None and "drain task" in task.get_name()


@pytest.mark.asyncio(loop_factories=["virtual"])
async def test_sizes_of_any_kind_add_up_whichever_came_before() -> None:
    numbers = [1, 2, 1, 0.5, 1, 0.25, 0, 3, 2, 1.0]
    sizes = dict(zip("abcdefghij", numbers, strict=True))
    handler = Handler()
    config = BatchQueueConfig(
        consumer=handler,
        linger=600.0,
        size_of=sizes.__getitem__,
        buffer_bytes=20,
        max_batch_bytes=20,
    )
    async with BatchQueue("q", config) as queue:
        for times in range(3):
            total = 0.0
            for item, size in sizes.items():
                assert queue.produce_nowait(item)
                total += size
                assert queue.stats().waiting_bytes == total
            await queue.flush()
            assert queue.stats().waiting_bytes == 0
            assert len(handler) == times + 1
    assert handler == [[*sizes]] * 3


@pytest.mark.asyncio(loop_factories=["virtual"])
async def test_a_key_leaves_the_table_of_open_buffers_with_its_last_item() -> None:
    handler = Handler()
    async with queue_with(handler, KINDS["keys"], linger=0.0) as queue:
        (partition,) = queue._parts.partitions
        assert isinstance(partition, FairPartition)
        for item in ["a", "bb", "a", "bb", "bb", "a", "cc"]:
            assert queue.produce_nowait(item)
        assert partition.near.keys() == {1, 2}
        await asyncio.sleep(SOON)
        assert partition.near == {}
    check_settled(queue)


@kinds
async def test_another_thread_is_refused_where_items_go_by_the_last_look(
    kind: dict[str, Any],
) -> None:
    async with queue_with(Handler(), kind) as queue:
        for item in "ab":
            assert queue.produce_nowait(item)
        with pytest.raises(BatchQueueError, match="outside of its event loop"):
            await asyncio.to_thread(queue.produce_nowait, "c")
        assert queue.stats().waiting == 2
    assert not queue.produce_nowait("d")
    assert queue.stats().rejected_closed == 1
