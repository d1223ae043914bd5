"""A program that still waits when all is drained can be ended by a further signal."""

import signal
import time

import pytest

from tests.bridge.programs import Program

WITH_A_LOOP_THREAD = """
import signal, threading, time
from batchqueue_async import *

stored = []
try:
    with LoopThread() as loop_thread:
        drain_on_signals(loop_thread, (signal.SIGTERM, signal.SIGINT))
        queue = loop_thread.open("rows", BatchQueueConfig(consumer=stored.extend))
        queue.produce(1)
        print("ready", flush=True)
        while True:
            time.sleep(0.01)
finally:
    print("drained", len(stored), flush=True)
    WAIT
"""
WITH_A_LOOP = """
import asyncio, signal, threading, time
from batchqueue_async import *

stored = []

async def main():
    try:
        config = BatchQueueConfig(consumer=stored.extend)
        async with BatchQueue("rows", config) as queue:
            drain_on_signals(queue, (signal.SIGTERM, signal.SIGINT))
            await queue.produce(1)
            print("ready", flush=True)
            await asyncio.sleep(60)
    finally:
        print("drained", len(stored), flush=True)
        WAIT

asyncio.run(main())
"""
A_THREAD = "threading.Thread(target=time.sleep, args=[60]).start()"


@pytest.mark.real_time
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    "program, wait",
    [
        (WITH_A_LOOP_THREAD, "time.sleep(60)"),
        (WITH_A_LOOP_THREAD, A_THREAD),
        (WITH_A_LOOP, "await asyncio.sleep(60)"),
        (WITH_A_LOOP, "await asyncio.to_thread(time.sleep, 2)"),
    ],
)
def test_a_further_signal_ends_a_wait_that_is_not_for_queues(
    program: str, wait: str, sent: signal.Signals
) -> None:
    """Each was swallowed, Ctrl-C too: nothing but SIGKILL ended the program."""
    began = time.monotonic()
    with Program(program.replace("WAIT", wait)) as running:
        assert running.wait_for_line() == "ready"
        running.send(sent)
        assert running.wait_for_line() == "drained 1"
        time.sleep(0.3)
        running.send(sent)
        ended = running.end(within=50)
    assert (ended.status, time.monotonic() - began < 40) == (128 + sent, True)
