"""Type-checks `batchqueue_async.logging` as a user's program would."""

import logging
from collections.abc import Sequence
from typing import assert_type

from batchqueue_async.logging import BatchingHandler


def ship(records: list[logging.LogRecord]) -> None: ...


async def ship_async(records: Sequence[logging.LogRecord]) -> int:
    return len(records)


class Shipper:
    async def consume(self, batch: list[logging.LogRecord]) -> None: ...


def takes_strings(batch: list[str]) -> None: ...


def handlers() -> None:
    handler = BatchingHandler(ship)
    base: logging.Handler = handler
    logging.getLogger("shop").addHandler(base)
    assert_type(handler.dropped, int)
    assert_type(handler.flush(), None)
    assert_type(handler.close(), None)
    BatchingHandler(ship_async)
    BatchingHandler(Shipper())
    BatchingHandler(logging.StreamHandler())
    BatchingHandler(ship, capacity=100, max_batch=10, linger=0.5, shutdown_timeout=None)

    BatchingHandler(takes_strings)  # type: ignore[arg-type]
    BatchingHandler(ship, 100)  # type: ignore[call-arg]
    BatchingHandler(ship, capacity="100")  # type: ignore[arg-type]
