"""Measures the ring beside queues, streams and its floor: python -m benchmarks.ring.

The same events go through the same graphs of handlers, in turns; what counts is the
time from the first event produced to the last one handled. Read the ratios: they come
from one run. `--waits` measures what each wait strategy costs, instead.
"""

import argparse
import asyncio
import gc
import os
import platform
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import anyio

from batchqueue_async.ring import Disruptor, ProducerType, RingBuffer
from benchmarks import ring_waits

SIZE = 1024
EVENTS = 60_000
ROUNDS = 5

FLOOR = "floor: bare lists, handed over"
QUEUE = "asyncio.Queue"
GRAPHS = {
    "unicast": "P -> A",
    "pipeline": "P -> A -> B -> C",
    "diamond": "P -> A and B -> C",
    "sequencer": "3 P -> A",
    "multicast": "P -> A, B and C",
}


class Event:
    """What is passed on; queues need a new one each time, the ring has its own."""

    __slots__ = ("value",)

    def __init__(self, value: int = 0) -> None:
        self.value = value


class Handler:
    """Adds up what it sees; both signatures do the same work."""

    def __init__(self) -> None:
        self.total = 0

    def on_event(self, event: Event, sequence: int, end_of_batch: bool) -> None:
        """Take an event from a ring."""
        self.total += event.value

    def take(self, event: Event) -> None:
        """Take an event from anything else."""
        self.total += event.value


def fill(event: Event, sequence: int, value: int) -> None:
    """Fill a slot."""
    event.value = value


@dataclass
class Graph:
    """One topology with fresh handlers."""

    name: str
    handlers: list[Handler] = field(
        default_factory=lambda: [Handler() for _ in range(3)]
    )

    @property
    def producers(self) -> int:
        """How many producers share the events."""
        return 3 if self.name == "sequencer" else 1

    def check(self) -> None:
        """Fail if an event was lost or handled twice."""
        used = 1 if self.name in {"unicast", "sequencer"} else 3
        expected = sum(range(EVENTS))
        assert [each.total for each in self.handlers[:used]] == [expected] * used


Run = Callable[[Graph], Awaitable[float]]


# --- the ring


async def publish_awaited(ring: RingBuffer[Event], values: range) -> None:
    """Publish one by one, awaiting each."""
    for value in values:
        await ring.publish_event(fill, value)


async def publish_or_rest(ring: RingBuffer[Event], values: range) -> None:
    """Publish without awaiting while there is room."""
    for value in values:
        if not ring.try_publish_event(fill, value):
            await ring.publish_event(fill, value)


async def publish_portions(ring: RingBuffer[Event], values: range) -> None:
    """Publish in portions of 1,000."""
    for at in range(0, len(values), 1000):
        await ring.publish_events(fill, values[at : at + 1000])


def through_ring(
    kind: ProducerType, publish: Callable[[RingBuffer[Event], range], Awaitable[None]]
) -> Run:
    """Return a run through a ring with that kind of producer."""

    async def run(graph: Graph) -> float:
        a, b, c = graph.handlers
        disruptor = Disruptor(Event, SIZE, producer=kind)
        if graph.name == "pipeline":
            disruptor.handle_events_with(a).then(b).then(c)
        elif graph.name == "diamond":
            disruptor.handle_events_with(a, b).then(c)
        elif graph.name == "multicast":
            disruptor.handle_events_with(a, b, c)
        else:
            disruptor.handle_events_with(a)
        shares = [range(at, EVENTS, graph.producers) for at in range(graph.producers)]
        started = time.perf_counter()
        async with disruptor as ring:
            if len(shares) == 1:
                await publish(ring, shares[0])
            else:
                await asyncio.gather(*(publish(ring, share) for share in shares))
        return time.perf_counter() - started

    return run


# --- queues and streams


@dataclass
class Pipe:
    """A bounded way from one task to another."""

    put: Callable[[Event], Awaitable[None]]
    get: Callable[[], Awaitable[Event]]


@contextmanager
def queues() -> Iterator[Callable[[], Pipe]]:
    """asyncio.Queue."""

    def make() -> Pipe:
        queue: asyncio.Queue[Event] = asyncio.Queue(SIZE)
        return Pipe(queue.put, queue.get)

    yield make


@contextmanager
def streams() -> Iterator[Callable[[], Pipe]]:
    """The memory object streams of anyio."""
    ends: list[Any] = []

    def make() -> Pipe:
        send, receive = anyio.create_memory_object_stream[Event](SIZE)
        ends.extend((send, receive))
        return Pipe(send.send, receive.receive)

    yield make
    for end in ends:
        end.close()


async def produce(values: range, pipes: list[Pipe]) -> None:
    """Make each event, and put it into every pipe."""
    if len(pipes) == 1:
        put = pipes[0].put
        for value in values:
            await put(Event(value))
        return
    for value in values:
        event = Event(value)
        for pipe in pipes:
            await pipe.put(event)


async def consume(handler: Handler, source: Pipe, target: Pipe | None = None) -> None:
    """Get, handle, pass on."""
    get, take = source.get, handler.take
    for _ in range(EVENTS):
        event = await get()
        take(event)
        if target is not None:
            await target.put(event)


async def join(handler: Handler, one: Pipe, other: Pipe) -> None:
    """Get each event from both, handle it once."""
    get_one, get_other, take = one.get, other.get, handler.take
    for _ in range(EVENTS):
        event = await get_one()
        await get_other()
        take(event)


def through_pipes(kind: Callable[[], Any]) -> Run:
    """Return a run through as many pipes as the graph has arrows."""

    async def run(graph: Graph) -> float:
        a, b, c = graph.handlers
        with kind() as make:
            p = [make() for _ in range(4)]
            tasks: list[Awaitable[None]]
            if graph.name == "pipeline":
                sources = [p[0]]
                tasks = [consume(a, p[0], p[1]), consume(b, p[1], p[2])]
                tasks.append(consume(c, p[2]))
            elif graph.name == "diamond":
                sources = [p[0], p[1]]
                tasks = [consume(a, p[0], p[2]), consume(b, p[1], p[3])]
                tasks.append(join(c, p[2], p[3]))
            elif graph.name == "multicast":
                sources = [p[0], p[1], p[2]]
                tasks = [consume(a, p[0]), consume(b, p[1]), consume(c, p[2])]
            else:
                sources = [p[0]]
                tasks = [consume(a, p[0])]
            n = graph.producers
            tasks += [produce(range(at, EVENTS, n), sources) for at in range(n)]
            started = time.perf_counter()
            await asyncio.gather(*tasks)
            return time.perf_counter() - started

    return run


async def through_lists(graph: Graph) -> float:
    """Append to a list, give the full list to each handler: no task waits, ever."""
    used = 1 if graph.name in {"unicast", "sequencer"} else 3
    takes = [handler.take for handler in graph.handlers[:used]]
    started = time.perf_counter()
    for at in range(0, EVENTS, SIZE):
        events = []
        for value in range(at, min(at + SIZE, EVENTS)):
            events.append(Event(value))  # noqa: PERF401  # one by one is the point
        for take in takes:
            for event in events:
                take(event)
        await asyncio.sleep(0)
    return time.perf_counter() - started


# --- comparing


@dataclass
class Contender:
    """One way of doing it, and its times."""

    name: str
    run: Run
    seconds: list[float] = field(default_factory=list)

    @property
    def nanoseconds(self) -> float:
        """The median time per event."""
        return statistics.median(self.seconds) / EVENTS * 1e9


def contenders() -> list[Contender]:
    """Return all of them, the ring first."""
    single, multi = ProducerType.SINGLE, ProducerType.MULTI
    return [
        Contender("ring, awaited", through_ring(multi, publish_awaited)),
        Contender("ring, try", through_ring(multi, publish_or_rest)),
        Contender("ring, portions of 1,000", through_ring(multi, publish_portions)),
        Contender("ring (SINGLE), awaited", through_ring(single, publish_awaited)),
        Contender("ring (SINGLE), try", through_ring(single, publish_or_rest)),
        Contender(QUEUE, through_pipes(queues)),
        Contender("anyio memory streams", through_pipes(streams)),
        Contender(FLOOR, through_lists),
    ]


def compare(name: str) -> None:
    """Run one graph through everything, in turns, and print medians."""
    all_of_them = contenders()
    if Graph(name).producers > 1:
        all_of_them = [each for each in all_of_them if "SINGLE" not in each.name]
    gc.collect()
    gc.freeze()
    for turn in range(-1, ROUNDS):  # The first one only warms up.
        for contender in all_of_them:
            graph = Graph(name)
            seconds = asyncio.run(run_once(contender.run, graph))
            graph.check()
            if turn >= 0:
                contender.seconds.append(seconds)
    gc.unfreeze()
    queue = next(each for each in all_of_them if each.name == QUEUE).nanoseconds
    floor = all_of_them[-1].nanoseconds
    print(f"\n{name}: {GRAPHS[name]}")
    print(f"{'':32}  x {QUEUE}  of floor  ns/event")
    for each in all_of_them:
        ns = each.nanoseconds
        print(f"{each.name:32}  {queue / ns:14.2f}  {floor / ns:8.0%}  {ns:8.0f}")


async def run_once(run: Run, graph: Graph) -> float:
    """Run as a coroutine, which `asyncio.run` wants."""
    return await run(graph)


# --- batch publication


def fill_bare(slots: list[Event], mask: int) -> None:
    """Fill 1,000 preallocated slots, as plainly as it goes."""
    for value in range(1000):
        slots[value & mask].value = value


def fill_bare_calling(slots: list[Event], mask: int) -> None:
    """The same by a function that fills."""
    for value in range(1000):
        fill(slots[value & mask], value, value)


async def claim_and_index(ring: RingBuffer[Event]) -> None:
    """Claim 1,000, fill `ring[sequence]`, publish."""
    high = await ring.claim(1000)
    for sequence in range(high - 999, high + 1):
        ring[sequence].value = sequence
    ring.publish(high - 999, high)


async def claim_and_list(ring: RingBuffer[Event]) -> None:
    """Claim 1,000, fill the list of their events, publish."""
    high = await ring.claim(1000)
    for sequence, event in enumerate(ring.events(high - 999, high), high - 999):
        event.value = sequence
    ring.publish(high - 999, high)


async def publish_thousand(ring: RingBuffer[Event]) -> None:
    """Publish 1,000 with a function that fills."""
    await ring.publish_events(fill, range(1000))


async def per_event(publish: Callable[[RingBuffer[Event]], Awaitable[None]]) -> float:
    """Return nanoseconds per event."""
    ring = RingBuffer(Event, SIZE)
    best = []
    for _ in range(7):
        started = time.perf_counter()
        for _ in range(30):
            await publish(ring)
        best.append(time.perf_counter() - started)
    return statistics.median(best) / 30_000 * 1e9


async def compare_batches() -> None:
    """Print what a batch of 1,000 costs beside a bare loop."""

    def of(bare: Callable[[list[Event], int], None]) -> Any:  # noqa: ANN401
        slots = [Event() for _ in range(SIZE)]

        async def run(ring: RingBuffer[Event]) -> None:
            bare(slots, SIZE - 1)

        return run

    loop, calling = (
        await per_event(of(fill_bare)),
        await per_event(of(fill_bare_calling)),
    )
    print("\nbatch publication of 1,000 events (no consumer)")
    print(f"{'':32}  of a bare loop  ns/event")
    for name, floor, publish in (
        ("claim, ring.events(), publish", loop, claim_and_list),
        ("claim, ring[sequence], publish", loop, claim_and_index),
        ("publish_events(fill, items)", calling, publish_thousand),
    ):
        ns = await per_event(publish)
        print(f"{name:32}  {floor / ns:14.0%}  {ns:8.0f}")
    print(f"bare loops: {loop:.0f} ns, {calling:.0f} ns if it calls `fill`")


async def count_events() -> None:
    """Print how many events are made while a ring runs."""
    made: list[Event] = []

    def factory() -> Event:
        made.append(Event())
        return made[-1]

    disruptor = Disruptor(factory, SIZE)
    disruptor.handle_events_with(Handler())
    async with disruptor as ring:
        at_start = len(made)
        await publish_awaited(ring, range(EVENTS))
    print(f"\nevents made: {at_start} at the start, {len(made) - at_start} after it")


def main() -> None:
    """Compare everything; takes about two minutes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graphs", nargs="*", help=f"some of {', '.join(GRAPHS)}")
    parser.add_argument("--waits", action="store_true", help="only wait strategies")
    chosen = parser.parse_args()
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else "?"
    print(
        f"{datetime.now(UTC):%Y-%m-%d}, {platform.python_implementation()} "
        f"{platform.python_version()}, {platform.system()} {platform.machine()}, "
        f"{cpus} cores, load {os.getloadavg()[0]:.1f}; {EVENTS} events, rings and "
        f"queues of {SIZE}, medians of {ROUNDS}"
    )
    if chosen.waits:
        ring_waits.main()
        return
    for name in chosen.graphs or GRAPHS:
        compare(name)
    asyncio.run(compare_batches())
    asyncio.run(count_events())


if __name__ == "__main__":
    main()
