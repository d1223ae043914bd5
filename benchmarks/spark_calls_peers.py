"""How calls are made from Spark without `map_async`, each as one would write it."""

import asyncio
import http.client
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from threading import local
from typing import Any

import aiohttp
import pyarrow as pa

from batchqueue_async import RetryAfter
from benchmarks.call_service import PAUSE

ATTEMPTS = 5
_TOO_MANY = 429
_OK = 200
_here = local()


def post(port: int, numbers: Any) -> Any:  # noqa: ANN401 - JSON
    """Call, as `requests` does with a session: this thread waits for the answer."""
    for _ in range(ATTEMPTS):
        connection = getattr(_here, "connection", None)
        if connection is None or connection.port != port:
            connection = _here.connection = http.client.HTTPConnection(
                "127.0.0.1", port
            )
        connection.request("POST", "/", json.dumps(numbers))
        response = connection.getresponse()
        text = response.read()
        if response.status == _OK:
            return json.loads(text)
        time.sleep(PAUSE)
    msg = "no answer"
    raise ConnectionError(msg)


@dataclass(frozen=True)
class Ask:
    """A call for `map_async`: retries are its own, 429 is told by `RetryAfter`."""

    query: str = ""

    async def __call__(
        self, client: aiohttp.ClientSession, batch: list[dict[str, Any]]
    ) -> list[tuple[int]]:
        """Call once."""
        numbers = [item["id"] for item in batch]
        return [(y,) for y in await self.numbers(client, numbers)]

    async def numbers(
        self, client: aiohttp.ClientSession, numbers: list[int]
    ) -> list[int]:
        """Call once, with plain numbers."""
        async with client.post(f"/{self.query}", json=numbers) as response:
            if response.status == _TOO_MANY:
                raise RetryAfter(float(response.headers["Retry-After"]))
            response.raise_for_status()
            answer: list[int] = await response.json()
            return answer

    async def again(
        self, client: aiohttp.ClientSession, numbers: list[int]
    ) -> list[int]:
        """Call, and try again: what is written by hand."""
        for _ in range(ATTEMPTS):
            try:
                return await self.numbers(client, numbers)
            except (RetryAfter, aiohttp.ClientError):
                await asyncio.sleep(PAUSE)
        msg = "no answer"
        raise ConnectionError(msg)


@dataclass(frozen=True)
class OpenSession:
    """Opens a client of the service."""

    port: int

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[aiohttp.ClientSession]:
        """Open it."""
        url = f"http://127.0.0.1:{self.port}"
        async with aiohttp.ClientSession(url) as client:
            yield client


Work = Callable[[list[int]], Awaitable[list[int]]]


def chunks(batch: pa.RecordBatch, size: int) -> list[list[int]]:
    """Return a record batch's numbers, as the calls get them."""
    numbers = batch.column(0).to_pylist()
    return [numbers[at : at + size] for at in range(0, len(numbers), size)]


def answer_of(results: list[list[int]]) -> pa.RecordBatch:
    """Return calls' results as a record batch."""
    return pa.record_batch({"y": [y for each in results for y in each]})


@cache
def pool(threads: int) -> ThreadPoolExecutor:
    """One for each process."""
    return ThreadPoolExecutor(threads)


def in_threads(port: int, size: int, at_once: int) -> Any:  # noqa: ANN401
    """For `mapInArrow` (as for `mapInPandas`): a thread pool for each record batch."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            work = pool(at_once).map(lambda each: post(port, each), chunks(batch, size))
            yield answer_of([*work])

    return run


async def gathered(work: Work, batch: pa.RecordBatch, size: int, at_once: int) -> Any:  # noqa: ANN401
    """Make the calls of one record batch, and wait for all of them."""
    gate = asyncio.Semaphore(at_once)

    async def one(numbers: list[int]) -> list[int]:
        async with gate:
            return await work(numbers)

    return answer_of(await asyncio.gather(*map(one, chunks(batch, size))))


def by_gather(
    size: int, at_once: int, *, work: Work | None = None, port: int = 0, query: str = ""
) -> Any:  # noqa: ANN401
    """For `mapInArrow`: `asyncio.gather` for each record batch, over HTTP or `work`."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with asyncio.Runner() as runner:
            session = None if work else OpenSession(port)()
            client = runner.run(session.__aenter__()) if session else None
            ask = Ask(query)
            chosen: Work = work or (lambda numbers: ask.again(client, numbers))  # type: ignore[arg-type]
            for batch in batches:
                yield runner.run(gathered(chosen, batch, size, at_once))
            if session:
                runner.run(session.__aexit__(None, None, None))

    return run


async def pipelined(port: int, numbers: range, size: int, at_once: int) -> int:
    """Call without Spark: `at_once` workers, each of which makes call after call."""
    left = iter(range(numbers.start, numbers.stop, size))
    ask, rows = Ask(), 0
    async with OpenSession(port)() as client:

        async def worker() -> None:
            nonlocal rows
            for start in left:
                end = min(start + size, numbers.stop)
                rows += len(await ask.again(client, [*range(start, end)]))

        await asyncio.gather(*(worker() for _ in range(at_once)))
    return rows


async def pipelined_in_order(port: int, numbers: range, size: int, at_once: int) -> int:
    """Call without Spark, too, and take the answers in their order.

    A call that is answered before an earlier one counts in `at_once`, as with Flink.
    """
    ask, rows = Ask(), 0
    begun: deque[asyncio.Task[list[int]]] = deque()
    async with OpenSession(port)() as client:
        for start in range(numbers.start, numbers.stop, size):
            if len(begun) == at_once:
                rows += len(await begun.popleft())
            asked = [*range(start, min(start + size, numbers.stop))]
            begun.append(asyncio.create_task(ask.again(client, asked)))
        while begun:
            rows += len(await begun.popleft())
    return rows
