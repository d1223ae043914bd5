"""B2 to B4 with types and handlers that appear while several threads produce."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueueConfig,
    DeliveryError,
    DrainTaskPolicy,
    LoopThread,
    PartitionPolicy,
    SyncBatchQueue,
)
from tests.bridge.background import (
    PATIENCE,
    answers,
    in_background,
    wait_until,
)
from tests.bridge.gated import Gated
from tests.support.oracle import check_settled

Bridge = SyncBatchQueue[Any]


def new_types(count: int) -> list[type]:
    return [type(f"Type{number}", (), {}) for number in range(count)]


@pytest.mark.usefixtures("eager_switches")
@pytest.mark.parametrize("many", [False, True])
def test_types_that_appear_first_on_threads_are_placed_once(
    loop_thread: LoopThread, *, many: bool
) -> None:
    """Every thread brings all the types, at the same time, in its own order."""
    types = new_types(24)
    seen: Counter[type] = Counter()

    async def consume(batch: list[object]) -> None:
        seen.update(map(type, batch))
        await asyncio.sleep(0)

    config = BatchQueueConfig[Any](partitions=PartitionPolicy.fixed(8))
    queue: Bridge = loop_thread.open("q", config, {object: consume})
    ready = threading.Barrier(4, timeout=PATIENCE)

    def produce(thread: int) -> None:
        mine = types[thread * 6 :] + types[: thread * 6]
        ready.wait()
        if many:
            assert queue.produce_many(each() for each in mine for _ in range(3)) == 72
        else:
            assert all(queue.produce(each()) for each in mine for _ in range(3))

    answers(in_background(produce, n) for n in range(4))
    queue.flush(10)
    assert seen == dict.fromkeys(types, 12)
    routes = queue._queue._parts.placement.routes
    assert {each.accepted for each in check_settled(queue).partitions} == {
        # Types without a handler of their own live with their base's.
        0,
        24 * 12,
    }
    assert len({id(routes[each]) for each in types}) == 1


@pytest.mark.usefixtures("eager_switches")
def test_handlers_may_come_while_threads_produce_their_types(
    loop_thread: LoopThread,
) -> None:
    """Growth moves no type, enters no handler twice and loses nothing."""
    types = new_types(12)
    inside: Counter[type] = Counter()
    handled: list[Any] = []
    faults: list[str] = []

    class Handler:
        async def consume(self, batch: list[Any]) -> None:
            kind = type(batch[0])
            inside[kind] += 1
            if inside[kind] > 1:
                faults.append(f"{kind} entered twice")
            await asyncio.sleep(0)
            handled.extend(batch)
            inside[kind] -= 1

    config = BatchQueueConfig[Any](
        drain_tasks=DrainTaskPolicy.fixed(2),
        partitions=PartitionPolicy.adaptive(1),
        buffer_size=20,
    )
    queue: Bridge = loop_thread.open("q", config)

    def produce(thread: int) -> list[Any]:
        items = [types[(thread + step) % 12]() for step in range(240)]
        assert all(map(queue.produce, items))
        return items

    def register(some: list[type]) -> None:
        for each in some:
            queue.add_handler(each, Handler())

    produced = [in_background(produce, n) for n in range(3)]
    answers([in_background(register, types[:6]), in_background(register, types[6:])])
    items = [item for each in answers(produced) for item in each]
    queue.shutdown(10)
    assert not faults
    stats = check_settled(queue)
    assert stats.handled == len(handled)
    assert stats.handled + stats.unhandled == len(items) == stats.accepted
    assert set(map(id, handled)) <= set(map(id, items))
    order = {id(item): at for at, item in enumerate(items)}
    for thread in range(3):
        for each in types:
            mine = [order[id(item)] for item in handled if type(item) is each]
            own = [at for at in mine if at // 240 == thread]
            assert own == sorted(own)


class SlowBases(type):
    """Types whose bases take a while to look through, on one thread."""

    slow_thread: threading.Thread | None = None
    looking: threading.Event
    go_on: threading.Event

    @property
    def __mro__(cls) -> Iterator[type]:  # type: ignore[override]
        yield from type.__dict__["__mro__"].__get__(cls)
        if threading.current_thread() is SlowBases.slow_thread:
            SlowBases.looking.set()
            SlowBases.go_on.wait(PATIENCE)


def test_a_handler_that_comes_while_a_thread_looks_for_it_is_found(
    loop_thread: LoopThread,
) -> None:
    """The thread found none for this new type: that must not be remembered."""

    class New(metaclass=SlowBases): ...

    handler = Gated()
    # With a choice of partitions: for a single one nobody looks.
    config = BatchQueueConfig[Any](partitions=PartitionPolicy.fixed(2))
    queue: Bridge = loop_thread.open("q", config, {int: handler})
    handlers = queue._queue._parts.handlers
    SlowBases.looking, SlowBases.go_on = threading.Event(), threading.Event()

    def produce() -> bool:
        SlowBases.slow_thread = threading.current_thread()
        return queue.produce(New())

    producing = in_background(produce)
    assert SlowBases.looking.wait(10)
    version = handlers.version
    adding = in_background(queue.add_handler, New, handler)
    wait_until(lambda: handlers.version != version)
    SlowBases.go_on.set()
    assert producing.result(10)
    adding.result(10)
    SlowBases.slow_thread = None
    for _ in range(3):
        assert queue.produce(New())
    try:
        queue.flush(10)
    except DeliveryError as error:
        pytest.fail(str(error))
    assert len(handler.handled) == 4


def test_a_handler_can_be_taken_out_on_a_thread(loop_thread: LoopThread) -> None:
    base, own = Gated(), Gated()
    queue: Bridge = loop_thread.open("q", None, {object: base, str: own})
    assert queue.produce("a")
    queue.flush(10)
    assert queue.remove_handler(str) is True
    assert queue.remove_handler(str) is False
    assert queue.produce("b")
    queue.flush(10)
    queue.add_handler(str, own)
    assert queue.produce("c")
    queue.flush(10)
    assert (own.handled, base.handled) == (["a", "c"], ["b"])
    with pytest.raises(TypeError):
        queue.add_handler(int, 7)  # type: ignore[arg-type]
