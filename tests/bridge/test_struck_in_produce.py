"""What strikes a thread that waits in `produce` says whether its item is in."""

import signal
import threading
from collections.abc import Callable

import pytest

from batchqueue_async import BatchQueueConfig, LoopThread, in_thread
from tests.bridge.background import PATIENCE, in_background, wait_until

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
