"""A FastAPI service: events come in one by one, and go to SQLite in batches.

A request is answered at once: 202 for an accepted event, 429 while the queue is full,
503 after it was closed. At SIGTERM uvicorn answers the last requests; then the lifespan
drains the queue, before it closes the database.

    EVENTS=events.db uvicorn examples.service:app
    python -m examples.service   # A proof, with a locked database and SIGTERM.
"""

import asyncio
import os
import signal
import socket
import sqlite3
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path
from subprocess import Popen

import aiohttp
import aiosqlite
from fastapi import FastAPI, Response
from pydantic import BaseModel, TypeAdapter

from batchqueue_async import BatchQueue, BatchQueueConfig, BatchQueueStats, Offer, Retry

TABLE = "CREATE TABLE IF NOT EXISTS events (id UNIQUE, page)"
# Rows that are tried again may be there already. It is one statement for all rows: a
# thread that releases the GIL after each row waits for it after each row, up to 5 ms
# while the loop is busy.
INSERT = """
    INSERT OR IGNORE INTO events
    SELECT value ->> 'id', value ->> 'page' FROM json_each(?)
"""
STATUS = {Offer.ACCEPTED: 202, Offer.FULL: 429, Offer.CLOSED: 503}


class Event(BaseModel):
    id: int
    page: str


EVENTS = TypeAdapter(list[Event])


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with aiosqlite.connect(os.environ["EVENTS"]) as database:
        await database.execute(TABLE)

        async def write(batch: list[Event]) -> None:
            try:
                await database.execute(INSERT, [EVENTS.dump_json(batch).decode()])
                await database.commit()
            except BaseException:
                await database.rollback()
                raise

        locked = Retry(attempts=10, retry_on=(sqlite3.OperationalError,))
        config = BatchQueueConfig(
            consumer=write, max_batch=500, linger=0.05, buffer_size=500, retry=locked
        )
        async with BatchQueue("events", config) as app.state.queue:
            yield


app = FastAPI(lifespan=lifespan)


@app.post("/events")
async def record(event: Event) -> Response:
    return Response(status_code=STATUS[app.state.queue.offer(event)])


@app.get("/stats")
async def stats() -> BatchQueueStats:
    queue: BatchQueue[Event] = app.state.queue
    return queue.stats()


@contextmanager
def serving(database: Path) -> Iterator[tuple[str, Popen[bytes]]]:
    """Run the service on a free port, and in the end have it stopped by SIGTERM."""
    environment = {**os.environ, "EVENTS": str(database)}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port, fd = listener.getsockname()[1], listener.fileno()
        uvicorn = f"-m uvicorn --log-level=warning --fd={fd} service:app".split()
        command, home = [sys.executable, *uvicorn], Path(__file__).parent
        service = Popen(command, cwd=home, env=environment, pass_fds=[fd])
    try:
        yield f"http://127.0.0.1:{port}", service
    finally:
        service.terminate()
        service.wait()


async def load(database: Path, told: dict[int, bool]) -> None:
    """Send events; note which were accepted, of those that got an answer."""

    async def send(number: int) -> None:
        event = {"id": number, "page": "/pricing"}
        # Without an answer nobody knows whether it was accepted.
        with suppress(aiohttp.ClientError):
            async with client.post("/events", json=event) as response:
                told[number] = response.ok

    with serving(database) as (url, service):
        async with aiohttp.ClientSession(url) as client:
            await send(0)
            with closing(sqlite3.connect(database)) as other:
                other.execute("BEGIN EXCLUSIVE")  # Locked: the queue fills.
                await asyncio.gather(*map(send, range(1, 1200)))
            sending = [asyncio.create_task(send(n)) for n in range(1200, 2400)]
            await sending[600]
            service.terminate()  # In the middle of the traffic.
            await asyncio.gather(*sending)
    if service.returncode != -signal.SIGTERM:
        sys.exit(f"the service ended by itself: {service.returncode}")


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # As orderly as by Ctrl-C.
    told: dict[int, bool] = {}
    with tempfile.TemporaryDirectory() as directory:
        database = Path(directory, "events.db")
        try:
            asyncio.run(load(database, told))
        finally:
            with closing(sqlite3.connect(database)) as connection:
                connection.execute(TABLE)
                stored = {n for (n,) in connection.execute("SELECT id FROM events")}
            accepted = {n for n, is_accepted in told.items() if is_accepted}
            print(f"{len(accepted)} accepted, {len(told) - len(accepted)} refused")
            print(f"{len(accepted - stored)} of the accepted are lost")
            if accepted - stored or stored & (told.keys() - accepted):
                sys.exit("the account is wrong")


if __name__ == "__main__":
    main()
