"""A web service that answers at once and writes its rows to SQLite in batches.

Its requests await `produce`, so they slow down when the database can't keep up. At
SIGTERM (or Ctrl-C) it answers the last requests, writes what still waits, and ends.

    pip install '.[sqlite]' aiohttp
    python examples/service.py visits.db 8080
    curl -d 'page=/pricing' http://127.0.0.1:8080/visits
"""

import sys
import time
from collections.abc import AsyncIterator
from typing import NamedTuple

import aiosqlite
from aiohttp import web

from batchqueue_async import BatchQueue, BatchQueueConfig


class Visit(NamedTuple):
    """One row of the table."""

    at: float
    page: str


QUEUE: web.AppKey[BatchQueue[Visit]] = web.AppKey("visits")
PATH: web.AppKey[str] = web.AppKey("path")


async def record(request: web.Request) -> web.Response:
    """Accept a visit; it is written with the next batch."""
    form = await request.post()
    visit = Visit(time.time(), str(form.get("page", "")))
    if await request.app[QUEUE].produce(visit):
        return web.Response(status=202, text="accepted\n")
    return web.Response(status=503, text="shutting down\n")


async def visits(app: web.Application) -> AsyncIterator[None]:
    """Open the database and the queue; close them in the opposite order."""
    async with aiosqlite.connect(app[PATH]) as database:
        await database.execute("CREATE TABLE IF NOT EXISTS visits (at REAL, page TEXT)")

        async def write(batch: list[Visit]) -> None:
            try:
                await database.executemany("INSERT INTO visits VALUES (?, ?)", batch)
                await database.commit()
            except BaseException:
                await database.rollback()
                raise

        config = BatchQueueConfig(consumer=write, max_batch=1000, linger=0.05)
        async with BatchQueue("visits", config) as app[QUEUE]:
            yield


def main(path: str, port: int) -> None:
    """Serve until a signal comes."""
    app = web.Application()
    app[PATH] = path
    app.cleanup_ctx.append(visits)
    app.add_routes([web.post("/visits", record)])
    web.run_app(app, host="127.0.0.1", port=port)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
