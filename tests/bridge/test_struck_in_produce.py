"""What strikes a thread in `produce` says whether its item is in."""

import asyncio
import signal
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from batchqueue_async import (
    BatchQueueConfig,
    LoopThread,
    PartitionPolicy,
    by_key,
    fair_by,
    in_thread,
)
from tests.bridge.background import PATIENCE, in_background, wait_until
from tests.bridge.interruptions import Interruption

pytestmark = pytest.mark.skipif(
    not hasattr(signal, "pthread_kill"), reason="needs a signal for one thread"
)


class Struck(Exception): ...


def strike_once(when: Callable[[], object]) -> None:
    wait_until(when)
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)


@pytest.mark.parametrize("accepted", [0, 1])
def test_it_says_so(accepted: int, loop_thread: LoopThread) -> None:
    gate = threading.Event()

    def consume(_: list[int]) -> None:
        gate.wait(PATIENCE)

    def strike(*_: object) -> None:
        if accepted:
            gate.set()
            wait_until(lambda: queue.stats().accepted == 3)
        raise Struck

    config = BatchQueueConfig[int](consumer=in_thread(consume), buffer_size=1)
    queue = loop_thread.open("q", config)
    queue.produce(1)
    wait_until(lambda: queue.stats().in_flight == 1)
    queue.produce(2)
    before = signal.signal(signal.SIGUSR1, strike)
    striking = in_background(
        lambda: strike_once(lambda: queue.stats().waiting_producers)
    )
    try:
        with pytest.raises(Struck) as struck:
            queue.produce(3)
        striking.result(PATIENCE)
    finally:
        signal.signal(signal.SIGUSR1, before)
        gate.set()
    assert struck.value.accepted == accepted  # type: ignore[attr-defined]
    queue.flush(PATIENCE)
    assert queue.stats().handled == 2 + accepted


TWO = BatchQueueConfig[int](partitions=PartitionPolicy.fixed(2), linger=1000.0)
SETTINGS = {
    "types": TWO,
    "keys": replace(TWO, selector=by_key(lambda number: number)),
    "fair": replace(TWO, selector=fair_by(lambda number: number)),
    "sizes": replace(TWO, size_of=lambda _: 1, buffer_bytes=100),
}


@pytest.mark.parametrize("waiting", [0, 1, 2])
@pytest.mark.parametrize("config", SETTINGS.values(), ids=SETTINGS)
def test_it_says_so_wherever_it_strikes_who_need_not_wait(
    waiting: int, config: BatchQueueConfig[int], loop_thread: LoopThread
) -> None:
    def strike() -> None:
        raise Struck

    for at in range(2_000):
        # Nobody takes what waits, so that the next one needs not tell the loop.
        queue = loop_thread.open(f"q{at}", config, {int: lambda _: None})
        for _ in range(waiting):
            queue.produce(1)
            # Until the loop knows of it.
            queue.call(asyncio.sleep, 0)
        interruption = Interruption(at, strike)
        struck: Struck | None = None
        try:
            with interruption:
                queue.produce(1)
        except Struck as error:
            struck = error
        accepted = queue.stats().accepted - waiting
        queue.shutdown(PATIENCE)
        if not interruption.has_acted:
            return
        came = 1 if struck is None else getattr(struck, "accepted", 0)
        assert accepted == came, interruption.where
    pytest.fail("it never came to an end")
