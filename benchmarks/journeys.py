"""How many calls and files a reader follows on the engine's ways.

`python -m benchmarks.journeys` traces each once: the calls of the library's own Python
functions on the loop's thread, and the files that they are in; what a sink does on a
thread of its own is not followed. A coroutine that goes on after a wait is no new call.
Then it counts the engine's import levels: a module is one above the highest that it
imports when it is imported itself.
"""

from __future__ import annotations

import ast
import asyncio
import gc
import sqlite3
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import batchqueue_async
from batchqueue_async import BatchQueue, BatchQueueConfig, Retry
from batchqueue_async.sinks.epochs import Epoch
from batchqueue_async.sinks.sqlite import SqliteEpochSink

HOME = str(Path(batchqueue_async.__file__).parent)
ENGINE = "batchqueue_async._engine"


class Journey:
    """What was called, in order."""

    def __init__(self) -> None:
        self._frames: dict[int, FrameType] = {}
        self.files: dict[str, None] = {}

    @property
    def calls(self) -> int:
        """How many calls there were."""
        return len(self._frames)

    @contextmanager
    def traced(self) -> Iterator[None]:
        """Note what is called inside of the block."""
        # Calls by finalizers of earlier journeys' objects must not be counted.
        gc.collect()
        gc.disable()
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)
            gc.enable()

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(HOME):
            # Kept, so that no other frame gets its identity.
            self._frames[id(frame)] = frame
            self.files[path.removeprefix(HOME + "/")] = None


async def _handle(_: list[int]) -> None:
    pass


async def _turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def into_an_empty_partition(journey: Journey) -> None:
    """A drain task naps, and an item comes."""
    async with BatchQueue[int]("q") as queue:
        queue.add_handler(int, _handle)
        assert await queue.produce(0)
        await queue.flush()
        await _turns()
        with journey.traced():
            assert await queue.produce(1)


async def full_until_waiting(journey: Journey) -> None:
    """An item comes to a full partition."""
    config = BatchQueueConfig[int](consumer=_handle, buffer_size=1)
    async with BatchQueue("q", config) as queue:
        assert await queue.produce(0)
        with journey.traced():
            producer = queue.produce(1)
            sleeper = producer.send(None)
        assert sleeper is not None
        producer.close()


async def handled(journey: Journey) -> None:
    """A drain task wakes, and one item waits."""
    async with BatchQueue[int]("q") as queue:
        queue.add_handler(int, _handle)
        assert await queue.produce(0)
        await queue.flush()
        await _turns()
        assert await queue.produce(1)
        with journey.traced():
            await _turns()
        assert queue.stats().in_flight == queue.stats().waiting == 0


async def retried(journey: Journey) -> None:
    """A handler raises, and is called again."""
    failures = [OSError()]

    async def fail_once(_: list[int]) -> None:
        if failures:
            raise failures.pop()

    config = BatchQueueConfig[int](
        consumer=fail_once, retry=Retry(attempts=2, wait_initial=0.001)
    )
    async with BatchQueue("q", config) as queue:
        await _turns()
        assert await queue.produce(1)
        with journey.traced():
            await asyncio.sleep(0.05)
        assert queue.stats().handled == 1


async def shut_down(journey: Journey) -> None:
    """A queue with one item is shut down."""
    queue = BatchQueue("q", BatchQueueConfig[int](consumer=_handle))
    await queue.start()
    assert await queue.produce(1)
    with journey.traced():
        assert await queue.shutdown(1.0) == []


async def sqlite_epoch(journey: Journey) -> None:
    """One epoch of one row is begun, written and committed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows"
        with sqlite3.connect(path) as database:
            database.execute("CREATE TABLE t (n INTEGER)")
        sink = SqliteEpochSink[tuple[int]](path, "t", ("n",))
        epoch = Epoch("query", 1)
        with journey.traced():
            await sink.begin(epoch)
            await sink.write(epoch, [(1,)])
            await sink.commit(epoch)
        await sink.close()


JOURNEYS: dict[str, tuple[Callable[[Journey], Awaitable[Any]], int]] = {
    "an item into an empty partition": (into_an_empty_partition, 7),
    "a full partition, until the producer waits": (full_until_waiting, 7),
    "a batch taken, handled and settled": (handled, 10),
    "a batch that is retried": (retried, 14),
    "a shutdown with a deadline": (shut_down, 13),
    "a SQLite epoch": (sqlite_epoch, 16),
}
"""By name, each with the most files that it may pass."""


LEVELS = 8
"""The most import levels that the engine may have, down from its queue."""


@cache
def level_of(module: str) -> int:
    """Return the import level of one of the engine's modules: 1 if it imports none."""
    path = Path(HOME).parent / f"{module.replace('.', '/')}.py"
    imports = [
        each
        for each in ast.parse(path.read_text("utf-8")).body
        if isinstance(each, ast.ImportFrom)
    ]
    below = {
        each.module
        for each in imports
        if each.module is not None and each.module.startswith(f"{ENGINE}.")
    }
    return 1 + max(map(level_of, below), default=0)


def main() -> None:
    """Print all journeys; with `-v` their files, too."""
    for name, (travel, most) in JOURNEYS.items():
        journey = Journey()
        asyncio.run(_run(travel, journey))
        count = len(journey.files)
        print(f"{name:45} {journey.calls:4} calls {count:3} files (at most {most})")
        if "-v" in sys.argv[1:]:
            print("   ", *journey.files)
    levels = level_of(f"{ENGINE}.queue")
    print(f"{'import levels of the engine':45} {levels} (at most {LEVELS})")


async def _run(travel: Callable[[Journey], Awaitable[Any]], journey: Journey) -> None:
    await travel(journey)


if __name__ == "__main__":
    main()
