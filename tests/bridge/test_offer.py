"""`offer`: one verb on the loop, on threads, and in the middle of anything."""

import asyncio
import gc
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueError,
    DrainTaskPolicy,
    LoopThread,
    Offer,
    PartitionPolicy,
    SyncBatchQueue,
    WhenFull,
    by_key,
    round_robin,
)
from tests.bridge.background import answer_of, answers, in_background, until
from tests.bridge.gated import Gated, stall
from tests.bridge.interruptions import Interruption, ctrl_c
from tests.support.oracle import check_accounts, check_settled

MOST_POINTS = 600


def test_only_what_was_accepted_is_true() -> None:
    assert [bool(each) for each in Offer] == [True, False, False]
    assert repr(Offer.FULL) == "Offer.FULL"


async def test_on_the_loop_it_never_waits_and_says_why() -> None:
    batches: list[list[int]] = []
    config = BatchQueueConfig[int](consumer=batches.append, buffer_size=2)
    queue = BatchQueue("q", config)
    with pytest.raises(BatchQueueError, match="not started"):
        queue.offer(0)
    async with queue:
        answers = [queue.offer(item) for item in range(3)]
        assert answers == [Offer.ACCEPTED, Offer.ACCEPTED, Offer.FULL]
        await asyncio.sleep(1)
        assert batches == [[0, 1]]
    assert queue.offer(3) is Offer.CLOSED
    stats = check_settled(queue)
    assert (stats.accepted, stats.rejected) == (2, 2)
    assert queue.stats().rejected_closed == 1


async def test_it_wakes_an_idle_queue_and_ends_a_linger_that_is_due() -> None:
    times: list[float] = []
    loop = asyncio.get_running_loop()
    config = BatchQueueConfig[int](
        consumer=lambda _: times.append(loop.time()), max_batch=3, linger=10
    )
    async with BatchQueue("q", config) as queue:
        await asyncio.sleep(100)
        begun = loop.time()
        for item in range(3):
            assert queue.offer(item)
        await asyncio.sleep(0)
        assert queue.offer(3)
        await asyncio.sleep(20)
    assert [round(each - begun, 1) for each in times] == [0, 10]


async def test_it_displaces_the_oldest_where_that_is_the_policy() -> None:
    batches: list[list[int]] = []
    config = BatchQueueConfig[int](
        consumer=batches.append, buffer_size=2, when_full=WhenFull.DROP_OLDEST
    )
    async with BatchQueue("q", config) as queue:
        assert all(queue.offer(item) for item in range(5))
    assert batches == [[3, 4]]
    assert check_settled(queue).dropped == 3


async def test_nobody_is_overtaken() -> None:
    gate = asyncio.Event()

    async def consume(_: list[int]) -> None:
        await gate.wait()

    config = BatchQueueConfig[int](consumer=consume, buffer_size=1)
    async with BatchQueue("q", config) as queue:
        await queue.produce(0)
        await asyncio.sleep(1)
        await queue.produce(1)
        waiting = asyncio.create_task(queue.produce(2))
        await asyncio.sleep(1)
        assert queue.offer(3) is Offer.FULL
        gate.set()
        assert await waiting
    assert check_settled(queue).handled == 3


@pytest.mark.real_time
async def test_other_threads_need_a_bridge() -> None:
    handler = Gated()
    async with BatchQueue("q", BatchQueueConfig[int](consumer=handler)) as queue:
        with pytest.raises(BatchQueueError, match="SyncBatchQueue"):
            await answer_of(in_background(queue.offer, 0))
        bridge = SyncBatchQueue(queue)
        assert await answer_of(in_background(queue.offer, 1))
        assert await answer_of(in_background(bridge.offer, 2))
        assert bridge.offer(3)
        await until(lambda: len(handler.handled) == 3)
    assert await answer_of(in_background(queue.offer, 4)) is Offer.CLOSED
    assert check_settled(queue).accepted == 3


@pytest.mark.real_time
async def test_a_queue_may_be_open_to_threads_from_its_start_on() -> None:
    handler = Gated()
    config = BatchQueueConfig[int](consumer=handler, threads=True)
    async with BatchQueue("q", config) as queue:
        assert await answer_of(in_background(queue.offer, 1))
        await until(lambda: handler.handled == [1])
        assert SyncBatchQueue(queue).offer(2)
    check_settled(queue)


def test_threads_is_a_bool() -> None:
    with pytest.raises(TypeError, match="threads must be a bool, got 1"):
        BatchQueueConfig(threads=1)  # type: ignore[arg-type]


def test_from_threads_it_says_full_or_closed(loop_thread: LoopThread) -> None:
    stalled = stall(loop_thread)
    assert stalled.sync_queue.offer(9) is Offer.FULL
    stalled.release()
    assert stalled.sync_queue.shutdown(10) == []
    assert stalled.sync_queue.offer(9) is Offer.CLOSED
    assert check_settled(stalled.sync_queue).rejected == 2


def test_a_loop_that_is_gone_is_closed() -> None:
    loop = asyncio.new_event_loop()
    config = BatchQueueConfig[int](consumer=print, threads=True)
    queue = BatchQueue("q", config)
    loop.run_until_complete(queue.start())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        loop.close()
        assert queue.offer(1) is Offer.CLOSED
        # Now, and not where that warning would be an error.
        del loop, queue
        gc.collect()


def test_threads_and_handlers_offer_what_is_handled(loop_thread: LoopThread) -> None:
    seen: list[int] = []
    by_handler: list[bool] = []

    async def consume(batch: list[int]) -> None:
        seen.extend(batch)
        if batch[0] >= 0:
            # On the loop's own thread both are the same.
            by_handler.append(bool(queue.offer(-1)))
            by_handler.append(queue.produce(-1, timeout=0))

    queue = loop_thread.open(
        "q", BatchQueueConfig[int](consumer=consume, buffer_size=9)
    )

    def offer_many() -> int:
        return sum(bool(queue.offer(item)) for item in range(3000))

    accepted = sum(answers([in_background(offer_many) for _ in range(4)]))
    assert queue.shutdown(10) == []
    stats = check_settled(queue)
    assert stats.handled == len(seen) == accepted + sum(by_handler)
    assert stats.accepted + stats.rejected == 4 * 3000 + len(by_handler)


@pytest.mark.real_time
async def test_a_signal_handler_wakes_the_loop_out_of_its_selector() -> None:
    """Python calls it there and goes on to sleep; nothing else would wake the loop."""
    handler = Gated()
    offered: list[Offer] = []
    async with BatchQueue("q", BatchQueueConfig[int](consumer=handler)) as queue:
        before = signal.signal(
            signal.SIGUSR1, lambda *_: offered.append(queue.offer(len(offered)))
        )
        try:
            for count in range(1, 4):
                threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
                # No timer but a late one: a poll would hide what is lost.
                assert await asyncio.to_thread(handler.entered.wait, 15)
                handler.entered.clear()
                assert len(handler.handled) == count
        finally:
            signal.signal(signal.SIGUSR1, before)
    assert offered == [Offer.ACCEPTED] * 3


Verb = Callable[[BatchQueue[int]], object]
VERBS: dict[str, Verb] = {
    "offer twice": lambda queue: (queue.offer(2), queue.offer(4)),
    "produce_nowait": lambda queue: queue.produce_nowait(2),
}
verbs = pytest.mark.parametrize(
    "verb", [pytest.param(v, id=k) for k, v in VERBS.items()]
)


def configs() -> Iterator[Any]:
    for when_full in (WhenFull.WAIT, WhenFull.DROP_OLDEST):
        for threads in (False, True):
            name = f"{when_full.value}{', threads' if threads else ''}"
            yield pytest.param((when_full, threads), id=name)


@verbs
@pytest.mark.parametrize("kind", list(configs()))
async def test_offers_in_the_middle_of_anything_are_handled(
    kind: tuple[WhenFull, bool], verb: Verb
) -> None:
    """At each point where a signal handler may run, until all is quiet again."""
    for at in range(MOST_POINTS):
        handled: list[int] = []
        config = BatchQueueConfig[int](
            consumer=handled.extend,
            buffer_size=2,
            when_full=kind[0],
            threads=kind[1],
            # What comes in between is for the other drain task.
            drain_tasks=DrainTaskPolicy.fixed(2),
            partitions=PartitionPolicy.fixed(2),
            selector=by_key(lambda item: item),
        )
        async with BatchQueue("q", config) as queue:
            await asyncio.sleep(10)
            accepted: list[Offer] = []
            with Interruption(at, lambda: accepted.append(queue.offer(9))) as strike:  # noqa: B023
                verb(queue)
                # No flush: it would find what nobody was told of.
                await asyncio.sleep(10)
            await asyncio.sleep(10)
            stats = check_accounts(queue)
            assert stats.waiting == stats.in_flight == 0, strike.where
            assert len(handled) + stats.dropped == stats.accepted, strike.where
            assert handled.count(9) + stats.dropped >= sum(map(bool, accepted))
        if not strike.has_acted:
            assert at > 20
            return
    pytest.fail("the sweep does not end")


@pytest.mark.parametrize("threads", [False, True])
@pytest.mark.filterwarnings("ignore:selector=by_key")
@pytest.mark.parametrize("selector", [round_robin, by_key(lambda item: item)])
async def test_an_exception_in_the_middle_loses_nothing(
    selector: Any,  # noqa: ANN401
    *,
    threads: bool,
) -> None:
    for at in range(MOST_POINTS):
        handled: list[int] = []
        config = BatchQueueConfig[int](
            consumer=handled.extend, selector=selector, threads=threads
        )
        async with BatchQueue("q", config) as queue:
            await asyncio.sleep(10)
            try:
                with Interruption(at, ctrl_c) as strike:
                    queue.offer(1)
            except KeyboardInterrupt:
                pass
            await asyncio.sleep(10)
            assert check_settled(queue).accepted == len(handled) <= 1, strike.where
            assert queue.offer(2)
            await asyncio.sleep(10)
            assert handled[-1] == 2, strike.where
        if not strike.has_acted:
            assert at > 5
            return
    pytest.fail("the sweep does not end")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_is_refused(loop_thread: LoopThread) -> None:
    queue = loop_thread.open("q", BatchQueueConfig[int](consumer=lambda _: None))
    child = os.fork()
    if not child:
        try:
            queue.offer(1)
        except BatchQueueError as error:
            os._exit(7 if "parent" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert queue.offer(1)
