"""B4, A2: a signal handler raises while a handler is replaced or removed."""

import contextlib
from typing import Any

import pytest

from batchqueue_async import BatchQueue
from tests.bridge.interruptions import Interruption, ctrl_c
from tests.support.oracle import check_settled

MOST_POINTS = 2_000


class Opened:
    """Knows whether it is open, and must not be called before or after that."""

    def __init__(self) -> None:
        self.handled: list[Any] = []
        self.opened = self.closed = 0

    def on_open(self) -> None:
        self.opened += 1

    def consume(self, batch: list[Any]) -> None:
        assert self.opened == self.closed + 1
        self.handled += batch

    def on_close(self) -> None:
        self.closed += 1


async def struck_at(point: int, *, is_replaced: bool, is_repeated: bool) -> bool:
    """Strike a change of handlers; returns whether it was struck."""
    old, new, other = Opened(), Opened(), Opened()

    def change() -> None:
        if is_replaced:
            queue.add_handler(int, new, max_batch=2)
        else:
            queue.remove_handler(int)

    async with BatchQueue[int]("q") as queue:
        queue.add_handler(object, other)
        queue.add_handler(int, old)
        await queue.produce(1)
        await queue.flush()
        strike = Interruption(point, ctrl_c, at_entries=True)
        with contextlib.suppress(KeyboardInterrupt), strike:
            change()
        if is_repeated:
            # As whoever has caught it would.
            change()
        await queue.produce(2)
        await queue.flush()
        last = new if is_replaced else other
        assert 2 in last.handled or (2 in old.handled and not is_repeated)
        if is_repeated:
            assert old.closed == 1
    for each in (old, new, other):
        assert each.opened == each.closed, f"struck at {strike.where}"
    assert queue.stats().failed == 0
    check_settled(queue)
    return strike.has_acted


@pytest.mark.parametrize("is_repeated", [True, False])
@pytest.mark.parametrize("is_replaced", [True, False])
async def test_each_handler_is_closed_and_items_go_to_one_that_is_open(
    *, is_replaced: bool, is_repeated: bool
) -> None:
    for point in range(MOST_POINTS):
        if not await struck_at(point, is_replaced=is_replaced, is_repeated=is_repeated):
            assert point > 10
            return
    pytest.fail("it never came to an end")
