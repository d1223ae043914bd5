"""C5: a signal handler that raises in the middle of a change leaves the room right."""

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from types import FrameType
from typing import Any

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig
from batchqueue_async._engine.partitions.byte_budget import ByteBudget, Measured
from batchqueue_async._engine.partitions.sized_partition import SizedPartition
from batchqueue_async.testing import VirtualTimeLoop
from tests.bridge.interruptions import Interruption
from tests.support.striking import Struck
from tests.support.struck_queue import (
    KINDS,
    OUTCOMES,
    Kind,
    StruckQueue,
    is_in_drain_task,
)

SIZED = [kind for kind in KINDS if kind.name in {"sized", "sized rolling"}]
POINTS = 40
"""All of the first take."""
NEVER = sys.maxsize
pytestmark = [
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def is_in_take() -> bool:
    """Whether a drain task takes from a partition."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code.co_name == "take" and "partitions" in frame.f_code.co_filename:
            return is_in_drain_task()
    return False


def check_room(queue: StruckQueue) -> None:
    budget = queue.queue._parts.byte_budget
    assert budget is not None
    assert (budget.waiting, budget.reserved, budget.in_hands) == (0, 0, 0)


@pytest.mark.parametrize("kind", SIZED, ids=lambda kind: kind.name)
def test_items_and_their_sizes_leave_together(kind: Kind) -> None:
    for at in range(POINTS):
        queue = StruckQueue(kind, OUTCOMES[0], Struck)
        if not queue.run(at, runs_in=is_in_take).has_acted:
            break
        check_room(queue)
    assert at > 10


def test_sums_of_fractions_change_together(monkeypatch: pytest.MonkeyPatch) -> None:
    left = NEVER

    def strikes_in(method: Callable[..., Any]) -> Callable[..., Any]:
        def struck(*operands: Any) -> Any:  # noqa: ANN401 - as its own
            nonlocal left
            left -= is_in_drain_task()
            if left == 0:
                raise Struck
            return method(*operands)

        return struck

    for name in ("__add__", "__radd__", "__sub__", "__rsub__"):
        monkeypatch.setattr(Fraction, name, strikes_in(getattr(Fraction, name)))
    rolling = next(kind for kind in SIZED if kind.name == "sized rolling")
    for at in range(1, NEVER):
        queue, left = StruckQueue(rolling, OUTCOMES[0], Struck), at
        queue.run(NEVER)
        if left > 0:
            break
        check_room(queue)
    assert at > 3


def test_what_is_in_counts_wherever_its_producer_is_struck() -> None:
    def strike() -> None:
        raise Struck

    for at in range(NEVER):
        parts: list[SizedPartition[Any]] = []
        budget = ByteBudget(BatchQueueConfig(size_of=len, buffer_bytes=4), parts)
        partition = SizedPartition[str](budget, 0, 9, 9)
        parts.append(partition)
        partition.open()
        point = Interruption(at, strike, at_entries=True)
        with suppress(Struck), point:
            partition.offer(Measured(["ab"], [2]))
        waits = 2 * len(partition.items)
        assert (partition.waiting_size, budget.waiting) == (waits, waits), point.where
        assert not budget.is_changing, point.where
        if not point.has_acted:
            break
    assert at > 5


@pytest.mark.parametrize("size", [pytest.param(1, marks=pytest.mark.slow), 1.5])
def test_a_producer_struck_as_his_slot_is_filled_holds_up_nobody(size: float) -> None:
    def strike() -> None:
        raise Struck

    async def produce_beside_another(point: Interruption) -> None:
        config = BatchQueueConfig[int](
            consumer=waits, size_of=lambda _: size, buffer_bytes=3, max_batch_bytes=3
        )
        queue = BatchQueue[int]("q", config)
        await queue.start()

        async def produce() -> None:
            for item in range(5):
                with suppress(Struck):
                    await queue.produce(item)

        with point:
            async with asyncio.timeout(100.0), asyncio.TaskGroup() as producers:
                producers.create_task(produce())
                producers.create_task(produce())
        await queue.flush()
        budget = queue._parts.byte_budget
        assert budget is not None
        assert (budget.waiting, budget.reserved, budget.in_hands) == (0, 0, 0), (
            point.where
        )
        await queue.shutdown(1.0)

    for at in range(NEVER):
        point = Interruption(at, strike, is_in_filled, at_entries=True)
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            runner.run(produce_beside_another(point))
        if not point.has_acted:
            break
    assert at > 5


async def waits(batch: list[int]) -> None:
    await asyncio.sleep(0.1)


def is_in_filled() -> bool:
    """Whether a line notes that a slot was filled."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "filled":
            return True
        frame = frame.f_back
    return False
