"""`fair_by`: each key's items in order, whatever fails and however it is declared."""

import asyncio
from collections import defaultdict

import hypothesis.strategies as st
from hypothesis import given, settings

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    PartitionPolicy,
    Retry,
    fair_by,
)
from batchqueue_async.testing import VirtualTimeLoop
from tests.engine.failing_items import FailingItems, Item, assert_in_order
from tests.support.oracle import check_accounts, check_settled
from tests.support.thorough import examples


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_order_per_key_whatever_fails(data: st.DataObject) -> None:
    """B1, A1: everything once, each key's items in order."""
    keys = st.sampled_from("abcd")
    chunks = data.draw(st.lists(st.lists(keys, max_size=12), max_size=8))
    numbers: defaultdict[str, int] = defaultdict(int)
    items: list[list[Item]] = []
    for chunk in chunks:
        items.append([])
        for key in chunk:
            items[-1].append((key, numbers[key]))
            numbers[key] += 1
    every = [item for chunk in items for item in chunk]
    bad = data.draw(
        st.dictionaries(st.sampled_from(every), st.integers(1, 3))
        if every
        else st.just({})
    )
    partitions = data.draw(st.integers(1, 3))
    config = BatchQueueConfig[Item](
        consumer=(sink := FailingItems(dict(bad))),
        selector=fair_by(lambda item: item[0], quantum=data.draw(st.integers(1, 5))),
        buffer_size=data.draw(st.integers(1, 6)),
        max_batch=data.draw(st.none() | st.integers(1, 7)),
        linger=data.draw(st.sampled_from([0.0, 0.01])),
        partitions=PartitionPolicy.fixed(partitions),
        drain_tasks=DrainTaskPolicy.fixed(data.draw(st.integers(1, partitions))),
        retry=Retry(attempts=500, wait_initial=0.0),
    )

    async def run() -> None:
        async with BatchQueue("q", config) as queue:
            for chunk in items:
                assert await queue.produce_many(chunk) == len(chunk)
                check_accounts(queue)
                if data.draw(st.booleans()):
                    await queue.flush()
                    accepted = queue.stats().accepted
                    assert queue.stats().handled == accepted
        check_settled(queue)

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(run())
    assert sorted(sink.stored) == sorted(every)
    assert_in_order(sink.stored)
