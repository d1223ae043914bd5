"""A sweep that begins to trace late strikes the same points."""

import contextlib

import pytest

from tests.bridge.interruptions import Interruption
from tests.support.from_turn import InterruptionFromTurn
from tests.support.striking import SWEEP, strike
from tests.support.struck_queue import (
    KINDS,
    OUTCOMES,
    Kind,
    StruckQueue,
    fill,
    is_in_drain_task,
)

MOST_POINTS = 5_000
STEP = 13
pytestmark = [*SWEEP, pytest.mark.filterwarnings("ignore::ResourceWarning")]


def struck_at(point: int, kind: Kind, points: list[int] | None) -> str | None:
    """Return where a drain task is struck; `points` is what a sweep's runs share."""
    struck = StruckQueue(kind, OUTCOMES[0])
    interruption: Interruption
    if points is None:
        interruption = Interruption(point, strike, is_in_drain_task, at_entries=True)
    else:
        interruption = InterruptionFromTurn(
            point, strike, is_in_drain_task, struck.loop, points
        )
    with contextlib.closing(struck.loop):
        struck.drive(struck.queue.start())
        with interruption:
            struck.drive(struck.put_before(fill))
        struck.drive(struck.queue.close())
    return interruption.where


@pytest.mark.parametrize("kind", [KINDS[0], KINDS[6]], ids=lambda kind: kind.name)
def test_the_points_are_the_same(kind: Kind) -> None:
    points: list[int] = []
    for point in range(0, MOST_POINTS, STEP):
        where = struck_at(point, kind, None)
        assert struck_at(point, kind, points) == where, point
        if where is None:
            break
    assert point > 10 * STEP
    assert points[0] == 0 < points[-1] <= point
    assert points == sorted(points)
