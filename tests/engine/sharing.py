"""Queues of one manager on shared drain tasks, and handlers that watch each other."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueManager,
    DrainTaskPolicy,
    SharedDrainTasks,
)
from tests.support.oracle import check_settled
from tests.support.recording_handler import RecordingHandler


def shared(n: int, name: str = "io") -> SharedDrainTasks:
    return SharedDrainTasks(name, DrainTaskPolicy.fixed(n))


def config(
    on: int | SharedDrainTasks,
    consumer: Any = None,  # noqa: ANN401
    **settings: Any,  # noqa: ANN401
) -> BatchQueueConfig[Any]:
    """Return the settings of a queue on these, or so many, shared drain tasks."""
    tasks = shared(on) if isinstance(on, int) else on
    return BatchQueueConfig[Any](drain_tasks=tasks, consumer=consumer, **settings)


async def swallow(_: list[Any]) -> None:
    """Takes everything."""


class Together:
    """Handlers that count how many of them are inside at once, over all queues."""

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0
        self.entered: list[str] = []
        self.handlers: list[Watched] = []

    def handler(self, name: str, **faults: Any) -> "Watched":  # noqa: ANN401
        """Return the next one, with the faults of a `RecordingHandler`."""
        self.handlers.append(Watched(self, name, **faults))
        return self.handlers[-1]


class Watched(RecordingHandler[Any]):
    """One of them."""

    def __init__(self, together: Together, name: str, **faults: Any) -> None:  # noqa: ANN401
        super().__init__(**faults)
        self._together = together
        self._name = name

    async def consume(self, batch: list[Any]) -> None:
        together = self._together
        together.entered.append(self._name)
        together.inside += 1
        together.most = max(together.most, together.inside)
        try:
            await super().consume(batch)
        finally:
            together.inside -= 1


@asynccontextmanager
async def sharing(
    n: int,
    *handlers: Any,  # noqa: ANN401
    **settings: Any,  # noqa: ANN401
) -> AsyncIterator[list[BatchQueue[Any]]]:
    """One queue per handler, all on `n` shared drain tasks; checked at the end."""
    async with BatchQueueManager() as manager:
        queues = [
            await manager.create(f"q{number}", config(n, handler, **settings))
            for number, handler in enumerate(handlers)
        ]
        yield queues
    for queue in queues:
        check_settled(queue)
