"""What a user would take instead, with producers on the loop."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

import anyio

from benchmarks.contender import BOUND, Feed, Handlers
from benchmarks.floor import dispatch
from benchmarks.ours import beside, each_awaited

_logger = logging.getLogger(__name__)


async def batcher(queue: Any, handlers: Handlers) -> None:  # noqa: ANN401
    """The loop that everybody writes: wait for one item, then take what is there."""
    while True:
        batch = [await queue.get()]
        while not queue.empty():
            batch.append(queue.get_nowait())
        await dispatch(batch, handlers)


async def one_by_one(queue: Any, handlers: Handlers) -> None:  # noqa: ANN401
    """A consumer that makes no batches: each item is a call of its handler."""
    while True:
        item = await queue.get()
        await handlers[type(item)]([item])


async def careful_batcher(queue: Any, handlers: Handlers, most: int) -> None:  # noqa: ANN401
    """The loop of an experienced author: a bound, errors caught, `task_done` called.

    Each handler has a list of its own, so that what failed is still known.
    """
    while True:
        batch = [await queue.get()]
        while len(batch) < most and not queue.empty():
            batch.append(queue.get_nowait())
        by_type: defaultdict[type, list[Any]] = defaultdict(list)
        for item in batch:
            by_type[type(item)].append(item)
        for item_type, share in by_type.items():
            try:
                await handlers[item_type](share.copy())
            except Exception:
                _logger.exception("%d items failed", len(share))
            finally:
                for _ in share:
                    queue.task_done()


@asynccontextmanager
async def asyncio_queue(handlers: Handlers) -> AsyncIterator[Feed]:
    """`asyncio.Queue` with a hand-written batcher."""
    queue: asyncio.Queue[Any] = asyncio.Queue(BOUND)
    async with beside(batcher(queue, handlers)):
        yield lambda portions: each_awaited(queue.put, portions)


@asynccontextmanager
async def asyncio_queue_nowait(handlers: Handlers) -> AsyncIterator[Feed]:
    """The same, awaited only where it is full."""
    queue: asyncio.Queue[Any] = asyncio.Queue(BOUND)

    async def feed(portions: Sequence[Any]) -> None:
        for item in portions:
            try:
                queue.put_nowait(item)
            except asyncio.QueueFull:
                await queue.put(item)

    async with beside(batcher(queue, handlers)):
        yield feed


@asynccontextmanager
async def asyncio_queue_each(handlers: Handlers) -> AsyncIterator[Feed]:
    """The same for chunks; it has no bulk put."""
    async with asyncio_queue(handlers) as feed:

        async def feed_chunks(portions: Sequence[Any]) -> None:
            for chunk in portions:
                await feed(chunk)

        yield feed_chunks


@asynccontextmanager
async def asyncio_queue_of_lists(handlers: Handlers) -> AsyncIterator[Feed]:
    """Whole lists as items: nothing is merged, and the bound counts lists."""
    queue: asyncio.Queue[list[Any]] = asyncio.Queue(BOUND // 1000)

    async def drain() -> None:
        while True:
            await dispatch(await queue.get(), handlers)

    async with beside(drain()):
        yield lambda portions: each_awaited(queue.put, portions)


async def anyio_batcher(receive: Any, handlers: Handlers) -> None:  # noqa: ANN401
    """The hand-written loop for a memory stream."""
    while True:
        batch = [await receive.receive()]
        try:
            while True:
                batch.append(receive.receive_nowait())
        except anyio.WouldBlock:
            await dispatch(batch, handlers)


@asynccontextmanager
async def anyio_send(handlers: Handlers) -> AsyncIterator[Feed]:
    """An anyio memory stream; `send` gives the turn away each time."""
    send, receive = anyio.create_memory_object_stream[Any](BOUND)
    with send, receive:
        async with beside(anyio_batcher(receive, handlers)):
            yield lambda portions: each_awaited(send.send, portions)


@asynccontextmanager
async def anyio_send_nowait(handlers: Handlers) -> AsyncIterator[Feed]:
    """The same with `send_nowait`, and `send` where it is full."""
    send, receive = anyio.create_memory_object_stream[Any](BOUND)

    async def feed(portions: Sequence[Any]) -> None:
        for item in portions:
            try:
                send.send_nowait(item)
            except anyio.WouldBlock:
                await send.send(item)

    with send, receive:
        async with beside(anyio_batcher(receive, handlers)):
            yield feed


@asynccontextmanager
async def janus_in_loop(handlers: Handlers) -> AsyncIterator[Feed]:
    """The async half of janus alone."""
    queue = import_module("janus").Queue(BOUND)
    async with beside(batcher(queue.async_q, handlers)):
        yield lambda portions: each_awaited(queue.async_q.put, portions)
    await queue.aclose()


@asynccontextmanager
async def culsans_in_loop(handlers: Handlers) -> AsyncIterator[Feed]:
    """The async half of culsans alone."""
    queue = import_module("culsans").Queue(BOUND)
    async with beside(batcher(queue.async_q, handlers)):
        yield lambda portions: each_awaited(queue.async_q.put, portions)
    queue.close()


async def aiologic_batcher(queue: Any, handlers: Handlers) -> None:  # noqa: ANN401
    """The hand-written loop for aiologic, whose length tells whether it is empty."""
    while True:
        batch = [await queue.async_get()]
        while len(queue):
            batch.append(await queue.async_get())
        await dispatch(batch, handlers)


@asynccontextmanager
async def aiologic_in_loop(handlers: Handlers) -> AsyncIterator[Feed]:
    """The async half of aiologic's queue."""
    queue = import_module("aiologic").Queue(BOUND)
    async with beside(aiologic_batcher(queue, handlers)):
        yield lambda portions: each_awaited(queue.async_put, portions)


@asynccontextmanager
async def aiostream_in_loop(handlers: Handlers) -> AsyncIterator[Feed]:
    """Aiostream's `chunks`: no queue; it pulls from the producer."""
    stream = import_module("aiostream").stream

    async def feed(portions: Sequence[Any]) -> None:
        async def producer() -> AsyncIterator[Any]:
            for item in portions:
                yield item

        async with stream.chunks(producer(), 1000).stream() as batches:
            async for batch in batches:
                await dispatch(batch, handlers)

    yield feed
