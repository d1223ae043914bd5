"""A1, G1: a stack that ends anywhere inside of the bridge leaves no lock held."""

import sys
from collections.abc import Callable, Iterator

import pytest

from batchqueue_async import (
    BatchQueueConfig,
    LoopThread,
    PartitionPolicy,
    by_key,
    round_robin,
)
from tests.bridge.background import PATIENCE

DEEPEST = 45
"""More frames than one `produce` and its wake-up take."""


def depth() -> int:
    frame, count = sys._getframe(), 0
    while (caller := frame.f_back) is not None:
        frame, count = caller, count + 1
    return count


def at_depth(left: int, act: Callable[[], object]) -> object:
    return act() if left <= 0 else at_depth(left - 1, act)


@pytest.fixture
def loop_thread(patience: None) -> Iterator[LoopThread]:
    with LoopThread(shutdown_timeout=1.0) as running:
        yield running


@pytest.mark.filterwarnings("ignore:selector=by_key")
@pytest.mark.parametrize("selector", [round_robin, by_key(lambda number: number)])
def test_a_selector_that_finds_no_stack_leaves_the_guard_free(
    loop_thread: LoopThread,
    selector: Callable[[int, int], int],
) -> None:
    config = BatchQueueConfig[int](
        consumer=lambda _: None,
        partitions=PartitionPolicy.fixed(3),
        selector=selector,
    )
    queue = loop_thread.open("q", config)
    raised = 0
    for short_of in range(DEEPEST):
        room = sys.getrecursionlimit() - depth() - short_of
        try:
            at_depth(room, lambda: queue.produce(1))
        except RecursionError:
            raised += 1
        queue.flush(timeout=PATIENCE)
        assert queue.produce(2)
        queue.flush(timeout=PATIENCE)
        assert queue.stats().handled == queue.stats().accepted
    assert 5 < raised < DEEPEST
