"""One signal drains each `LoopThread` that is to be drained on it."""

import gc
import signal
import time
import weakref

import pytest

from batchqueue_async import LoopThread, drain_on_signals
from tests.bridge.programs import Program

SETUP = """
import signal, sys, threading, time
from batchqueue_async import *

stored, passed_on = [], []

def sleep():
    # Since Python 3.14 a long sleep may begin with a signal at hand, and go on.
    while True:
        time.sleep(0.01)

end = LoopThread("end").start()
storage = end.open("storage", BatchQueueConfig(consumer=stored.extend))

def pass_on(batch):
    time.sleep(0.2)
    passed_on.append(storage.produce_many(batch))

front = LoopThread("front").start()
config = BatchQueueConfig(consumer=in_thread(pass_on), max_batch=10)
first = front.open("first", config)
drain_on_signals(end)
drain_on_signals(front)
"""
PRODUCERS = """
def produce(queue):
    while queue.produce(1):
        time.sleep(0.001)

threads = [threading.Thread(target=produce, args=[each]) for each in (first, storage)]
for each in threads:
    each.start()
try:
    print("ready", flush=True)
    sleep()
finally:
    for each in threads:
        each.join()
    print("joined", flush=True)
"""
CHAIN = """
first.produce_many(range(30))
try:
    print("ready", flush=True)
    sleep()
finally:
    front.stop()
    end.stop()
    print(sum(passed_on), len(stored))
"""
TWICE = """
drain_on_signals(end)
drain_on_signals(front, timeout=0.0)
first.produce_many(range(30))
try:
    print("ready", flush=True)
    sleep()
finally:
    print(len(front.stop()))
"""
STUCK = """
slow = end.open("slow", BatchQueueConfig(consumer=in_thread(lambda _: time.sleep(60))))
slow.produce(1)
first.produce_many(range(1000))
try:
    print("ready", flush=True)
    sleep()
finally:
    time.sleep(3)
"""


def test_producers_of_all_of_them_are_told() -> None:
    """Those of one that was given first would hold up the end for ever."""
    with Program(SETUP + PRODUCERS) as program:
        assert program.wait_for_line() == "ready"
        program.send(signal.SIGTERM)
        ended = program.end()
    assert (ended.status, ended.output.split()) == (143, ["joined"]), ended.log


def test_the_last_one_is_drained_first() -> None:
    """What it passes on is accepted by the next one."""
    with Program(SETUP + CHAIN) as program:
        assert program.wait_for_line() == "ready"
        time.sleep(0.1)
        program.send(signal.SIGTERM)
        ended = program.end()
    assert (ended.status, ended.output.split()) == (143, ["30", "30"]), ended.log


def test_of_one_that_is_given_again_the_last_timeout_counts() -> None:
    with Program(SETUP + TWICE) as program:
        assert program.wait_for_line() == "ready"
        program.send(signal.SIGTERM)
        ended = program.end()
    assert ended.status == 143
    assert "items of 'first' were left at shutdown" in ended.log


@pytest.mark.real_time
def test_a_second_signal_hurries_all() -> None:
    with Program(SETUP + STUCK) as program:
        assert program.wait_for_line() == "ready"
        program.send(signal.SIGTERM)
        time.sleep(0.5)
        began = time.monotonic()
        program.send(signal.SIGTERM)
        ended = program.end()
    assert time.monotonic() - began < 15
    assert ended.status == 143
    assert "items of 'first' were left at shutdown" in ended.log
    assert "items of 'slow' were left at shutdown" in ended.log


def test_what_has_ended_is_forgotten() -> None:
    """A program may have one for each of its jobs."""
    before = signal.getsignal(signal.SIGUSR1)
    ended: list[weakref.ref[LoopThread]] = []
    try:
        with LoopThread() as lasting:
            drain_on_signals(lasting, (signal.SIGUSR1,))
            for _ in range(3):
                with LoopThread() as job:
                    drain_on_signals(job, (signal.SIGUSR1,))
                ended.append(weakref.ref(job))
                del job
            gc.collect()
            assert [each() for each in ended[:-1]] == [None, None]
            drain_on_signals(lasting, (signal.SIGUSR1,))
            gc.collect()
            assert ended[-1]() is None
    finally:
        signal.signal(signal.SIGUSR1, before)
