"""F5: a flush is a receipt, also for what was just taken as a signal handler raised."""

import asyncio
import contextlib

import pytest

from batchqueue_async import DeliveryError
from tests.support.from_turn import InterruptionFromTurn
from tests.support.oracle import check_settled
from tests.support.striking import OUT_OF_REACH, SWEEP, noting, strike
from tests.support.struck_queue import (
    KINDS,
    Kind,
    Outcome,
    StruckQueue,
    handles,
    is_in_drain_task,
)
from tests.support.thorough import IS_THOROUGH

MOST_POINTS = 2_000
STEP = 1 if IS_THOROUGH else 9

pytestmark = [*SWEEP, pytest.mark.filterwarnings("ignore::ResourceWarning")]


async def work_for_a_moment(_: StruckQueue) -> None:
    """Shorter than a drain task rests before it goes on."""
    await asyncio.sleep(0.2)


async def flush(struck: StruckQueue) -> None:
    for item in struck.kind.items[:3]:
        struck.accepted.append(item)
        assert struck.queue.offer(item)
    with contextlib.suppress(DeliveryError):
        await struck.queue.flush(timeout=100.0)
    check_settled(struck.queue)
    assert struck.queue.stats().accepted == len(struck.accepted)


def struck_at(point: int, kind: Kind, points: list[int]) -> bool:
    """Strike a drain task, and flush at once; returns whether it was struck."""
    struck = StruckQueue(kind, Outcome(handles))
    with contextlib.closing(struck.loop):
        struck.drive(struck.queue.start())
        struck.drive(asyncio.sleep(1.0))
        interruption = InterruptionFromTurn(
            point, strike, is_in_drain_task, struck.loop, points
        )
        with interruption:
            struck.drive(struck.put_before(work_for_a_moment))
        if OUT_OF_REACH not in (interruption.where or ""):
            with noting(f"point {point}, {interruption.where}"):
                struck.drive(flush(struck))
                struck.drive(struck.queue.close())
    return interruption.has_acted


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_flush_covers_what_was_taken_as_it_was_struck(kind: Kind) -> None:
    points: list[int] = []
    for point in range(KINDS.index(kind) % STEP, MOST_POINTS, STEP):
        if not struck_at(point, kind, points):
            return
    pytest.fail("it never came to an end")
