"""Little room: nearly every producer waits, so what counts is what a wait costs."""

import asyncio
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Sequence,
)
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio

from batchqueue_async import BatchQueue, BatchQueueConfig
from benchmarks import ours
from benchmarks.contender import Contender, Feed, Handlers, Items, in_loop_rate
from benchmarks.floor import FloorQueue
from benchmarks.peers_in_loop import (
    anyio_batcher,
    batcher,
    careful_batcher,
    one_by_one,
)
from benchmarks.promising_floor import PromisingFloor
from benchmarks.scale import LoopFactory, Scale
from benchmarks.table import Table
from benchmarks.throughput import COLUMNS, compare
from benchmarks.turns import Turns

ROOM = 10
PRODUCERS = (1, 4, 16)
CONFIG = BatchQueueConfig[Any](buffer_size=ROOM)
_MOST = 20_000

Put = Callable[[Any], Awaitable[Any]]
Consume = Callable[[asyncio.Queue[Any], Handlers], Coroutine[Any, Any, None]]
FeedOf = Callable[[Put], Feed]


def producing(producers: int) -> str:
    """Return the number of producers as the table names it."""
    return "1 producer" if producers == 1 else f"{producers:,} producers"


def queue_row(producers: int) -> str:
    """Return the row of `asyncio.Queue`, which the goals compare with."""
    return f"asyncio.Queue, put, {producing(producers)}"


def careful_row(producers: int) -> str:
    """Return the row of a batcher that does what the library does, as far as it can."""
    return f"the same, errors caught and counted, {producing(producers)}"


def handler_row(producers: int) -> str:
    """Return the row of the library with a type's handler: each item's is looked at."""
    return f"await produce, one type's handler, {producing(producers)}"


def table(loop: LoopFactory, scale: Scale, turns: Turns) -> Table:
    """Compare everybody with one producer, and with several."""
    contenders = [
        one for producers in PRODUCERS for one in contenders_of(producers, scale)
    ]
    empty = Table("room", f"Waiting for room; at most {ROOM} items wait", COLUMNS)
    rate = partial(in_loop_rate, items=Items(1, _MOST), loop=loop)
    return compare(empty, contenders, rate, turns, scale.of(11, turns.rounds))


def contenders_of(producers: int, scale: Scale) -> list[Contender]:
    """Return the library, its floor and its peers for so many producers."""
    feed_of = partial(fed_by, producers)
    suffix = producing(producers)
    made = partial(Contender, group=suffix, items=scale.of(_MOST, _MOST // 4))

    def put(queue: BatchQueue[Any]) -> Feed:
        return feed_of(queue.produce)

    return [
        # The batchers have one handler, too, and look at no item's type for it.
        made(
            f"await produce, consumer=, {suffix}",
            open=ours.consumer_queue(CONFIG, put),
            role="ours",
        ),
        made(
            handler_row(producers), open=ours.batch_queue(CONFIG, put), is_in_goals=True
        ),
        made(f"floor: await put, {suffix}", open=floor(feed_of), role="floor"),
        made(
            f"floor that keeps the promises, {suffix}",
            open=promising_floor(feed_of),
            role="other",
        ),
        made(
            queue_row(producers),
            open=asyncio_queue(feed_of, batcher),
            is_in_goals=True,
        ),
        made(
            careful_row(producers),
            open=asyncio_queue(feed_of, partial(careful_batcher, most=ROOM)),
            is_in_goals=True,
        ),
        made(
            f"the same, one by one, {suffix}", open=asyncio_queue(feed_of, one_by_one)
        ),
        made(f"anyio stream, send, {suffix}", open=anyio_stream(feed_of)),
    ]


def fed_by(producers: int, put: Put) -> Feed:
    """Return what produces all portions, by so many producers."""

    async def feed(portions: Sequence[Any]) -> None:
        shares = [portions[start::producers] for start in range(producers)]
        await asyncio.gather(*(ours.each_awaited(put, share) for share in shares))

    return feed


def floor(feed_of: FeedOf, room: int = ROOM) -> Callable[[Handlers], Any]:
    """Return what opens a floor with so much room."""

    @asynccontextmanager
    async def opened(handlers: Handlers) -> AsyncIterator[Feed]:
        queue = FloorQueue(room, handlers)
        async with ours.beside(queue.drain()):
            yield feed_of(queue.put)

    return opened


def promising_floor(feed_of: FeedOf) -> Callable[[Handlers], Any]:
    """Return what opens a floor that waits for room as the library does."""

    @asynccontextmanager
    async def opened(handlers: Handlers) -> AsyncIterator[Feed]:
        queue = PromisingFloor(ROOM, handlers)
        async with ours.beside(queue.drain()):
            yield feed_of(queue.put)

    return opened


def asyncio_queue(
    feed_of: FeedOf, consume: Consume, room: int = ROOM
) -> Callable[[Handlers], Any]:
    """Return what opens an `asyncio.Queue` with a hand-written consumer."""

    @asynccontextmanager
    async def opened(handlers: Handlers) -> AsyncIterator[Feed]:
        queue: asyncio.Queue[Any] = asyncio.Queue(room)
        async with ours.beside(consume(queue, handlers)):
            yield feed_of(queue.put)

    return opened


def anyio_stream(feed_of: FeedOf) -> Callable[[Handlers], Any]:
    """Return what opens an anyio memory stream with a hand-written batcher."""

    @asynccontextmanager
    async def opened(handlers: Handlers) -> AsyncIterator[Feed]:
        send, receive = anyio.create_memory_object_stream[Any](ROOM)
        with send, receive:
            async with ours.beside(anyio_batcher(receive, handlers)):
                yield feed_of(send.send)

    return opened
