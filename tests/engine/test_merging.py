"""Merging: items by key, handed on by time, by number, and in pauses; none twice."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from operator import itemgetter
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueError,
    DeliveryError,
    DrainTaskPolicy,
    Merging,
    PartitionPolicy,
    Retry,
    WhenFull,
    round_robin,
)
from tests.support.oracle import check_settled

Count = tuple[str, int]


def added(old: Count, new: Count) -> Count:
    return old[0], old[1] + new[1]


class Down:
    """A `then` that can be down, or slow."""

    def __init__(self, *, is_down: bool = False) -> None:
        self.batches: list[list[Count]] = []
        self.times: list[float] = []
        self.calls = 0
        self.is_down = is_down
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, items: list[Count]) -> None:
        self.calls += 1
        await self.gate.wait()
        if self.is_down:
            msg = "down"
            raise OSError(msg)
        self.batches.append(items)
        self.times.append(asyncio.get_running_loop().time())

    @property
    def total(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        for batch in self.batches:
            for key, count in batch:
                counts[key] += count
        return counts


def merging(then: Any, **settings: Any) -> Merging[Count]:  # noqa: ANN401
    return Merging[Count](key=itemgetter(0), merge=added, then=then, **settings)


@asynccontextmanager
async def queue_of(
    handler: Merging[Count],
    **settings: Any,  # noqa: ANN401
) -> AsyncIterator[BatchQueue[Count]]:
    config = BatchQueueConfig[Count](consumer=handler, **settings)
    async with BatchQueue[Count]("counts", config) as queue:
        yield queue


A, B = ("a", 1), ("b", 1)


async def test_without_a_time_it_hands_on_in_the_first_pause() -> None:
    then = Down()
    async with queue_of(merging(then)) as queue:
        await queue.produce_many([A, B, A])
        await asyncio.sleep(0.01)
        assert then.batches == [[("a", 2), ("b", 1)]]


async def test_after_a_time_that_begins_with_the_first_item() -> None:
    then = Down()
    handler = merging(then, every=2.0)
    async with queue_of(handler) as queue:
        await asyncio.sleep(100)
        begun = asyncio.get_running_loop().time()
        for _ in range(30):
            await queue.produce(A)
            await asyncio.sleep(0.1)
        assert [round(each - begun, 1) for each in then.times] == [2.0]
        assert handler.held == 1
    assert then.total == {"a": 30}


async def test_a_failure_between_batches_is_told_once_until_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Where items come without a pause, in which the queue would log it."""
    then = Down(is_down=True)
    handler = merging(then, every=1.0)

    async def comes() -> None:
        await asyncio.sleep(2.0)
        await handler.consume([A])

    told = "1 merged items are not handed on, and held"
    for _ in range(3):
        await comes()
    assert then.calls == 2
    assert [each.message for each in caplog.records] == [told]
    then.is_down = False
    await comes()
    assert then.batches == [[("a", 3)]]
    then.is_down = True
    await comes()
    assert [each.message for each in caplog.records] == [told, told]


async def test_by_number_before_more_is_merged() -> None:
    then = Down()
    handler = merging(then, every=3600, at_most=3)
    async with queue_of(handler, max_batch=2) as queue:
        await queue.produce_many([(f"{n}", 1) for n in range(10)])
        await asyncio.sleep(0.1)
        assert [len(each) for each in then.batches] == [4, 4]
        assert handler.held == 2


async def test_on_a_flush_and_when_its_queue_closes() -> None:
    then = Down()
    async with queue_of(merging(then, every=3600)) as queue:
        await queue.produce_many([A, A])
        await queue.flush()
        assert then.batches == [[("a", 2)]]
        await queue.produce(B)
    assert then.batches == [[("a", 2)], [("b", 1)]]
    assert then.calls == 2, "never with nothing"


async def test_a_sync_function_and_a_queue_may_be_next() -> None:
    first: list[Count] = []
    second: list[Count] = []
    async with (
        BatchQueue("next", BatchQueueConfig[Count](consumer=second.extend)) as then,
        queue_of(merging(first.extend)) as to_function,
        queue_of(merging(then)) as to_queue,
    ):
        for queue in (to_function, to_queue):
            await queue.produce_many([A, A, B])
    assert first == second == [("a", 2), ("b", 1)]


async def test_what_then_refuses_is_kept_and_goes_on_being_merged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    then = Down(is_down=True)
    handler = merging(then, every=0.5)
    async with queue_of(handler) as queue:
        for _ in range(40):
            await queue.produce(A)
            await asyncio.sleep(0.1)
        assert handler.held == 1
        assert 3 <= then.calls <= 5, "not with each batch"
        with pytest.raises(DeliveryError, match="down"):
            await queue.flush()
        then.is_down = False
        await queue.produce(B)
        await asyncio.sleep(2)
        assert then.batches == [[("a", 40), ("b", 1)]]
    assert queue.stats().handled == 41
    assert check_settled(queue).failed == 0
    assert 1 <= len([r for r in caplog.records if r.levelno == logging.ERROR]) <= 5


async def test_beyond_its_number_a_batch_fails_and_is_tried_again() -> None:
    then = Down(is_down=True)
    failed: list[Count] = []
    settings: dict[str, Any] = {
        "max_batch": 1,
        "retry": Retry(attempts=50, wait_initial=1.0),
        "on_error": lambda batch, _: failed.extend(batch),
    }
    async with queue_of(merging(then, every=3600, at_most=2), **settings) as queue:
        await queue.produce_many([A, B, ("c", 1)])
        await asyncio.sleep(5)
        assert queue.stats().in_flight == 1
        then.is_down = False
        await queue.flush()
    assert failed == []
    assert then.total == {"a": 1, "b": 1, "c": 1}


@pytest.mark.parametrize("arrivals", [0.25, 10.0])
async def test_beyond_its_number_pauses_ask_once_a_second(arrivals: float) -> None:
    """Each pause did, some twenty of them a second, and more where batches failed."""
    then = Down(is_down=True)
    failed: list[Count] = []
    settings = {"on_error": lambda batch, _: failed.extend(batch)}
    async with queue_of(merging(then, every=60, at_most=1), **settings) as queue:
        await queue.produce(A)
        for _ in range(int(10 / arrivals)):
            await asyncio.sleep(arrivals)
            await queue.produce(B)
        # Each batch that comes asks by itself, and counts as having asked.
        assert then.calls >= 8
        assert then.calls - len(failed) <= 11
        then.is_down = False
        await asyncio.sleep(1.1)
        assert then.total["a"] == 1


async def test_a_merge_that_raises_merges_nothing_of_its_batch() -> None:
    then = Down()

    def refusing(old: Count, new: Count) -> Count:
        if new[1] < 0:
            raise ValueError(new)
        return added(old, new)

    handler = Merging[Count](key=itemgetter(0), merge=refusing, then=then, every=3600)
    async with queue_of(handler, on_error=lambda *_: None) as queue:
        await queue.produce_many([A, A])
        await asyncio.sleep(1)
        await queue.produce_many([A, B, ("a", -1)])
        await asyncio.sleep(1)
        assert queue.stats().failed == 3
    assert then.total == {"a": 2}


@pytest.mark.parametrize("is_held", [False, True])
async def test_a_merge_that_returns_nothing_loses_nothing(*, is_held: bool) -> None:
    """None stood for both items, and they counted as handled."""
    handed: list[dict[str, int]] = []
    told: list[tuple[list[dict[str, int]], str]] = []
    update: Any = dict.update
    handler = Merging[dict[str, int]](
        key=len, merge=update, then=handed.extend, every=3600
    )
    config = BatchQueueConfig[dict[str, int]](
        consumer=handler, on_error=lambda batch, why: told.append((batch, str(why)))
    )
    first, second = {"page": 1}, {"page": 2}
    async with BatchQueue("views", config) as queue:
        await queue.produce(first)
        if is_held:
            await asyncio.sleep(1)
        await queue.produce(second)
        await asyncio.sleep(1)
    ((batch, why),) = told
    assert batch == ([second] if is_held else [first, second])
    assert why == "what merge returns must be what stands for both items, got None"
    assert handed == ([first] if is_held else [])
    assert check_settled(queue).failed == len(batch)


async def test_none_may_be_merged_where_it_is_an_item() -> None:
    handed: list[int | None] = []
    handler = Merging[int | None](
        key=lambda _: 0, merge=lambda _, new: new, then=handed.extend
    )
    async with BatchQueue("q", BatchQueueConfig(consumer=handler)) as queue:
        await queue.produce_many([1, None])
    assert handed == [None]
    assert check_settled(queue).handled == 2


async def test_what_was_kept_is_not_lost_by_a_merge_that_returns_nothing() -> None:
    """The newer item's batch is handled: it goes on beside the older one."""
    then = Down(is_down=True)
    then.gate.clear()
    merging = Merging[Any](key=itemgetter(0), merge=lambda _, __: None, then=then)
    await merging.consume([("a", 1)])
    handing_on = asyncio.create_task(merging.on_flush())
    await asyncio.sleep(0)
    await merging.consume([("a", 2)])
    then.gate.set()
    with pytest.raises(TypeError, match="what merge returns"):
        await handing_on
    then.is_down = False
    await merging.on_close()
    assert then.batches == [[("a", 1), ("a", 2)]]


async def test_a_deadline_in_the_middle_keeps_what_is_not_handed_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    then = Down()
    then.gate.clear()
    handler = merging(then, every=3600)
    config = BatchQueueConfig[Count](consumer=handler)
    queue = BatchQueue("counts", config)
    await queue.start()
    await queue.produce_many([A, B])
    await asyncio.sleep(1)
    assert await queue.shutdown(timeout=1) == []
    assert handler.held == 2
    assert queue.stats().not_closed
    assert "2 merged items were not handed on: they are lost" in caplog.text


async def test_a_queue_that_takes_a_part_gets_only_the_rest_again() -> None:
    """Over several partitions, so that the accepted are no prefix."""
    got: list[Count] = []
    gate = asyncio.Event()

    async def take(batch: list[Count]) -> None:
        await gate.wait()
        got.extend(batch)

    config = BatchQueueConfig[Count](
        consumer=take,
        buffer_size=1,
        partitions=PartitionPolicy.fixed(3),
        selector=round_robin,
        when_full=WhenFull.DROP_NEWEST,
    )
    async with BatchQueue("next", config) as then:
        handler = merging(then, every=3600)
        async with queue_of(handler) as queue:
            await queue.produce_many([(f"{n}", 1) for n in range(20)])
            with pytest.raises(DeliveryError):
                await queue.flush()
            held = handler.held
            assert 0 < held < 20
            await queue.produce(("19", 1))
            await asyncio.sleep(1)
            assert handler.held == held
            gate.set()
            while handler.held:
                await asyncio.sleep(1)
                await queue.produce(("0", 0))
                try:
                    await queue.flush()
                except DeliveryError:
                    continue
    totals: Counter[str] = Counter()
    for key, count in got:
        totals[key] += count
    assert totals == {**{f"{n}": 1 for n in range(19)}, "19": 2}


async def test_several_drain_tasks_may_enter_it() -> None:
    then = Down()
    settings: dict[str, Any] = {
        "drain_tasks": DrainTaskPolicy.fixed(3),
        "partitions": PartitionPolicy.fixed(6),
        "selector": round_robin,
        "max_batch": 5,
    }
    async with queue_of(merging(then, every=0.01, at_most=4), **settings) as queue:
        for number in range(300):
            then.is_down = number % 7 == 0
            await queue.produce((f"{number % 10}", 1))
            if number % 3 == 0:
                await asyncio.sleep(0.004)
        then.is_down = False
        await asyncio.sleep(5)
    stats = check_settled(queue)
    assert sum(then.total.values()) == stats.handled == 300 - stats.failed


async def test_a_merge_that_raises_for_what_was_kept_loses_nothing() -> None:
    """Of several drain tasks one has merged more while `then` was being refused."""
    then = Down(is_down=True)
    then.gate.clear()

    def refuses(old: Count, new: Count) -> Count:
        if new[1] < 0:
            raise ValueError(new)
        return added(old, new)

    merging = Merging[Count](key=itemgetter(0), merge=refuses, then=then)
    await merging.consume([("a", 1), ("b", 1)])
    handing_on = asyncio.create_task(merging.on_flush())
    await asyncio.sleep(0)
    await merging.consume([("a", -1), ("b", 2), ("c", 3)])
    then.gate.set()
    with pytest.raises(ValueError, match="-1") as raised:
        await handing_on
    assert isinstance(raised.value.__context__, OSError)
    then.is_down = False
    await merging.on_close()
    assert then.batches == [[("a", 1), ("b", 3), ("a", -1), ("c", 3)]]


async def test_a_closed_queue_is_an_error_and_nothing_is_lost_in_silence() -> None:
    then = BatchQueue("next", BatchQueueConfig[Count](consumer=print))
    await then.start()
    await then.shutdown()
    handler = merging(then, every=3600)
    async with queue_of(handler) as queue:
        await queue.produce(A)
        with pytest.raises(DeliveryError, match="queue 'next' refuses"):
            await queue.flush()
    assert handler.held == 1
    assert queue.stats().not_closed
    assert issubclass(DeliveryError, BatchQueueError)


def generates(batch: list[Count]) -> Iterator[Count]:
    yield from batch


class Counts:
    """Is called with what was merged; its class is called with a name."""

    def __init__(self, name: str) -> None: ...

    def __call__(self, batch: list[Count]) -> None: ...


async def test_what_nobody_has_run_is_not_handed_on() -> None:
    """A stray `yield`, behind what can't be looked into; an `await` too few."""

    async def forgets_await(batch: list[Count]) -> object:
        return Down()(batch)

    thens = {
        "then must be no generator function": lambda batch: generates(batch),  # noqa: PLW0108
        "must await what it calls, got the coroutine Down": forgets_await,
    }
    for why, then in thens.items():
        handler = merging(then, every=3600)
        async with queue_of(handler) as queue:
            await queue.produce(A)
            with pytest.raises(DeliveryError, match=why):
                await queue.flush()
            assert handler.held == 1


@pytest.mark.parametrize(
    "change, message",
    [
        ({"key": "name"}, "key must be callable.*, got 'name'"),
        ({"merge": None}, "merge must be callable.*, got None"),
        ({"then": []}, "then must be a BatchQueue or callable"),
        ({"then": generates}, "then must be no generator function, got the function"),
        ({"then": lambda: None}, "then must be callable with one argument, the batch"),
        ({"then": Counts}, "then must be a handler, not its class, got <class"),
        ({"every": 0}, "every must be > 0, got 0"),
        ({"at_most": 0}, "at_most must be >= 1, got 0"),
        ({"at_most": 1.5}, "at_most must be an int, got 1.5"),
    ],
)
def test_wrong_arguments(change: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"key": len, "merge": max, "then": print, **change}
    with pytest.raises((TypeError, ValueError), match=message):
        Merging(**arguments)
