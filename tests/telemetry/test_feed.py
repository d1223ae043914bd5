"""What a live view is told: rates, events, and no more than it can show."""

import asyncio
import json
import time

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueManager,
    DrainTaskPolicy,
    PartitionPolicy,
    Rebalancing,
    Retry,
    RetryAfter,
    WhenFull,
)
from batchqueue_async.telemetry._feed import Feed


class Clock:
    """Stands in for `time.monotonic`: rates are exact."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


async def test_rates_are_what_has_come_since_the_sample_before(clock: Clock) -> None:
    async with BatchQueue("q", BatchQueueConfig[int](consumer=lambda _: None)) as queue:
        feed = Feed(queue)
        assert feed.sample()["queues"][0]["rates"]["accepted"] == 0
        await queue.produce_many(range(30))
        await queue.flush()
        clock.now += 2
        (shown,) = feed.sample()["queues"]
        assert shown["rates"]["accepted"] == shown["rates"]["handled"] == 15
        assert (shown["accepted"], shown["handled"]) == (30, 30)
        assert [len(each["queues"]) for each in feed.history()] == [1, 1]


async def test_how_long_the_oldest_item_has_waited_is_told() -> None:
    go_on = asyncio.Event()

    async def wait(_: list[int]) -> None:
        await go_on.wait()

    async with BatchQueue("q", BatchQueueConfig[int](consumer=wait)) as queue:
        feed = Feed(queue)
        assert feed.sample()["queues"][0]["oldest_age"] == 0
        for number in range(2):  # one in the handler, one behind it
            await queue.produce(number)
            await asyncio.sleep(0.05)
        assert 0 < feed.sample(now=True)["queues"][0]["oldest_age"] < 5
        go_on.set()


async def test_many_viewers_share_a_sample(clock: Clock) -> None:
    async with BatchQueue("q", BatchQueueConfig[int](consumer=lambda _: None)) as queue:
        feed = Feed(queue, interval=1.0)
        first = feed.sample()
        clock.now += 0.5
        assert feed.sample() is first
        clock.now += 0.5
        assert feed.sample() is not first


async def test_what_goes_wrong_is_an_event_once(clock: Clock) -> None:
    async def slow(_: list[int]) -> None:
        await asyncio.sleep(3600)

    config = BatchQueueConfig[int](
        consumer=slow,
        buffer_size=5,
        when_full=WhenFull.DROP_OLDEST,
        shutdown_timeout=0.0,
        on_error=lambda *_: None,
    )
    async with BatchQueue("q", config) as queue:
        feed = Feed(queue)
        assert feed.sample()["events"] == []
        await queue.produce_many(range(12))
        clock.now += 1
        (event,) = feed.sample()["events"]
        assert (event["queue"], event["kind"], event["text"]) == (
            "q",
            "dropped",
            "7 dropped",
        )
        clock.now += 1
        assert len(feed.sample()["events"]) == 1


async def test_ten_thousand_partitions_are_a_short_line(clock: Clock) -> None:
    del clock
    count = 10_000
    config = BatchQueueConfig[int](
        consumer=lambda _: None,
        partitions=PartitionPolicy.fixed(count),
        buffer_size=10,
        selector=lambda item, partitions: item % partitions,
    )
    async with BatchQueueManager() as manager:
        queue = await manager.create("large", config)
        for number in range(100):
            await manager.create(f"small {number}")
        await queue.produce_many([9_999] * 10)
        sample = Feed(manager).sample()
        assert sample["queue_count"] == 101
        shown = sample["queues"][0]
        assert shown["name"] == "large"
        assert shown["partition_count"] == count
        assert shown["fullest"][0][:3] == [9_999, 10, 10]
        # By its fullest, a full one among its neighbours is not averaged away.
        assert shown["cells"][-1][0] == 1.0
        assert len(json.dumps(sample)) < 100_000


async def test_an_idle_drain_task_s_infinite_ratio_travels_as_json(
    clock: Clock,
) -> None:
    config = BatchQueueConfig[int](
        consumer=lambda _: None,
        partitions=PartitionPolicy.fixed(2),
        drain_tasks=DrainTaskPolicy.fixed(2),
        rebalancing=Rebalancing(interval=1.0),
        selector=lambda _, partitions: 0 * partitions,
    )
    async with BatchQueue("q", config) as queue:
        feed = Feed(queue)
        await queue.produce_many(range(100))
        await asyncio.sleep(1.5)
        clock.now += 2
        sample = feed.sample()
    says = sample["queues"][0]["last_round"]
    assert says == "round 1 of rebalancing: 0 partitions moved, load ratio inf to inf"
    json.dumps(sample, allow_nan=False)


async def test_a_queue_that_ends_and_comes_again_has_no_negative_rate(
    clock: Clock,
) -> None:
    async with BatchQueueManager() as manager:
        config = BatchQueueConfig[int](consumer=lambda _: None)
        feed = Feed(manager)
        for count in (50, 20):
            queue = await manager.create("q", config)
            await queue.produce_many(range(count))
            await queue.flush()
            clock.now += 1
            assert feed.sample()["queues"][0]["rates"]["handled"] >= 0
            await manager.shutdown("q")
        clock.now += 1
        assert feed.sample()["queues"] == []


async def test_two_queues_of_one_name_are_told_apart(clock: Clock) -> None:
    config = BatchQueueConfig[int](consumer=lambda _: None)
    async with BatchQueue("q", config) as one, BatchQueue("q", config) as other:
        await one.produce_many(range(100))
        await one.flush()
        feed = Feed([one, other])
        feed.sample()
        for _ in range(3):
            clock.now += 1
            sample = feed.sample()
            assert [each["rates"]["handled"] for each in sample["queues"]] == [0, 0]
            assert sample["events"] == []


async def test_limits_that_were_found_are_shown_and_told(clock: Clock) -> None:
    refuses = False

    async def consume(batch: list[int]) -> None:
        await asyncio.sleep(0.001)
        if refuses:
            raise RetryAfter(0.001)

    config = BatchQueueConfig(
        consumer=consume, max_batch="auto", retry=Retry(attempts=3)
    )
    async with BatchQueue("q", config) as queue:
        feed = Feed(queue)
        (shown,) = feed.sample()["queues"]
        assert shown["handlers"][0]["limit"] == {
            "max_batch": 32,
            "reason": "start",
            "why": "nothing has been changed yet",
        }
        refuses = True
        queue.produce_nowait(1)
        await asyncio.sleep(1.0)
        clock.now += 2
        sample = feed.sample()
        (shown,) = sample["queues"]
        assert shown["handlers"][0]["limit"]["reason"] == "throttled"
        assert shown["handlers"][0]["limit"]["why"] == "the handler was asked to wait"
        assert any("throttled" in each["text"] for each in sample["events"])


async def test_queues_stay_where_they_are_while_the_fullest_are_shown(
    clock: Clock,
) -> None:
    config = BatchQueueConfig[int](consumer=lambda _: None, buffer_size=100)
    async with BatchQueueManager() as manager:
        queues = [await manager.create(f"q{n:02}", config) for n in range(61)]
        feed = Feed(manager)
        for full in (queues[7], queues[0], queues[60]):
            full_name = full.name
            await full.produce_many(range(90))
            clock.now += 1
            names = [each["name"] for each in feed.sample()["queues"]]
            assert full_name in names
            assert len(names) == 60
            assert names == sorted(names)
            await full.flush()


async def test_two_queues_of_one_name_have_a_key_each(clock: Clock) -> None:
    config = BatchQueueConfig[int](consumer=lambda _: None)
    async with BatchQueue("q", config) as one, BatchQueue("q", config) as other:
        feed = Feed([one, other])
        first = [each["key"] for each in feed.sample()["queues"]]
        clock.now += 1
        again = [each["key"] for each in feed.sample()["queues"]]
    assert len(set(first)) == 2
    assert first == again
    assert [each["key"] for each in feed.history()[0]["queues"]] == first


async def test_a_closed_queue_is_closed_and_not_blocked(clock: Clock) -> None:
    def one_by_one() -> BatchQueue[int]:
        return BatchQueue("q", BatchQueueConfig[int](consumer=lambda _: None))

    async def used() -> BatchQueue[int]:
        async with one_by_one() as queue:
            feeds[queue] = Feed(queue)
            feeds[queue].sample()
        return queue

    feeds: dict[BatchQueue[int], Feed] = {}
    queue = await asyncio.to_thread(asyncio.run, used())
    clock.now += 1
    # Its loop has ended with it, and answers nobody.
    sample = feeds[queue].sample()
    (shown,) = sample["queues"]
    assert (shown["state"], shown["blocked"]) == ("closed", False)
    assert sample["events"] == []
