"""What the tests send to executors: importable there, and leaving traces in files."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchqueue_async import BatchQueueConfig, LoopThread, SyncBatchQueue
from batchqueue_async.sinks.epochs import Epoch
from batchqueue_async.sinks.parquet_staged import ParquetStagedSink
from batchqueue_async.sinks.staged import Attempt, Token


@dataclass(frozen=True)
class OpenFileQueue:
    """Opens a queue whose consumer appends the items to a file per process.

    Each file begins with a line for the opening; items that are `poison` fail.
    """

    folder: str
    poison: object = None
    delay: float = 0.0
    buffer_size: int = 1000

    def __call__(self, loop_thread: LoopThread) -> SyncBatchQueue[Any]:
        path = Path(self.folder, f"{os.getpid()}.txt")
        self._append(path, ["opened"])

        def consume(items: list[Any]) -> None:
            time.sleep(self.delay)
            if self.poison in items:
                msg = f"{self.poison!r} can't be handled"
                raise RuntimeError(msg)
            self._append(path, items)

        config = BatchQueueConfig[Any](
            consumer=consume, buffer_size=self.buffer_size, max_batch=100
        )
        return loop_thread.open("files", config)

    @staticmethod
    def _append(path: Path, items: list[Any]) -> None:
        with path.open("a") as file:
            file.writelines(f"{item}\n" for item in items)

    def lines(self) -> list[str]:
        """Everything that was handled, and the openings."""
        files = Path(self.folder).glob("*.txt")
        return [line for file in files for line in file.read_text().splitlines()]

    def handled(self) -> list[str]:
        """What was handled, in order of its text."""
        return sorted(line for line in self.lines() if line != "opened")


def open_badly(loop_thread: LoopThread) -> SyncBatchQueue[Any]:
    """An `open_queue` that fails."""
    msg = f"no way to open on {loop_thread}"
    raise RuntimeError(msg)


def open_slowly(loop_thread: LoopThread) -> SyncBatchQueue[Any]:
    """An `open_queue` whose handler takes its time, and lets its loop go on."""

    async def consume(_: list[Any]) -> None:
        await asyncio.sleep(2)

    return loop_thread.open("slow", BatchQueueConfig[Any](consumer=consume))


class FaultySink(ParquetStagedSink):
    """Fails, or kills its process, where its options say so: once, or always.

    `fault`: `stage`, `seal`, `sealed`, `publish` or `published`; `lost` for a store
    that has crashed before the publish, and lost what was sealed.
    `partition`: where; -1 for any. `marker`: a file that makes it happen only once.
    `stuck`: what is staged can't be discarded either.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options["directory"])
        self._fault = options.get("fault", "")
        self._partition = int(options.get("partition", "-1"))
        self._marker = Path(options["marker"]) if "marker" in options else None
        self._kills = options.get("kill") == "true"
        self._is_stuck = options.get("stuck") == "true"

    async def stage(self, attempt: Attempt, items: list[Any], /) -> None:
        await super().stage(attempt, items)
        self._fail("stage", attempt.partition)

    async def seal(self, attempt: Attempt, /) -> Token:
        self._fail("seal", attempt.partition)
        token = await super().seal(attempt)
        self._fail("sealed", attempt.partition)
        return token

    async def publish(self, epoch: Epoch, tokens: Sequence[Token], /) -> bool:
        self._fail("publish", -1)
        self._lose(tokens)
        is_new = await super().publish(epoch, tokens)
        self._fail("published", -1)
        return is_new

    async def discard(self, epoch: Epoch, run: str, /) -> None:
        await super().discard(epoch, run)
        if self._is_stuck:
            msg = "planted at discard"
            raise RuntimeError(msg)

    def _lose(self, tokens: Sequence[Token]) -> None:
        if self._is_due("lost", -1):
            for token in tokens:
                path, *_ = token.place.split("\0")
                (self._directory.path / path).unlink()

    def _is_due(self, point: str, partition: int) -> bool:
        if point != self._fault or self._partition not in {-1, partition}:
            return False
        if self._marker is not None:
            if self._marker.exists():
                return False
            self._marker.touch()
        return True

    def _fail(self, point: str, partition: int) -> None:
        if not self._is_due(point, partition):
            return
        if self._kills:
            os.kill(os.getpid(), 9)
        msg = f"planted at {point}"
        raise RuntimeError(msg)


def not_a_sink(options: Mapping[str, str]) -> object:
    """A factory that returns something else."""
    return dict(options)


NOT_A_SINK = f"{__name__}:not_a_sink"
FAULTY = f"{__name__}:FaultySink"
PARQUET = "batchqueue_async.sinks.parquet_staged:ParquetStagedSink.from_options"
