"""A log shipper: follows a file that grows, and posts its lines to a bulk endpoint.

It keeps to a rate, waits when the collector says so, and sends only those lines again
that were not taken. How far it has come is noted beside the file: killed and started
again, it goes on from there.

    python -m examples.shipper app.log http://collector/bulk
    python -m examples.shipper   # A proof: killed in the middle, and started again.
"""

import asyncio
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import aiohttp
from aiohttp import web
from aiohttp.test_utils import TestServer
from aiolimiter import AsyncLimiter

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    PartialFailure,
    Retry,
    RetryAfter,
    drain_on_signals,
)

TAKEN, NEVER, LATER = 201, 400, 429
LINES = 10_000
log = logging.getLogger("shipper")


class Line(NamedTuple):
    text: bytes
    end: int  # Where the next one begins.


class Shipper:
    """Sends packages of lines, one at a time and in order."""

    def __init__(self, client: aiohttp.ClientSession, url: str, noted: Path) -> None:
        self._client, self._url, self._noted = client, url, noted
        self._limiter = AsyncLimiter(max_rate=20, time_period=1)

    async def consume(self, lines: list[Line]) -> None:
        package = b"".join(line.text for line in lines)
        async with self._limiter, self._client.post(self._url, data=package) as answer:
            if answer.status == LATER:
                raise RetryAfter(float(answer.headers.get("Retry-After", 1)))
            answer.raise_for_status()
            statuses: list[int] = await answer.json()
        for line, status in zip(lines, statuses, strict=True):
            if status == NEVER:
                log.error("refused for good: %r", line.text)
        if later := [n for n, status in enumerate(statuses) if status == LATER]:
            raise PartialFailure(later)
        # Replaced in one step, since the program may be killed here, too.
        new = self._noted.with_suffix(".new")
        new.write_text(str(lines[-1].end))
        new.replace(self._noted)


def complete_lines(file: BinaryIO) -> Iterator[Line]:
    while (text := file.readline()).endswith(b"\n"):
        yield Line(text, file.tell())
    file.seek(-len(text), os.SEEK_CUR)


async def ship(path: Path, url: str) -> None:
    """Follow the file until a signal comes."""
    noted = path.with_suffix(".sent")
    async with aiohttp.ClientSession() as client:
        config = BatchQueueConfig(
            consumer=Shipper(client, url, noted),
            max_batch=1000,
            size_of=lambda line: len(line.text),
            max_batch_bytes=1_000_000,
            linger=0.2,
            retry=Retry(attempts=1_000_000, wait_max=30),
        )
        async with BatchQueue("lines", config) as queue:
            drain_on_signals(queue, (signal.SIGTERM, signal.SIGINT), timeout=5)
            with path.open("rb") as file:
                file.seek(int(noted.read_text()) if noted.exists() else 0)
                while True:
                    await queue.produce_many(complete_lines(file))
                    await asyncio.sleep(0.1)


class Collector:
    """Stands for the other side: it is busy at first, then with three lines."""

    def __init__(self) -> None:
        self.packages: asyncio.Queue[int] = asyncio.Queue()
        self.lines: set[bytes] = set()
        self._is_busy, self._later = True, {b"250", b"500", b"750"}

    async def bulk(self, request: web.Request) -> web.Response:
        lines = (await request.read()).splitlines()
        self.packages.put_nowait(len(lines))
        if self._is_busy:
            self._is_busy = False
            raise web.HTTPTooManyRequests(headers={"Retry-After": "1"})
        return web.json_response([self._status(line) for line in lines])

    def _status(self, line: bytes) -> int:
        if line in self._later:
            self._later.remove(line)
            return LATER
        self.lines.add(line)
        return NEVER if line == b"0" else TAKEN


async def prove(path: Path, collector: Collector) -> None:
    app = web.Application(client_max_size=1_000_000)
    app.router.add_post("/bulk", collector.bulk)
    packages: list[int] = []
    async with TestServer(app) as server, asyncio.timeout(60):
        command = [sys.executable, __file__, str(path), str(server.make_url("/bulk"))]
        for enough, last_word in (3000, signal.SIGKILL), (LINES, signal.SIGTERM):
            shipper = await asyncio.create_subprocess_exec(*command)
            try:
                while len(collector.lines) < enough:
                    packages.append(await collector.packages.get())
            finally:
                shipper.send_signal(last_word)
                await shipper.wait()
    print("packages:", *packages[:5])


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # As orderly as by Ctrl-C.
    collector = Collector()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "app.log")
        path.write_text("".join(f"{number}\n" for number in range(LINES)))
        noted = path.with_suffix(".sent")
        noted.write_text("0")
        try:
            asyncio.run(prove(path, collector))
        finally:
            sent = path.read_bytes()[: int(noted.read_text())].splitlines()
            lost = {*sent} - collector.lines
            print(f"{len(sent)} lines are noted as sent, {len(lost)} of them are lost")
            if lost:
                sys.exit("the account is wrong")


if __name__ == "__main__":
    if sys.argv[1:]:
        asyncio.run(ship(Path(sys.argv[1]), sys.argv[2]))
    else:
        main()
