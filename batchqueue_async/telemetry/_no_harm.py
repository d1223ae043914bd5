"""What OpenTelemetry's provider raises is told once, and harms no batch.

By its specification it must not raise; but it calls processors, samplers and views of
the program's.
"""

from __future__ import annotations

from batchqueue_async._log import logger


class NoHarm:
    """Keeps what a provider raises in its block, and tells the first such error.

    There is one for each queue, or each handler.
    """

    def __init__(self, *, queue: str | None = None, handler: str | None = None) -> None:
        self._queue, self._handler = queue, handler
        self._is_told = False

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: object, error: BaseException | None, trace: object
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        if not self._is_told:
            self._is_told = True
            logger.error(
                "%s: OpenTelemetry's provider raised, which harms no batch; what it "
                "raises later is not told",
                self._queue or self._handler,
                exc_info=error,
                queue=self._queue,
                handler=self._handler,
            )
        return True
