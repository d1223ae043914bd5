"""Greenlets in place of threads are refused: a loop on one of them holds up all."""

import pytest

from tests.bridge.programs import Program

PATCHED = """
from gevent import monkey
monkey.patch_all()
from batchqueue_async.logging import BatchingHandler
"""

SOME_THREADS = """
from gevent import monkey
monkey.patch_all(thread=False)
with LoopThread() as loop_thread:
    rows = loop_thread.open("rows", BatchQueueConfig(consumer=print))
    rows.produce("a row")
"""


@pytest.mark.parametrize(
    "begin",
    [
        "LoopThread().start()",
        pytest.param(
            "process_queue(lambda loop_thread: loop_thread.open('rows'))",
            marks=pytest.mark.slow,
        ),
        "BatchingHandler(print)",
    ],
    ids=["LoopThread", "process_queue", "BatchingHandler"],
)
def test_under_gevent_nothing_hangs_and_it_is_said_why(begin: str) -> None:
    pytest.importorskip("gevent")
    ended = Program(PATCHED + begin).end()
    assert ended.status == 1
    last = ended.log.splitlines()[-1]
    assert "needs a thread of its own, and gevent makes greenlets of threads" in last


@pytest.mark.slow
def test_threads_that_gevent_leaves_alone_are_good_enough() -> None:
    pytest.importorskip("gevent")
    ended = Program(SOME_THREADS).end()
    assert (ended.status, ended.output) == (0, "['a row']"), ended.log
