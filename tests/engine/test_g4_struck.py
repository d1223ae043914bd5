"""G4: a signal handler raises in `drain_on_signals`, or its SystemExit is caught."""

import asyncio
import signal
import time

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig, drain_on_signals
from batchqueue_async._engine.drain_on_signals import ECHO
from tests.support.interrupts import interrupted
from tests.support.striking import SWEEP

MOST = 1_000
pytestmark = SWEEP


class Scene:
    """Two queues on a loop of their own; the first one is drained on a signal."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.handled: list[int] = []
        self.loop.run_until_complete(self.begin())

    async def begin(self) -> None:
        config = BatchQueueConfig[int](consumer=self.handled.extend, linger=60.0)
        self.queues = [BatchQueue(name, config) for name in "ab"]
        for number, queue in enumerate(self.queues):
            await queue.start()
            await queue.produce(number)
        drain_on_signals(self.queues[0])

    def strike(self, step: int) -> bool:
        """Strike the call for the second one; returns whether it was struck."""

        async def call() -> bool:
            return interrupted(step, lambda: drain_on_signals(self.queues[1]))

        return self.loop.run_until_complete(call())

    def call_again(self) -> None:
        async def call() -> None:
            drain_on_signals(self.queues[1])

        self.loop.run_until_complete(call())

    def send(self) -> None:
        async def wait() -> None:
            signal.raise_signal(signal.SIGTERM)
            await asyncio.sleep(20.0)

        with pytest.raises(SystemExit, match=r"^143$"):
            self.loop.run_until_complete(wait())

    def end(self) -> None:
        self.loop.remove_signal_handler(signal.SIGTERM)
        for queue in self.queues:
            self.loop.run_until_complete(queue.shutdown())
        self.loop.close()


@pytest.mark.parametrize("is_called_again", [True, False])
def test_what_was_drained_before_a_struck_call_still_is(
    *, is_called_again: bool
) -> None:
    for step in range(1, MOST):
        scene = Scene()
        was_struck = scene.strike(step)
        if is_called_again:
            scene.call_again()
        scene.send()
        drained = {0, 1} if is_called_again else {0}
        assert drained <= {*scene.handled}
        scene.end()
        if not was_struck:
            return
    pytest.fail("it never came to an end")


def test_a_program_that_went_on_ends_by_the_next_signal() -> None:
    """Something, such as a notebook, has caught the first SystemExit."""
    scene = Scene()
    scene.send()
    time.sleep(2 * ECHO)
    scene.send()
    scene.end()
