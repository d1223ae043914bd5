"""What a user would take instead, with producers on threads."""

import asyncio
import queue as thread_queue
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

import anyio
from anyio.from_thread import BlockingPortal

from benchmarks.contender import BOUND, BlockingFeed, Handlers
from benchmarks.floor import dispatch
from benchmarks.ours import beside, each_called
from benchmarks.peers_in_loop import aiologic_batcher, anyio_batcher, batcher


@asynccontextmanager
async def janus_bridge(handlers: Handlers) -> AsyncIterator[BlockingFeed]:
    """A janus queue with a hand-written batcher."""
    queue = import_module("janus").Queue(BOUND)
    async with beside(batcher(queue.async_q, handlers)):
        yield lambda portions: each_called(queue.sync_q.put, portions)
    await queue.aclose()


@asynccontextmanager
async def janus_of_lists(handlers: Handlers) -> AsyncIterator[BlockingFeed]:
    """Whole lists as items: nothing is merged, and the bound counts lists."""
    queue = import_module("janus").Queue(BOUND // 1000)

    async def drain() -> None:
        while True:
            await dispatch(await queue.async_q.get(), handlers)

    async with beside(drain()):
        yield lambda portions: each_called(queue.sync_q.put, portions)
    await queue.aclose()


@asynccontextmanager
async def culsans_bridge(handlers: Handlers) -> AsyncIterator[BlockingFeed]:
    """The same with culsans."""
    queue = import_module("culsans").Queue(BOUND)
    async with beside(batcher(queue.async_q, handlers)):
        yield lambda portions: each_called(queue.sync_q.put, portions)
    queue.close()


@asynccontextmanager
async def aiologic_bridge(handlers: Handlers) -> AsyncIterator[BlockingFeed]:
    """The same with aiologic."""
    queue = import_module("aiologic").Queue(BOUND)
    async with beside(aiologic_batcher(queue, handlers)):
        yield lambda portions: each_called(queue.green_put, portions)


@asynccontextmanager
async def executor(handlers: Handlers) -> AsyncIterator[BlockingFeed]:
    """`queue.Queue`; a thread waits for the first item, the loop takes the rest."""
    queue: thread_queue.Queue[Any] = thread_queue.Queue(BOUND)
    loop = asyncio.get_running_loop()
    end = object()

    async def drain() -> None:
        while (first := await loop.run_in_executor(None, queue.get)) is not end:
            batch = [first]
            # Not until the queue is empty: producers on threads may never let it be.
            batch += [queue.get_nowait() for _ in range(queue.qsize())]
            await dispatch(batch, handlers)

    task = asyncio.ensure_future(drain())
    yield lambda portions: each_called(queue.put, portions)
    queue.put(end)
    await task


def _threadsafe(put: Callable[[Any], Awaitable[None]]) -> BlockingFeed:
    loop = asyncio.get_running_loop()

    async def put_on_loop(portion: object) -> None:
        await put(portion)

    return lambda portions: each_called(
        lambda portion: asyncio.run_coroutine_threadsafe(
            put_on_loop(portion), loop
        ).result(),
        portions,
    )


@asynccontextmanager
async def threadsafe_coroutines(handlers: Handlers) -> AsyncIterator[BlockingFeed]:
    """`run_coroutine_threadsafe` for each item, waited for."""
    queue: asyncio.Queue[Any] = asyncio.Queue(BOUND)
    async with beside(batcher(queue, handlers)):
        yield _threadsafe(queue.put)


@asynccontextmanager
async def threadsafe_chunks(handlers: Handlers) -> AsyncIterator[BlockingFeed]:
    """`run_coroutine_threadsafe` for each chunk: the best peer that takes chunks."""
    queue: asyncio.Queue[Any] = asyncio.Queue(BOUND)

    async def put_each(chunk: Sequence[Any]) -> None:
        for item in chunk:
            await queue.put(item)

    async with beside(batcher(queue, handlers)):
        yield _threadsafe(put_each)


@asynccontextmanager
async def semaphore(handlers: Handlers) -> AsyncIterator[BlockingFeed]:
    """`call_soon_threadsafe` for each item; a semaphore makes producers wait."""
    queue: asyncio.Queue[Any] = asyncio.Queue()
    room = threading.BoundedSemaphore(BOUND)
    loop = asyncio.get_running_loop()

    async def drain() -> None:
        while True:
            batch = [await queue.get()]
            while not queue.empty():
                batch.append(queue.get_nowait())
            room.release(len(batch))
            await dispatch(batch, handlers)

    def put(item: object) -> None:
        room.acquire()
        loop.call_soon_threadsafe(queue.put_nowait, item)

    async with beside(drain()):
        yield lambda portions: each_called(put, portions)


@asynccontextmanager
async def portal(handlers: Handlers) -> AsyncIterator[BlockingFeed]:
    """Anyio's `BlockingPortal`, with a memory stream behind it."""
    send, receive = anyio.create_memory_object_stream[Any](BOUND)
    with send, receive:
        async with beside(anyio_batcher(receive, handlers)), BlockingPortal() as door:
            yield lambda portions: each_called(
                lambda item: door.call(send.send, item), portions
            )
