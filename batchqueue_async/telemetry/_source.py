"""Statistics of whatever is watched, read from whatever thread asks."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from asyncio import _get_running_loop
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from batchqueue_async._bridge.loop_thread import LoopThread, run_of
from batchqueue_async._bridge.sync_queue import SyncBatchQueue
from batchqueue_async._engine.lifecycle.state import State
from batchqueue_async._engine.manager import BatchQueueManager
from batchqueue_async._engine.queue import BatchQueue, parts_of
from batchqueue_async._engine.runtime.forking import abandon_after_fork, is_abandoned
from batchqueue_async._engine.stats import BatchQueueStats, Overview, overview
from batchqueue_async._validation import require_positive


class QueuesElsewhere(Protocol):
    """Tells what is known here of the queues of other processes.

    Such as `batchqueue_async.spark.SparkJobs`, or your own, if your workers report.
    """

    def queue_stats(self) -> Sequence[BatchQueueStats]:
        """Return what is known of each by now; called on any thread, so be quick.

        Names must differ from each other, and from those of the queues beside them.
        """


Queue = BatchQueue[Any] | SyncBatchQueue[Any]
Watched = Queue | BatchQueueManager | LoopThread | QueuesElsewhere
"""What can be watched: a queue, all queues of an owner, queues of other processes."""
Target = Watched | Sequence[Watched]
"""One of these, or several."""

PATIENCE = 0.5
# Last figures that wait for a look, which may never come.
_MOST_ENDED = 1_000

_HERE = (BatchQueue, SyncBatchQueue, BatchQueueManager, LoopThread)


class Identity:
    """Stands for one queue, and keeps nothing of it."""

    __slots__ = ("__weakref__",)


_identities: WeakKeyDictionary[BatchQueue[Any], Identity] = WeakKeyDictionary()


def _identity_of(queue: BatchQueue[Any]) -> Identity:
    # Atomic: two threads that look for the first time get the same one.
    return _identities.setdefault(queue, Identity())


@dataclass(frozen=True, slots=True)
class Reading:
    """One queue at one moment."""

    identity: object
    """Identifies the queue, since another one may have its name."""
    overview: Overview
    loop_responds: bool
    """Whether its loop answered. If not, a handler blocks it, or it has ended: then the
    figures were read from another thread, and some may have changed in between."""
    state: State = State.RUNNING

    @property
    def stats(self) -> BatchQueueStats:
        return self.overview.stats


class Source:
    """The queues of a target, whose loops get `patience` seconds to answer.

    Of each queue the fullest `partitions` and the busiest `handlers` are looked at, so
    many; None for all.

    Raises:
        TypeError: The target is not one, or `patience` is no number.
        ValueError: `patience` is not above 0.
    """

    def __init__(
        self,
        target: Target,
        *,
        patience: float = PATIENCE,
        partitions: int = 1,
        handlers: int | None = None,
    ) -> None:
        require_positive("patience", patience)
        self.watched: tuple[Watched, ...] = _watched(target)
        self._patience = patience
        self._overview = partial(overview, partitions=partitions, handlers=handlers)
        # What was seen last of queues that have ended, until it is taken, here.
        self._ended: deque[Reading] = deque()
        abandon_after_fork(self)
        self.on_too_many: Callable[[Reading], object] = lambda _: None
        """Gets the oldest of these if nobody takes them, so that it counts."""

    def note_end(self, queue: BatchQueue[Any]) -> None:
        """Keep the last figures of a queue, which its manager has just forgotten."""
        self._ended.extend(self._look_at([queue], loop_responds=True))
        while len(self._ended) > _MOST_ENDED:
            with contextlib.suppress(IndexError):  # another thread takes them
                self.on_too_many(self._ended.popleft())

    def read(self) -> list[Reading]:
        """Return what all queues look like now.

        Each loop is asked once, and waited for `patience` seconds at most; the loop on
        which this is called is not waited for. A forked child leaves its parent's
        queues to that: it would tell of them what they were, beside it.
        """
        by_loop: dict[asyncio.AbstractEventLoop | None, list[BatchQueue[Any]]] = {}
        # Each queue once, though it may be watched by itself and as a manager's.
        found = {id(each): each for known in self.watched for each in queues_of(known)}
        for queue in found.values():
            parts = parts_of(queue)
            if not is_abandoned(parts.lifecycle):
                by_loop.setdefault(parts.loop, []).append(queue)
        here = [
            reading
            for loop, queues in by_loop.items()
            for reading in self._read_on(loop, queues)
        ]
        elsewhere = (each for each in self.watched if not isinstance(each, _HERE))
        return [*here, *(each for known in elsewhere for each in _told_by(known))]

    def take_ended(self) -> list[Reading]:
        """Return the last figures of queues that have ended since the last call."""
        taken: list[Reading] = []
        with contextlib.suppress(IndexError):
            while True:
                taken.append(self._ended.popleft())
        return taken

    def abandon(self) -> None:
        """Forget what has ended in the parent, in a forked child: it tells of that."""
        self._ended.clear()

    def _read_on(
        self, loop: asyncio.AbstractEventLoop | None, queues: list[BatchQueue[Any]]
    ) -> Iterable[Reading]:
        if loop is None or loop is _get_running_loop():
            return self._look_at(queues, loop_responds=True)
        answered = threading.Event()
        readings: list[Reading] = []

        def answer() -> None:
            readings.extend(self._look_at(queues, loop_responds=True))
            answered.set()

        # A RuntimeError says that the loop is closed: nothing changes there any more.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(answer)
            if answered.wait(self._patience):
                return readings
        return self._look_at(queues, loop_responds=False)

    def _look_at(
        self, queues: list[BatchQueue[Any]], *, loop_responds: bool
    ) -> list[Reading]:
        return [
            Reading(
                _identity_of(queue), self._overview(parts), loop_responds, parts.state
            )
            for queue, parts in ((queue, parts_of(queue)) for queue in queues)
        ]


def _watched(target: object) -> tuple[Watched, ...]:
    watched: tuple[Any, ...] = (target,)
    if isinstance(target, Sequence) and not isinstance(target, str | bytes):
        watched = tuple(target)
    for each in watched:
        if not isinstance(each, _HERE) and not callable(
            getattr(each, "queue_stats", None)
        ):
            msg = (
                "target must be, or be a sequence of, BatchQueue, SyncBatchQueue, "
                "BatchQueueManager, QueuesElsewhere or LoopThread, got "
                f"{type(each).__qualname__}"
            )
            raise TypeError(msg)
    # Each once, though it may be given twice.
    return tuple({id(each): each for each in watched}.values())


def queues_of(watched: Watched) -> Iterable[BatchQueue[Any]]:
    if isinstance(watched, LoopThread):
        run = run_of(watched)
        return () if run is None else run.manager.queues
    if isinstance(watched, BatchQueueManager):
        return watched.queues
    if isinstance(watched, SyncBatchQueue):
        return (watched.queue,)
    return (watched,) if isinstance(watched, BatchQueue) else ()


def _told_by(elsewhere: QueuesElsewhere) -> Iterator[Reading]:
    for stats in elsewhere.queue_stats():
        # These statistics may have no partitions.
        used = [each.used_fraction for each in stats.partitions]
        seen = Overview(stats, used, len(stats.handlers))
        yield Reading((id(elsewhere), stats.name), seen, loop_responds=True)
