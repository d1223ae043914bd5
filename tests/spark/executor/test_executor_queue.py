"""One queue per process: opened once, used again, never shared with a fork."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from batchqueue_async import DeliveryError, LoopThread, SyncBatchQueue
from batchqueue_async.spark.executor_queue import (
    close_executor_queues,
    executor_queue,
    flushed_queue,
)
from tests.spark.executor.probes import OpenFileQueue, open_badly

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.real_time


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    close_executor_queues()


def test_the_second_call_returns_the_same_queue(tmp_path: Path) -> None:
    open_queue = OpenFileQueue(str(tmp_path))

    first = executor_queue(open_queue)

    assert executor_queue(OpenFileQueue(str(tmp_path))) is first
    assert executor_queue(OpenFileQueue(str(tmp_path), buffer_size=7)) is not first
    assert open_queue.lines().count("opened") == 2


def test_a_queue_that_was_shut_down_is_opened_anew(tmp_path: Path) -> None:
    first = executor_queue(OpenFileQueue(str(tmp_path)))
    first.shutdown()

    second = executor_queue(OpenFileQueue(str(tmp_path)))

    assert second is not first
    assert second.produce("x")


def test_functions_that_nobody_asks_for_are_closed(tmp_path: Path) -> None:
    threads = threading.active_count()
    queues = [
        executor_queue(OpenFileQueue(str(tmp_path), buffer_size=size))
        for size in range(1, 12)
    ]

    assert [queue.is_running for queue in queues] == [False] * 3 + [True] * 8
    assert threading.active_count() == threads + 8


def test_those_in_use_are_not_closed_for_others(tmp_path: Path) -> None:
    """The ninth block shut the first one's queue down, and its flush failed."""
    with ExitStack() as blocks:
        queues = [
            blocks.enter_context(
                flushed_queue(OpenFileQueue(str(tmp_path), buffer_size=size))
            )
            for size in range(1, 12)
        ]
        last = executor_queue(OpenFileQueue(str(tmp_path), buffer_size=12))
        assert all(queue.produce("x") for queue in queues)

    # The next one that is asked for closes what is too many.
    executor_queue(OpenFileQueue(str(tmp_path), buffer_size=13))
    assert [queue.is_running for queue in queues] == [False] * 5 + [True] * 6
    assert last.is_running


def test_what_open_queue_raises_is_raised_and_nothing_stays(tmp_path: Path) -> None:
    threads = threading.active_count()

    with pytest.raises(RuntimeError, match="no way to open"):
        executor_queue(open_badly)
    with pytest.raises(TypeError, match="must return a SyncBatchQueue, got None"):
        executor_queue(lambda _: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(TypeError, match=r"open_queue must be callable.*, got 5"):
        executor_queue(5)  # type: ignore[arg-type]

    assert threading.active_count() == threads


def test_the_with_block_ends_when_everything_is_handled(tmp_path: Path) -> None:
    open_queue = OpenFileQueue(str(tmp_path), delay=0.05)

    with flushed_queue(open_queue) as queue:
        queue.produce_many(range(300))

    assert len(open_queue.handled()) == 300


def test_the_with_block_raises_what_failed(tmp_path: Path) -> None:
    open_queue = OpenFileQueue(str(tmp_path), poison=3)

    with pytest.raises(DeliveryError), flushed_queue(open_queue) as queue:
        queue.produce(3)
    with pytest.raises(KeyError), flushed_queue(open_queue) as queue:
        queue.produce({True: 1}[not queue.produce(3)])
    with flushed_queue(open_queue) as queue:
        queue.produce(4)


def test_a_forked_child_opens_its_own(tmp_path: Path) -> None:
    """In a process of its own: pytest's must not be forked with threads."""
    program = f"""
import os, sys
from batchqueue_async.spark.executor_queue import executor_queue
from tests.spark.executor.probes import OpenFileQueue
open_queue = OpenFileQueue({str(tmp_path)!r})
queue = executor_queue(open_queue)
assert queue.produce("parent")
child = os.fork()
if not child:
    mine = executor_queue(open_queue)
    assert mine is not queue and not queue.is_running
    assert mine.produce("child")
    mine.flush(10)
    sys.exit(0)
_, status = os.waitpid(child, 0)
assert status == 0, status
assert queue.produce("parent again")
queue.flush(10)
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        timeout=40,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert OpenFileQueue(str(tmp_path)).handled() == ["child", "parent", "parent again"]
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.spark
def test_tasks_of_one_worker_process_share_a_queue(
    spark: "SparkSession", tmp_path: Path
) -> None:
    open_queue = OpenFileQueue(str(tmp_path))

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        with flushed_queue(open_queue) as queue:
            for batch in batches:
                queue.produce_many(batch.column(0).to_pylist())
                yield batch

    frame: DataFrame = spark.range(0, 40, 1, 8)
    for _ in range(2):
        assert frame.mapInArrow(run, frame.schema).count() == 40

    assert len(open_queue.handled()) == 80
    openings = open_queue.lines().count("opened")
    # At most one per core, in 16 tasks.
    assert 1 <= openings <= 2
    assert openings == len(list(tmp_path.iterdir()))


def test_it_survives_neither_its_process_nor_any_warning(tmp_path: Path) -> None:
    """As without Spark's daemon, where a worker ends like any program."""
    program = f"""
from batchqueue_async.spark.executor_queue import executor_queue
from tests.spark.executor.probes import OpenFileQueue
executor_queue(OpenFileQueue({str(tmp_path)!r})).produce("last")
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        timeout=40,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert OpenFileQueue(str(tmp_path)).handled() == ["last"]


def test_a_queue_may_be_asked_for_while_another_opens(tmp_path: Path) -> None:
    inner = OpenFileQueue(str(tmp_path))

    def outer(loop_thread: LoopThread) -> SyncBatchQueue[Any]:
        executor_queue(inner)
        return inner(loop_thread)

    assert executor_queue(outer) is not executor_queue(inner)
