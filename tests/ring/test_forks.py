"""A child that is forked beside a running ring: what the parent has is the parent's."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

PROGRAM = """
import asyncio, logging, os, signal, sys, threading
from batchqueue_async.ring import Disruptor, RingHalted, SyncRing, WorkerPool
from tests.ring.events import Event, fill

logging.basicConfig()
seen = []

async def handle(event, sequence, end_of_batch):
    await asyncio.sleep(0.01)
    seen.append(event.value)

def told(error, sequence, event):
    print("told", sequence)

def child(ring, sync, disruptor, pool):
    async def publish():
        await ring.publish_event(fill, "child")
    for verb in (
        lambda: ring.try_publish_event(fill, "child"),
        lambda: asyncio.run(publish()),
        lambda: sync.publish_event(fill, "child"),
    ):
        try:
            print("returned", verb())
        except Exception as error:
            assert "the process that this one was forked from" in str(error), error
    asyncio.run(pool.drain_and_halt(None))
    asyncio.run(disruptor.shutdown(None))

async def main():
    disruptor = Disruptor(Event, 4)
    disruptor.handle_events_with(handle)
    disruptor.handle_exceptions_with(told)
    ring = await disruptor.start()
    async with WorkerPool(ring, lambda *_: None) as pool:
        sync = SyncRing(ring)
        await ring.publish_events(fill, "abcd")
        await ring.publish_event(fill, "e")
        waiting = [asyncio.create_task(ring.publish_event(fill, n)) for n in range(9)]
        await asyncio.sleep(0)
        if {is_locked}:
            held, forked = threading.Event(), threading.Event()
            def hold():
                with ring.sequencer._guard:
                    held.set()
                    forked.wait()
            holder = threading.Thread(target=hold)
            holder.start()
            held.wait()
        pid = os.fork()
        if pid == 0:
            # A child that hangs ends, though nobody waits for it any more.
            signal.alarm(50)
            # A thread, since the loop that runs was inherited.
            work = threading.Thread(target=child, args=(ring, sync, disruptor, pool))
            work.start()
            work.join()
            import atexit
            atexit._run_exitfuncs()
            sys.stdout.flush()
            os._exit(0)
        if {is_locked}:
            forked.set()
            holder.join()
        _, status = await asyncio.to_thread(os.waitpid, pid, 0)
        assert status == 0, status
        await asyncio.gather(*waiting)
    await disruptor.shutdown()
    assert seen == [*"abcde", *range(9)], seen
    print("parent is fine")

asyncio.run(main())
"""


@pytest.mark.parametrize("is_locked", [False, True], ids=["free", "locked"])
def test_a_child_is_refused_tells_nothing_and_hangs_nowhere(*, is_locked: bool) -> None:
    """Also if another thread held the ring's lock in that moment."""
    program = PROGRAM.replace("{is_locked}", str(is_locked))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("parent is fine\n", "")
