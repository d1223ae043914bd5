"""A bulk request answers for each item; only those that failed are sent again.

The server is in here. As Elasticsearch's `_bulk` does, it takes what it can, and says
for each item how it went: 201 for stored, 429 for "later", 400 for "never".

    python examples/bulk.py
"""

import asyncio
import logging
import sys
from collections.abc import Sequence

from batchqueue_async import BatchQueue, BatchQueueConfig, PartialFailure, Retry

STORED, INVALID, LATER = 201, 400, 429


class Server:
    """Is busy with some documents the first time, and cannot read one of them."""

    def __init__(self, busy: set[int], invalid: int) -> None:
        self._busy = busy
        self._invalid = invalid
        self.stored: set[int] = set()

    async def bulk(self, documents: Sequence[int]) -> list[int]:
        """Return a status for each document."""
        print(f"a bulk of {len(documents)}")
        await asyncio.sleep(0.01)
        return [self._store(document) for document in documents]

    def _store(self, document: int) -> int:
        if document == self._invalid:
            return INVALID
        if document in self._busy:
            self._busy.remove(document)
            return LATER
        self.stored.add(document)
        return STORED


async def main() -> None:
    """Send a thousand documents, of which three fail."""
    server = Server(busy={250, 750}, invalid=500)

    async def send(documents: list[int]) -> None:
        statuses = await server.bulk(documents)
        failed = [n for n, status in enumerate(statuses) if status != STORED]
        if failed:
            # The server's own `Retry-After`.
            raise PartialFailure(failed, retry_after=0.05)

    def keep(documents: list[int], error: BaseException) -> None:
        print(f"given up: {documents}, since {error}")

    config = BatchQueueConfig(
        consumer=send,
        linger=1.0,
        max_batch=1000,
        retry=Retry(attempts=3, wait_initial=0.01),
        on_error=keep,
    )
    async with BatchQueue("documents", config) as queue:
        await queue.produce_many(range(1000))
    stats = queue.stats()
    print(f"{stats.handled} handled, {stats.failed} failed")
    print(f"{len(server.stored)} documents are stored")


if __name__ == "__main__":
    # Where each retry is a line, and equal ones are counted.
    logging.basicConfig(stream=sys.stdout, format="%(message)s")
    asyncio.run(main())
