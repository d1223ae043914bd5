"""A1, B1: what strikes where waiting producers are served doubles and loses nothing.

A drain task places the chunks of those who wait as it takes; kinds that cannot take an
item back have producers place their own. Whoever is struck there, each item is given to
the handler once, and each producer knows how many of his are in. One that is cancelled
may be struck as it leaves, and holds nobody up.
"""

import asyncio
import contextlib
import logging
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from types import FrameType

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    PartitionPolicy,
    fair_by,
    round_robin,
)
from batchqueue_async.testing import VirtualTimeLoop
from tests.bridge.interruptions import Interruption
from tests.support.oracle import check_settled
from tests.support.thorough import IS_THOROUGH

PRODUCERS, EACH = 3, 5
MOST_POINTS = 4_000

_PLAIN = BatchQueueConfig[int](
    max_batch=2,
    buffer_size=2,
    drain_tasks=DrainTaskPolicy.fixed(2),
    partitions=PartitionPolicy.fixed(2),
    selector=round_robin,
)
KINDS = {
    "plain": _PLAIN,
    "audited": replace(_PLAIN, audit=True),
    "threads": replace(_PLAIN, threads=True),
    "lingering": replace(_PLAIN, linger=0.05),
    "fair": replace(_PLAIN, selector=fair_by(lambda item: item % 2)),
    "sized": replace(_PLAIN, size_of=lambda item: 1 + item % 3, buffer_bytes=8.0),
}
MANY_POINTS = {"fair", "sized"}

PLACES = {"serve_line", "offer_in_turn", "leave_line", "offer", "on_cancelled"}
"""Methods of a partition in which it strikes, and in what they call."""


class Struck(Exception):
    """As from a SIGALRM's handler."""


# It may strike between a coroutine's being made and being awaited, as in any program.
pytestmark = [
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def is_serving(task: str) -> bool:
    """Whether a task whose name begins so is at work on a partition's line."""
    current = asyncio.current_task()
    if current is None or not current.get_name().startswith(task):
        return False
    frame: FrameType | None = sys._getframe(1)
    while frame and frame.f_code.co_name not in PLACES:
        frame = frame.f_back
    return frame is not None


class Served:
    """One queue with producers that wait, struck once."""

    def __init__(
        self, config: BatchQueueConfig[int], *, are_cancelled: bool = False
    ) -> None:
        self.are_cancelled = are_cancelled
        self.seen: Counter[int] = Counter()
        self.accepted: dict[int, int] = {}
        self.queue = BatchQueue("q", replace(config, consumer=self.consume))

    async def consume(self, batch: list[int]) -> None:
        self.seen.update(batch)
        if self.are_cancelled and len(self.seen) > PRODUCERS:
            # The take has just placed items of some of them, who have not run since.
            self.are_cancelled = False
            for producer in self.producers[::2]:
                producer.cancel()
        await asyncio.sleep(0.01)

    async def produce(self, number: int) -> None:
        items = range(number * 1_000, number * 1_000 + EACH)
        try:
            self.accepted[number] = await self.queue.produce_many(items)
        except Struck as error:
            self.accepted[number] = error.accepted  # type: ignore[attr-defined]

    async def produce_singly(self, number: int) -> None:
        self.accepted[number] = 0
        try:
            for item in range(number * 1_000, number * 1_000 + EACH):
                self.accepted[number] += await self.queue.produce(item)
        except (Struck, asyncio.CancelledError) as error:
            self.accepted[number] += getattr(error, "accepted", 0)

    async def feed(self) -> None:
        produce = self.produce_singly if self.are_cancelled else self.produce
        self.producers = [
            asyncio.create_task(produce(number), name=f"producer {number}")
            for number in range(PRODUCERS)
        ]
        await asyncio.sleep(5.0)

    def check(self) -> None:
        assert max(self.seen.values()) == 1, "delivered twice"
        own = Counter(item // 1_000 for item in self.seen)
        assert own == Counter({**self.accepted, PRODUCERS: 4})
        assert check_settled(self.queue).handled == self.seen.total()
        assert self.queue.stats().unaccounted == 0


def strike_at(at: int, served: Served, task: str) -> bool:
    """Strike at a point where this task serves; returns whether there was one."""

    def strike() -> None:
        raise Struck

    with contextlib.closing(VirtualTimeLoop()) as loop:
        run = loop.run_until_complete
        run(served.queue.start())
        point = Interruption(at, strike, lambda: is_serving(task), at_entries=True)
        with point:
            run(served.feed())
        try:
            run(asyncio.sleep(20.0))
            later = range(PRODUCERS * 1_000, PRODUCERS * 1_000 + 4)
            assert run(asyncio.wait_for(served.queue.produce_many(later), 50.0)) == 4
            assert run(served.queue.shutdown(100.0)) == []
            served.check()
        except BaseException as error:
            error.add_note(f"struck at point {at}, {point.where}")
            raise
    return point.has_acted


@pytest.mark.parametrize(
    "task", ["q: ", pytest.param("producer", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_struck_as_it_serves_is_in_once(kind: str, task: str) -> None:
    # A short run strikes at some points only.
    step = 67 if kind in MANY_POINTS else 7
    if IS_THOROUGH:
        step = 3 if kind in MANY_POINTS else 1
    struck = 0
    for at in range(0, MOST_POINTS, step):
        if not strike_at(at, Served(KINDS[kind]), task):
            break
        struck += 1
    assert struck


@pytest.mark.parametrize("kind", KINDS)
def test_who_is_cancelled_and_struck_as_he_leaves_holds_nobody_up(kind: str) -> None:
    step = 1 if IS_THOROUGH else 17 if kind in MANY_POINTS else 5
    struck = 0
    for at in range(0, MOST_POINTS, step):
        if not strike_at(at, Served(KINDS[kind], are_cancelled=True), "producer"):
            break
        struck += 1
    assert struck
