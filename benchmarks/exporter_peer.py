"""OpenTelemetry's batch span processor: never blocks, and drops what it can't keep."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from benchmarks.contender import BOUND, BlockingFeed, Contender, Handlers


class _Exporter:
    """Counts, on the processor's own thread."""

    def __init__(self) -> None:
        self.exported = 0

    def export(self, batch: Sequence[Any]) -> None:
        self.exported += len(batch)

    def shutdown(self) -> None:
        """Have nothing to close."""


def span_processor(items: int) -> Contender:
    """Return it as a contender, which records the part of the spans that it drops."""
    dropped: list[float] = []
    return Contender(
        "OpenTelemetry's span processor",
        "one by one",
        _opens(dropped),
        items,
        needs="opentelemetry.sdk",
        dropped=dropped,
    )


def _opens(
    dropped: list[float],
) -> Callable[[Handlers], AbstractAsyncContextManager[BlockingFeed]]:
    @asynccontextmanager
    async def opened(handlers: Handlers) -> AsyncIterator[BlockingFeed]:
        # It logs each span that it drops; the lines are not to be measured.
        logging.getLogger("opentelemetry").setLevel(logging.ERROR)
        exporter = _Exporter()
        processor = import_module("opentelemetry.sdk.trace.export").BatchSpanProcessor(
            exporter, max_queue_size=BOUND, max_export_batch_size=1000
        )
        # All that it looks at; making real spans would cost more than the queue.
        flags = SimpleNamespace(sampled=True)
        span = SimpleNamespace(context=SimpleNamespace(trace_flags=flags))
        loop = asyncio.get_running_loop()
        handle = next(iter(handlers.values()))
        offered: list[int] = []

        async def tell(count: int) -> None:
            await handle([None] * count)

        def feed(portions: Sequence[Any]) -> None:
            for _ in portions:
                processor.on_end(span)
            processor.force_flush()
            offered.append(len(portions))
            asyncio.run_coroutine_threadsafe(tell(len(portions)), loop).result()

        yield feed
        await asyncio.to_thread(processor.shutdown)
        dropped.append(1 - exporter.exported / sum(offered))

    return opened
