"""What OpenTelemetry's provider raises is told once, and harms no batch.

By its specification it must not raise; but it calls processors, samplers and views of
the program's.
"""

from __future__ import annotations

from batchqueue_async._log import logger


class NoHarm:
    """Tells the first error that a provider raised about one queue, or one handler."""

    def __init__(self, *, queue: str | None = None, handler: str | None = None) -> None:
        self._queue, self._handler = queue, handler
        self._is_told = False

    def tell(self, error: Exception) -> None:
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
