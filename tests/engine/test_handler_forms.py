"""Handlers of every form work; what cannot be a handler is refused, and says why."""
# ruff: noqa: ANN401 - any form, right or wrong, is the point

import asyncio
import functools
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from types import SimpleNamespace
from typing import Any, TypedDict

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig, IdleBackoff, in_thread
from batchqueue_async.testing import RecordingHandler
from tests.engine.every_loop import every_loop
from tests.engine.until import until
from tests.support.oracle import check_settled
from tests.support.recording_handler import RecordingConsumer

Received = list[list[int]]
QUICK = IdleBackoff(0.001, 0.002)


def plain_function(received: Received) -> Any:
    def consume(batch: list[int]) -> None:
        received.append(batch)

    return consume


def async_function(received: Received) -> Any:
    async def consume(batch: list[int]) -> None:
        await asyncio.sleep(0)
        received.append(batch)

    return consume


def builtin_method(received: Received) -> Any:
    return received.append


def partial_function(received: Received) -> Any:
    async def consume(to: Received, batch: list[int]) -> None:
        await asyncio.sleep(0)
        to.append(batch)

    return functools.partial(consume, received)


def function_that_returns_an_awaitable(received: Received) -> Any:
    consume = async_function(received)
    return lambda batch: consume(batch)  # noqa: PLW0108 - looks like a sync one


def function_that_returns_a_future(received: Received) -> Any:
    consume = async_function(received)
    return lambda batch: asyncio.ensure_future(consume(batch))


def function_that_returns_a_value(received: Received) -> Any:
    def consume(batch: list[int]) -> list[int]:
        received.append(batch)
        return batch

    return consume


def callable_object(received: Received) -> Any:
    class Handler:
        def __call__(self, batch: list[int]) -> None:
            received.append(batch)

    return Handler()


def callable_object_with_a_flag(received: Received) -> Any:
    class Handler:
        def __init__(self) -> None:
            self.consume = True

        def __call__(self, batch: list[int]) -> None:
            received.append(batch)

    return Handler()


def async_callable_object(received: Received) -> Any:
    class Handler:
        async def __call__(self, batch: list[int]) -> None:
            await asyncio.sleep(0)
            received.append(batch)

    return Handler()


def sync_object(received: Received) -> Any:
    class Handler:
        def consume(self, batch: list[int]) -> None:
            received.append(batch)

    return Handler()


def async_object(received: Received) -> Any:
    class Handler:
        async def consume(self, batch: list[int]) -> None:
            await asyncio.sleep(0)
            received.append(batch)

    return Handler()


def object_with_static_consume(received: Received) -> Any:
    class Handler:
        @staticmethod
        def consume(batch: list[int]) -> None:
            received.append(batch)

    return Handler()


def module_like_object(received: Received) -> Any:
    class Handler:
        __slots__ = ("consume",)

    handler = Handler()
    handler.consume = received.append  # type: ignore[attr-defined]
    return handler


def class_that_takes_a_batch(received: Received) -> Any:
    class Batch:
        def __init__(self, batch: list[int]) -> None:
            received.append(batch)

    return Batch


FORMS = [
    plain_function,
    async_function,
    builtin_method,
    partial_function,
    function_that_returns_an_awaitable,
    function_that_returns_a_future,
    function_that_returns_a_value,
    callable_object,
    callable_object_with_a_flag,
    async_callable_object,
    sync_object,
    async_object,
    object_with_static_consume,
    module_like_object,
    class_that_takes_a_batch,
]


@every_loop
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("handler_timeout", [None, 1.0])
@pytest.mark.filterwarnings("ignore:handler_timeout has no effect")
@pytest.mark.parametrize("as_consumer", [False, True])
async def test_every_form_gets_its_batches(
    form: Callable[[Received], Any],
    handler_timeout: float | None,
    *,
    as_consumer: bool,
) -> None:
    received: Received = []
    handler = form(received)
    config = BatchQueueConfig[int](
        consumer=handler if as_consumer else None, handler_timeout=handler_timeout
    )
    async with BatchQueue("q", config) as queue:
        if not as_consumer:
            queue.add_handler(int, handler)
        assert await queue.produce_many([1, 2]) == 2
        await queue.flush()
        assert await queue.produce(3)
    assert received == [[1, 2], [3]]
    assert check_settled(queue).handled == 3


@every_loop
async def test_hooks_may_be_sync_or_async() -> None:
    calls: list[str] = []

    class Handler:
        def consume(self, batch: list[int]) -> None:
            calls.append("consume")

        def on_idle(self) -> None:
            if "on_idle" not in calls:
                calls.append("on_idle")

        async def on_flush(self) -> None:
            calls.append("on_flush")

        def on_close(self) -> None:
            calls.append("on_close")

    async with BatchQueue("q", BatchQueueConfig[int](idle=QUICK)) as queue:
        queue.add_handler(int, Handler())
        await until(lambda: calls == ["on_idle"])
        assert await queue.produce(1)
        await queue.flush()
    assert calls == ["on_idle", "consume", "on_flush", "on_close"]


@every_loop
async def test_hooks_are_optional_and_may_be_none() -> None:
    class Handler(RecordingConsumer[int]):
        on_idle = None
        on_flush = None
        on_close = None

    handler = Handler()
    async with BatchQueue("q", BatchQueueConfig[int](idle=QUICK)) as queue:
        queue.add_handler(int, handler)
        assert await queue.produce(1)
        await queue.flush()
        await asyncio.sleep(0.01)
    assert handler.items == [1]


WRONG: list[tuple[object, str]] = [
    (None, "callable"),
    (42, "callable"),
    ("consume", "callable"),
    ([], "callable"),
    (RecordingHandler, "not its class"),
    (object(), "callable"),
]


@pytest.mark.parametrize("handler, why", WRONG)
def test_what_takes_no_batch_is_refused(handler: Any, why: str) -> None:
    queue = BatchQueue[int]("q")
    with pytest.raises(TypeError, match=why):
        queue.add_handler(int, handler)
    with pytest.raises(TypeError, match=why):
        in_thread(handler)
    if handler is not None:
        with pytest.raises(TypeError, match=why):
            BatchQueueConfig[int](consumer=handler)
    assert not queue.remove_handler(int), "nothing was registered"


class Row(TypedDict):
    number: int


@pytest.mark.parametrize(
    "item_type, shown",
    [
        (1, "1"),
        ("int", "'int'"),
        (None, "None"),
        (int | str, r"int \| str"),
        (list[int], r"list\[int\]"),
        (Any, "typing.Any"),
        (Row, "<class '.*Row'>"),
    ],
)
def test_what_no_item_has_for_its_class_is_refused(item_type: Any, shown: str) -> None:
    with pytest.raises(TypeError, match=f"item_type must be a class.*got {shown}$"):
        BatchQueue[int]("q").add_handler(item_type, print)


@pytest.mark.parametrize(
    "weight, error",
    [
        (0, ValueError),
        (-1.0, ValueError),
        (float("nan"), ValueError),
        (float("inf"), ValueError),
        ("1", TypeError),
        (None, TypeError),
        (True, TypeError),
    ],
)
def test_a_wrong_weight_is_refused(weight: Any, error: type[Exception]) -> None:
    queue = BatchQueue[int]("q")
    with pytest.raises(error, match="weight"):
        queue.add_handler(int, print, weight=weight)
    assert not queue.remove_handler(int)


def generator_function(batch: list[int]) -> Iterator[int]:
    yield from batch


async def async_generator_function(batch: list[int]) -> AsyncIterator[int]:
    for item in batch:
        yield item


@every_loop
@pytest.mark.parametrize("handler", [generator_function, async_generator_function])
async def test_a_generator_is_refused_or_fails_but_never_counts_as_handled(
    handler: Any,
) -> None:
    """A stray `yield` in a handler: its body never runs, so nothing was handled."""
    config = BatchQueueConfig[int](on_error=lambda _, __: None)
    async with BatchQueue("q", config) as queue:
        try:
            queue.add_handler(int, handler)
        except TypeError:
            return
        assert await queue.produce(1)
    stats = check_settled(queue)
    assert (stats.handled, stats.failed) == (0, 1)


async def insert(rows: list[int]) -> None:
    """Would store them."""


async def forgets_await(batch: list[int]) -> object:
    return insert(batch)


async def forgets_await_after_a_wait(batch: list[int]) -> object:
    await asyncio.sleep(0)
    return insert(batch)


def decorated_without_await(batch: list[int]) -> object:
    return forgets_await(batch)


@every_loop
@pytest.mark.parametrize(
    "handler", [forgets_await, forgets_await_after_a_wait, decorated_without_await]
)
@pytest.mark.parametrize("handler_timeout", [None, 1.0])
@pytest.mark.parametrize("has_on_open", [False, True])
async def test_a_coroutine_that_nobody_awaits_never_counts_as_handled(
    handler: Any, handler_timeout: float | None, *, has_on_open: bool
) -> None:
    """Nothing of it has run."""
    told: list[str] = []
    hooks = {"on_open": lambda: None} if has_on_open else {}
    config = BatchQueueConfig[int](
        consumer=SimpleNamespace(consume=handler, **hooks),
        handler_timeout=handler_timeout,
        max_batch=1,
        on_error=lambda _, error: told.append(str(error)),
    )
    async with BatchQueue("q", config) as queue:
        await queue.produce_many([1, 2, 3])
    why = (
        "an async handler must await what it calls, "
        "got the coroutine insert as its result, which nothing runs"
    )
    assert told == [why] * 3
    stats = check_settled(queue)
    assert (stats.handled, stats.failed) == (0, 3)


@every_loop
async def test_a_hook_and_on_error_are_told_of_a_coroutine_that_nobody_awaits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Handler:
        async def consume(self, batch: list[int]) -> None:
            raise ValueError(batch)

        async def on_close(self) -> object:
            return insert([])

    async def on_error(batch: list[int], _: BaseException) -> Any:
        return insert(batch)

    config = BatchQueueConfig[int](consumer=Handler(), on_error=on_error)
    async with BatchQueue("q", config) as queue:
        await queue.produce(1)
    assert queue.stats().not_closed == (Handler.__qualname__,)
    assert [record.hook for record in caplog.records] == ["on_error", "on_close"]  # type: ignore[attr-defined]


@every_loop
async def test_other_results_of_an_async_handler_are_not_looked_at() -> None:
    """A task runs by itself; a proxy may have lost its object."""
    stored: list[int] = []

    async def store(batch: list[int]) -> None:
        stored.extend(batch)

    async def consume(batch: list[int]) -> object:
        return asyncio.create_task(store(batch)) if batch == [1] else gone()

    def gone() -> object:
        return weakref.proxy(Blocking())

    config = BatchQueueConfig[int](consumer=consume, max_batch=1)
    async with BatchQueue("q", config) as queue:
        await queue.produce_many([1, 2])
    assert check_settled(queue).handled == 2
    assert stored == [1]


# --- in_thread


class Blocking:
    """A blocking handler with every hook; notes the threads that it is called on."""

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self.calls: list[str] = []
        self.items: list[int] = []

    def consume(self, batch: list[int]) -> None:
        self._note("consume")
        self.items += batch

    def on_idle(self) -> None:
        self._note("on_idle")

    def on_flush(self) -> None:
        self._note("on_flush")

    def on_close(self) -> None:
        self._note("on_close")

    def _note(self, call: str) -> None:
        self.threads.add(threading.get_ident())
        if call not in self.calls:
            self.calls.append(call)


@pytest.mark.real_time
async def test_a_blocking_handler_and_its_hooks_run_off_the_loop() -> None:
    handler = Blocking()
    async with BatchQueue("q", BatchQueueConfig[int](idle=QUICK)) as queue:
        queue.add_handler(int, in_thread(handler))
        assert await queue.produce_many([1, 2, 3]) == 3
        await queue.flush()
        await until(lambda: "on_idle" in handler.calls)
    assert handler.items == [1, 2, 3]
    assert set(handler.calls) == {"consume", "on_idle", "on_flush", "on_close"}
    assert threading.get_ident() not in handler.threads


@pytest.mark.real_time
async def test_a_blocking_function_runs_off_the_loop() -> None:
    seen: list[tuple[list[int], int]] = []

    def consume(batch: list[int]) -> None:
        seen.append((batch, threading.get_ident()))

    async with BatchQueue("q", BatchQueueConfig[int]()) as queue:
        queue.add_handler(int, in_thread(consume))
        assert await queue.produce(1)
    ((batch, thread),) = seen
    assert batch == [1]
    assert thread != threading.get_ident()


@pytest.mark.real_time
async def test_a_blocking_handler_leaves_the_loop_free() -> None:
    release = threading.Event()

    def consume(_: list[int]) -> None:
        release.wait(5)

    async with BatchQueue("q", BatchQueueConfig[int]()) as queue:
        queue.add_handler(int, in_thread(consume))
        assert await queue.produce(1)
        await until(lambda: queue.stats().in_flight == 1)
        await asyncio.sleep(0.01)
        assert queue.stats().in_flight == 1
        release.set()
    assert check_settled(queue).handled == 1


@pytest.mark.real_time
async def test_what_a_thread_raises_fails_its_batch() -> None:
    failed: list[tuple[list[int], BaseException]] = []
    error = ValueError("from a thread")

    def consume(batch: list[int]) -> None:
        if 1 in batch:
            raise error

    config = BatchQueueConfig[int](on_error=lambda *each: failed.append(each))
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, in_thread(consume))
        assert await queue.produce(1)
        await until(lambda: failed)
        assert await queue.produce(2)
    assert failed == [([1], error)]
    assert check_settled(queue).handled == 1


@pytest.mark.real_time
async def test_one_wrapped_handler_serves_two_queues() -> None:
    handler = Blocking()
    wrapped = in_thread(handler)
    config = BatchQueueConfig[int](consumer=wrapped)
    async with BatchQueue("a", config) as first, BatchQueue("b", config) as second:
        assert await first.produce(1)
        assert await second.produce(2)
    assert sorted(handler.items) == [1, 2]


def test_a_wrapped_handler_serves_one_loop_after_another() -> None:
    """What anyio makes for it belongs to a loop; the handler does not."""
    handler = Blocking()
    wrapped = in_thread(handler)

    async def main(item: int) -> None:
        async with BatchQueue("q", BatchQueueConfig[int](consumer=wrapped)) as queue:
            assert await queue.produce(item)

    for item in range(3):
        asyncio.run(main(item))
    assert handler.items == [0, 1, 2]


def _async_function() -> Any:
    async def consume(batch: list[int]) -> None: ...

    return consume


def _async_object() -> Any:
    return RecordingConsumer[int]()


def _async_callable_object() -> Any:
    class Handler:
        async def __call__(self, batch: list[int]) -> None: ...

    return Handler()


def _hidden_coroutine() -> Any:
    consume = _async_function()
    return lambda batch: consume(batch)  # noqa: PLW0108 - looks like a sync one


def _hidden_async_generator() -> Any:
    return lambda batch: async_generator_function(batch)  # noqa: PLW0108 - hidden


def _async_on_close() -> Any:
    class Handler:
        def consume(self, batch: list[int]) -> None: ...

        async def on_close(self) -> None: ...

    return Handler()


@pytest.mark.parametrize(
    "make", [_async_function, _async_object, _async_callable_object, _async_on_close]
)
def test_in_thread_refuses_what_is_async(make: Callable[[], Any]) -> None:
    """Its coroutine would be made on the thread and awaited by nobody."""
    with pytest.raises(TypeError, match="async"):
        in_thread(make())


@pytest.mark.real_time
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize(
    "make", [_hidden_coroutine, _hidden_async_generator, _async_callable_object]
)
async def test_a_coroutine_from_a_thread_is_not_taken_for_success(
    make: Callable[[], Any],
) -> None:
    """The wrapper cannot see beforehand what a lambda returns: it must look then."""
    try:
        wrapped: Any = in_thread(make())
    except TypeError:
        return
    config = BatchQueueConfig[int](consumer=wrapped, on_error=lambda _, __: None)
    async with BatchQueue("q", config) as queue:
        assert await queue.produce(1)
    stats = check_settled(queue)
    assert (stats.handled, stats.failed) == (0, 1)
