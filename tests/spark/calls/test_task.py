"""What Spark's thread runs: calls on a loop thread that outlives the task."""

import contextlib
import gc
import os
import pickle
import subprocess
import sys
import threading
from asyncio import CancelledError
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from batchqueue_async import BatchQueueError
from batchqueue_async.spark._calls.declared import declare
from batchqueue_async.spark._calls.task import CallTask
from batchqueue_async.spark.executor_queue import close_executor_queues
from tests.spark.calls.served import RESULT, in_batches, options
from tests.spark.worker_main import rows_flushed_one_by_one

pytestmark = pytest.mark.real_time


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    close_executor_queues()


class Clients:
    """Writes down when a client is opened and closed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[int]:
        self._note("opened")
        yield 1
        self._note("closed")

    def _note(self, what: str) -> None:
        with (self._folder / "notes").open("a") as notes:
            notes.write(f"{what} {os.getpid()}\n")

    def notes(self) -> list[str]:
        notes = self._folder / "notes"
        return notes.read_text().split()[::2] if notes.exists() else []


async def echo(_: int, batch: list[dict[str, int]]) -> list[tuple[int]]:
    return [(item["id"],) for item in batch]


async def echo_alone(batch: list[dict[str, int]]) -> list[tuple[int]]:
    return [(item["id"],) for item in batch]


async def broken(_: int, batch: list[Any]) -> list[Any]:
    if batch[0]["id"] == 300:
        msg = "boom"
        raise LookupError(msg)
    return [(item["id"],) for item in batch]


def task(**others: Any) -> CallTask:  # noqa: ANN401 - any option
    made = options(**{"call": echo, **others})
    return CallTask(made, declare(RESULT, None, "raise", "error"))


def ys(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [row["y"] for batch in batches for row in batch.to_pylist()]


def test_tasks_of_one_frame_share_a_thread_and_a_client(tmp_path: Path) -> None:
    clients = Clients(tmp_path)
    before = threading.active_count()
    sent = cloudpickle.dumps(task(open=clients))  # type: ignore[no-untyped-call]

    for _ in range(3):
        # As it comes with each task.
        assert ys(pickle.loads(sent)(in_batches(1000, 300))) == [*range(1000)]

    assert threading.active_count() == before + 1
    assert clients.notes() == ["opened"]
    close_executor_queues()
    assert clients.notes() == ["opened", "closed"]
    assert threading.active_count() == before


def test_each_frame_has_a_client_of_its_own(tmp_path: Path) -> None:
    clients = Clients(tmp_path)

    for key in ("one", "two"):
        assert ys(task(key=key, open=clients)(in_batches(10, 10))) == [*range(10)]

    assert clients.notes() == ["opened", "opened"]


def test_a_frame_for_each_micro_batch_piles_nothing_up() -> None:
    class Call:
        async def __call__(self, batch: list[dict[str, int]]) -> list[tuple[int]]:
            return [(item["id"],) for item in batch]

    calls = WeakSet[Call]()
    for key in range(20):
        call = Call()
        calls.add(call)
        assert ys(task(key=f"{key}", call=call)(in_batches(10, 10))) == [*range(10)]

    del call
    gc.collect()
    # As many as there are queues at most.
    assert len(calls) <= 8


def test_what_a_call_raises_is_raised_and_the_client_is_closed(tmp_path: Path) -> None:
    clients = Clients(tmp_path)

    with pytest.raises(LookupError, match="boom"):
        ys(task(call=broken, open=clients)(in_batches(1000, 300)))

    assert clients.notes() == ["opened", "closed"]
    # And whoever comes next finds everything new.
    assert ys(task(open=clients)(in_batches(10, 10))) == [*range(10)]
    assert clients.notes() == ["opened", "closed", "opened"]


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, CancelledError])
@pytest.mark.parametrize("at", [0, 90, 150])
def test_rows_are_never_lost_whatever_to_items_raises(
    error: type[BaseException], at: int
) -> None:
    def made(batch: pa.RecordBatch) -> list[dict[str, int]]:
        rows: list[dict[str, int]] = batch.to_pylist()
        if any(row["id"] == at for row in rows):
            raise error
        return rows

    one_by_one = task(call=echo_alone, to_items=made, max_batch=10, in_flight=1)

    # A CancelledError in Spark's thread would say that nobody wants the rows.
    with pytest.raises((error, BatchQueueError)):
        ys(one_by_one(in_batches(160, 40)))
    with contextlib.suppress(error):
        close_executor_queues()


def test_rows_that_nobody_wants_any_more_end_their_calls(tmp_path: Path) -> None:
    clients = Clients(tmp_path)
    rows = task(open=clients, max_batch=1)(in_batches(100_000, 1000))

    assert next(rows).num_rows >= 1
    rows.close()  # type: ignore[attr-defined]

    assert clients.notes() == ["opened", "closed"]


def test_rows_leave_the_worker_s_buffer_before_others_are_waited_for() -> None:
    assert rows_flushed_one_by_one(task(call=echo_alone), in_batches(20_000, 1000)) > 1


_WHO_IMPORTS_PANDAS = """
import sys, threading
from importlib.abc import MetaPathFinder

class Watch(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "pandas":
            print(threading.current_thread().name)

sys.meta_path.insert(0, Watch())
import pyarrow as pa
from tests.spark.calls.test_task import task
from batchqueue_async.spark.executor_queue import close_executor_queues

async def call(batch):
    return [(item["id"],) for item in batch]

# As from Spark's stream, where nothing is converted.
ids = pa.Array.from_buffers(pa.int64(), 10, [None, pa.py_buffer(bytes(80))])
given = pa.RecordBatch.from_arrays([ids], ["id"])
[*task(call=call)(iter([given]))]
close_executor_queues()
"""


def test_no_call_waits_for_imports_of_the_librarys_own() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WHO_IMPORTS_PANDAS],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )

    assert done.stdout.split() == ["MainThread"]
