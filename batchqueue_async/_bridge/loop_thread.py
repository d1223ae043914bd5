"""An event loop on a thread of its own, for programs that have none."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from batchqueue_async._bridge.sync_queue import SyncBatchQueue
from batchqueue_async._engine.manager import BatchQueueManager
from batchqueue_async._policies.config import BatchQueueConfig
from batchqueue_async._policies.errors import BatchQueueError
from batchqueue_async._policies.handlers import HandlerLike
from batchqueue_async._policies.items import T

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal


class LoopThread:
    """An event loop (uvloop's when installed) with the queues that run on it.

    Use it as `with LoopThread() as loop_thread`. Leaving it shuts all its queues down,
    the last opened first, within `shutdown_timeout` seconds; what is left then is
    logged and passed to `on_error`.

    Args:
        name: The thread's name.
        shutdown_timeout: Seconds for all queues together; None for no deadline.
    """

    def __init__(
        self, name: str = "batchqueue", *, shutdown_timeout: float | None = 30.0
    ) -> None:
        self._name = name
        self._shutdown_timeout = shutdown_timeout
        self._manager = BatchQueueManager()
        self._exit = contextlib.ExitStack()
        self._portal: BlockingPortal | None = None

    def __enter__(self) -> Self:
        # A fifth of the time that importing the package would take.
        import importlib.util  # noqa: PLC0415

        from anyio.from_thread import start_blocking_portal  # noqa: PLC0415

        options = {"use_uvloop": importlib.util.find_spec("uvloop") is not None}
        self._portal = self._exit.enter_context(
            start_blocking_portal("asyncio", options, name=self._name)
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        portal, self._portal = self._portal, None
        # Whatever the shutdown does, the thread ends.
        with self._exit:
            if portal is not None:
                portal.call(self._manager.close, self._shutdown_timeout)

    @property
    def portal(self) -> BlockingPortal:
        """Anyio's portal to the loop, to run anything else there.

        For instance queues that pass items on to each other: their handlers need the
        `BatchQueue` of the next one, which lives on the loop.

        Raises:
            BatchQueueError: The thread does not run.
        """
        if self._portal is None:
            msg = "a LoopThread runs inside of its with block only"
            raise BatchQueueError(msg)
        return self._portal

    def open(
        self,
        name: str,
        config: BatchQueueConfig[T] | None = None,
        handlers: Mapping[type[Any], HandlerLike[Any]] | None = None,
    ) -> SyncBatchQueue[T]:
        """Create a queue on the loop and start it, with these handlers by type.

        Raises:
            BatchQueueError: The thread does not run.
            DuplicateQueue: The name is taken.
        """
        return self.portal.call(self._open, name, config, handlers or {})

    async def _open(
        self,
        name: str,
        config: BatchQueueConfig[T] | None,
        handlers: Mapping[type[Any], HandlerLike[Any]],
    ) -> SyncBatchQueue[T]:
        queue = await self._manager.create(name, config)
        try:
            for item_type, handler in handlers.items():
                queue.add_handler(item_type, handler)
        except BaseException:
            await self._manager.shutdown(name)
            raise
        return SyncBatchQueue(queue)
