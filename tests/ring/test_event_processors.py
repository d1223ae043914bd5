"""What handlers get, and when."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any

import pytest

from batchqueue_async.ring import (
    Disruptor,
    InvalidArgument,
    ProducerType,
    RingBuffer,
    RingError,
    RingHalted,
    Sequence,
    TimeoutBlockingWait,
    WaitStrategy,
    halt,
)
from tests.ring.events import Event, Recorder, fill, mark, small, turns


@pytest.mark.parametrize("size", [1, 2, 16])
async def test_every_handler_sees_everything_in_order(
    producer: ProducerType, wait: WaitStrategy, size: int
) -> None:
    disruptor = Disruptor(Event, size, producer=producer, wait=wait)
    first, second, last = (Recorder(name) for name in ("first", "second", "last"))
    disruptor.handle_events_with(first, second).then(last)
    async with disruptor as ring:
        for _ in range(10):
            await ring.publish_event(mark)
        await turns()
        for number in range(10, 40):
            await ring.publish_event(mark)
            if number % 7 == 0:
                await turns(3)

    for handler in (first, second, last):
        assert handler.sequences == [*range(40)]
        assert handler.values == [7 * sequence for sequence in range(40)]
        assert handler.log == ["start", "shutdown"]
        assert sum(handler.sizes) == 40
        assert len(handler.ends) == len(handler.sizes)


async def test_a_batch_is_what_is_there() -> None:
    disruptor = small(16)
    handler = Recorder()
    disruptor.handle_events_with(handler)
    async with disruptor as ring:
        for count in (1, 5, 2):
            for _ in range(count):
                assert ring.try_publish_event(mark)
            await turns()

    assert handler.sizes == [1, 5, 2]
    assert handler.ends == [0, 5, 7]


async def test_the_sequence_moves_once_per_batch() -> None:
    gate = asyncio.Event()
    disruptor = small(8)
    handler = Recorder(gate=gate)
    disruptor.handle_events_with(handler)
    async with disruptor as ring:
        await ring.publish_events(fill, range(5))
        await turns()
        gate.set()
        await turns(2)
        assert 0 < len(handler.seen) <= 5
        await turns()
        assert disruptor.stats().consumers[0].sequence == 4


async def test_a_batch_may_be_limited() -> None:
    disruptor = small(16)
    handler = Recorder()
    disruptor.handle_events_with(handler, max_batch=3)
    async with disruptor as ring:
        await ring.publish_events(fill, range(8))

    assert handler.sizes == [3, 3, 2]
    assert handler.ends == [2, 5, 7]
    with pytest.raises(
        InvalidArgument, match=r"^max_batch must be >= 1 or None, got 0"
    ):
        small().handle_events_with(Recorder(), max_batch=0)


async def test_a_batch_handler_gets_a_list_of_its_own() -> None:
    calls: list[tuple[list[Any], int]] = []
    batches: list[list[Event]] = []

    class Batches:
        async def on_batch(self, events: list[Event], first_sequence: int) -> None:
            await asyncio.sleep(0)
            calls.append(([event.value for event in events], first_sequence))
            batches.append(events)

    disruptor = small(4)
    disruptor.handle_events_with(Batches())
    async with disruptor as ring:
        await ring.publish_events(fill, "abc")
        await turns()
        await ring.publish_events(fill, "def")  # Across the end of the ring.
        await turns()
        batches[0].clear()
        await ring.publish_event(fill, "g")
        ring.abandon(await ring.claim())
        await ring.publish_events(fill, "hi")

    assert calls == [
        (["a", "b", "c"], 0),
        (["d", "e", "f"], 3),
        (["g"], 6),
        (["h", "i"], 8),
    ]


async def test_abandoned_slots_count_in_no_batch() -> None:
    disruptor = small(16)
    handler = Recorder()
    disruptor.handle_events_with(handler)
    async with disruptor as ring:
        await ring.publish_events(fill, "ab")
        ring.abandon(ring.try_claim(3) - 2, ring.cursor)
        await ring.publish_event(fill, "c")
        ring.abandon(ring.try_claim())
        await turns()
        ring.abandon(ring.try_claim())  # A batch without an event.
        await turns()
        assert disruptor.stats().consumers[0].sequence == 7

    assert handler.seen == [(0, "a", False), (1, "b", False), (5, "c", True)]
    assert handler.sizes == [3]


async def test_functions_and_methods_are_handlers() -> None:
    seen: list[object] = []

    class Owner:
        def method(self, event: Event, sequence: int, end_of_batch: bool) -> int:
            seen.append(("method", event.value))
            return 1  # What is returned is nobody's business.

    async def function(event: Event, sequence: int, end_of_batch: bool) -> None:
        await asyncio.sleep(0)
        seen.append(("function", event.value))

    owner = Owner()
    disruptor = small()
    disruptor.handle_events_with(owner.method, function)
    disruptor.after(owner.method).handle_events_with(lambda *args: seen.append(args[1]))
    async with disruptor as ring:
        await ring.publish_event(fill, "x")

    assert sorted(map(str, seen)) == ["('function', 'x')", "('method', 'x')", "0"]


def test_what_is_no_handler_is_refused() -> None:
    class Both(Recorder):
        def on_batch(self, events: list[Event], first_sequence: int) -> None: ...

    bad: list[Any] = [42, Recorder, Both(), None]
    for each in bad:
        with pytest.raises(InvalidArgument, match=r"^a handler must be"):
            small().handle_events_with(each)
    with pytest.raises(InvalidArgument, match=r"^at least one handler is needed$"):
        small().handle_events_with()
    with pytest.raises(InvalidArgument, match=r"^at least one handler is needed$"):
        small().after()


async def test_what_can_not_be_called_with_an_event_is_refused_at_once() -> None:
    def two(event: Event, sequence: int) -> None: ...

    class Batches:
        def on_batch(self, events: list[Event]) -> None: ...

    disruptor = small(4)
    wrong: list[Any] = [two, Batches(), [].append]
    for handler in wrong:
        with pytest.raises(InvalidArgument, match=r"^a handler must be callable with"):
            disruptor.handle_events_with(handler)
    disruptor.handle_events_with(lambda *event: None)
    disruptor.handle_exceptions_with(lambda error, sequence, event: None)
    wrong = ["halt", lambda error: None]
    for on_error in wrong:
        with pytest.raises(InvalidArgument, match=r"^on_error must be callable with"):
            disruptor.handle_exceptions_with(on_error)


async def test_a_busy_handler_leaves_the_loop_to_others() -> None:
    disruptor = small(4)
    stop = False

    def endless(event: Event, sequence: int, end_of_batch: bool) -> None:
        if not stop:
            assert disruptor.ring.try_publish_event(mark) or sequence >= 0

    disruptor.handle_events_with(endless, max_batch=1)
    async with disruptor as ring:
        await ring.publish_event(mark)
        await turns(50)
        stop = True
    assert ring.cursor > 10


async def test_a_timeout_is_told_with_the_sequence() -> None:
    told: list[tuple[float, int]] = []
    loop = asyncio.get_running_loop()

    class Handler(Recorder):
        def on_timeout(self, sequence: int) -> None:
            told.append((loop.time() - started, sequence))

    disruptor = small(wait=TimeoutBlockingWait(2.0))
    disruptor.handle_events_with(Handler())
    started = loop.time()
    async with disruptor as ring:
        await asyncio.sleep(5)
        await ring.publish_event(mark)
        await asyncio.sleep(3)

    assert [sequence for _, sequence in told] == [-1, -1, 0]
    assert [when for when, _ in told] == pytest.approx([2, 4, 7])


async def test_a_handler_may_tell_how_far_it_has_come_within_a_batch() -> None:
    gate = asyncio.Event()

    class Reporting:
        sequence: Sequence

        def set_sequence_callback(self, sequence: Sequence) -> None:
            self.sequence = sequence

        async def on_event(
            self, event: Event, sequence: int, end_of_batch: bool
        ) -> None:
            self.sequence.value = sequence - 1
            await gate.wait()

    disruptor = small(4)
    handler, after = Reporting(), Recorder()
    disruptor.handle_events_with(handler).then(after)
    async with disruptor as ring:
        await ring.publish_events(fill, range(4))
        await turns()
        gate.set()
        await turns(2)
        gate.clear()
        await ring.publish_event(fill, 4)
        gate.set()
    assert after.values == [*range(5)]


# --- errors


class Faulty(Recorder):
    """Raises for some sequences."""

    def __init__(self, *bad: int, is_async: bool = False) -> None:
        super().__init__("faulty")
        self._bad = bad
        self._is_async = is_async

    def on_event(
        self, event: Event, sequence: int, end_of_batch: bool
    ) -> Awaitable[None] | None:
        if self._is_async:
            return self._later(event, sequence, end_of_batch)
        self._now(event, sequence, end_of_batch)
        return None

    def _now(self, event: Event, sequence: int, end_of_batch: bool) -> None:
        if sequence in self._bad:
            message = f"event {sequence}"
            raise ValueError(message)
        super()._record(event, sequence, end_of_batch)

    async def _later(self, event: Event, sequence: int, end_of_batch: bool) -> None:
        await asyncio.sleep(0)
        self._now(event, sequence, end_of_batch)


@pytest.mark.parametrize("is_async", [False, True])
async def test_by_default_an_error_is_logged_and_the_event_passed(
    caplog: pytest.LogCaptureFixture, is_async: bool
) -> None:
    disruptor = small(8)
    faulty, after = Faulty(2, 3, 9, is_async=is_async), Recorder()
    disruptor.handle_events_with(faulty).then(after)
    async with disruptor as ring:
        await ring.publish_events(fill, range(20))

    assert faulty.sequences == [n for n in range(20) if n not in (2, 3, 9)]
    assert after.values == [*range(20)]
    assert disruptor.stats().consumers[0].failed == 3
    records = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.name for record in records] == ["batchqueue_async.ring"] * 3
    assert str(records[0].exc_info[1]) == "event 2"  # type: ignore[index]


async def test_a_log_filter_that_raises_halts_no_ring(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse(_: logging.LogRecord) -> bool:
        msg = "the filter's"
        raise RuntimeError(msg)

    disruptor, logger = small(8), logging.getLogger("batchqueue_async.ring")
    disruptor.handle_events_with(Faulty(2, 3, 9))
    logger.addFilter(refuse)
    try:
        async with disruptor as ring:
            await ring.publish_events(fill, range(20))
    finally:
        logger.removeFilter(refuse)
    assert disruptor.stats().consumers[0].failed == 3
    assert capsys.readouterr().err.count("RuntimeError: the filter's\n") == 3


async def test_an_exception_handler_gets_error_sequence_and_event() -> None:
    calls: list[tuple[str, int, Any]] = []

    async def mine(error: Exception, sequence: int, event: Event) -> None:
        await asyncio.sleep(0)
        calls.append((str(error), sequence, event.value))

    disruptor = small(8)
    faulty, other = Faulty(1), Faulty(2)
    disruptor.handle_events_with(faulty, other)
    disruptor.handle_exceptions_with(mine, faulty)
    disruptor.handle_exceptions_with(lambda *args: calls.append(("default", *args[1:])))
    async with disruptor as ring:
        await ring.publish_events(fill, "abc")

    assert ("event 1", 1, "b") in calls
    assert [call[:2] for call in calls if call[0] == "default"] == [("default", 2)]
    with pytest.raises(InvalidArgument):
        disruptor.handle_exceptions_with(mine, Recorder())


async def test_later_handlers_get_the_default_exception_handler() -> None:
    calls: list[int] = []
    disruptor = small(8)
    disruptor.handle_exceptions_with(lambda _, sequence, __: calls.append(sequence))
    disruptor.handle_events_with(Faulty(1))
    async with disruptor as ring:
        await ring.publish_events(fill, range(3))
    assert calls == [1]


async def test_halting_stops_everything_and_tells_the_producers() -> None:
    disruptor = small(4)
    faulty, after = Faulty(5), Recorder()
    disruptor.handle_events_with(faulty).then(after)
    disruptor.handle_exceptions_with(halt)
    says = "the ring was halted at event 5, in faulty"
    with pytest.raises(RingHalted, match=f"^{says}$") as caught:
        async with disruptor as ring:
            await ring.publish_events(fill, range(100))

    assert isinstance(caught.value.__cause__, ValueError)
    assert faulty.sequences == [*range(5)]
    assert max(after.sequences, default=-1) <= 4
    assert disruptor.stats().consumers[0].sequence == 4, "5 is not passed"
    await disruptor.shutdown()  # The cause has been told.


async def test_a_halt_that_no_producer_noticed_is_raised_at_the_end() -> None:
    disruptor = small(4)
    disruptor.handle_events_with(Faulty(0))
    disruptor.handle_exceptions_with(halt)
    with pytest.raises(RingHalted) as caught:
        async with disruptor as ring:
            await ring.publish_event(mark)
    assert str(caught.value.__cause__) == "event 0"


async def test_a_halt_after_others_were_refused_is_raised_too() -> None:
    """They were told that the ring is closed, which says nothing about the error."""
    gate = asyncio.Event()

    async def faulty(event: Event, sequence: int, end_of_batch: bool) -> None:
        await gate.wait()
        raise OSError

    disruptor = small(4)
    disruptor.handle_events_with(faulty)
    disruptor.handle_exceptions_with(halt)
    ring = await disruptor.start()
    await ring.publish_event(mark)
    closing = asyncio.create_task(disruptor.shutdown())
    await turns()
    with pytest.raises(RingHalted, match=r"^the ring is closed$"):
        ring.try_claim()
    gate.set()
    says = "the ring was halted at event 0, in faulty"
    with pytest.raises(RingHalted, match=f"^{says}$"):
        await closing


async def test_the_error_of_the_block_is_the_one_that_is_raised() -> None:
    disruptor = small(4)
    disruptor.handle_events_with(Faulty(0))
    disruptor.handle_exceptions_with(halt)
    with pytest.raises(KeyError):  # noqa: PT012
        async with disruptor as ring:
            await ring.publish_event(mark)
            raise KeyError


async def test_an_exception_handler_that_raises_halts() -> None:
    def broken(error: Exception, sequence: int, event: object) -> None:
        message = "broken"
        raise OSError(message)

    disruptor = small(4)
    disruptor.handle_events_with(Faulty(0))
    disruptor.handle_exceptions_with(broken)
    with pytest.raises(RingHalted) as caught:
        async with disruptor as ring:
            await ring.publish_events(fill, range(20))
    assert isinstance(caught.value.__cause__, OSError)


async def test_a_batch_that_fails_counts_as_passed() -> None:
    calls: list[tuple[int, list[Any]]] = []

    class Batches:
        def on_batch(self, events: list[Event], first_sequence: int) -> None:
            if first_sequence == 0:
                raise ValueError

    def on_error(error: Exception, sequence: int, events: list[Event]) -> None:
        calls.append((sequence, [event.value for event in events]))

    disruptor = small(4)
    disruptor.handle_events_with(Batches())
    disruptor.handle_exceptions_with(on_error)
    async with disruptor as ring:
        await ring.publish_events(fill, "abc")
        await turns()
        await ring.publish_events(fill, "de")
    assert calls == [(0, ["a", "b", "c"])]


async def test_a_coroutine_that_nobody_awaits_is_told_as_an_error() -> None:
    """Nothing of it has run: its events were not consumed."""
    told: list[tuple[str, int]] = []

    async def store(value: object) -> None:
        """Would store it."""

    class Batches:
        async def on_batch(self, events: list[Event], _: int) -> object:
            return store(events)

    async def on_event(event: Event, _: int, is_last: bool) -> object:
        return store(event)

    for handler in (Batches(), on_event):
        disruptor = small(4)
        disruptor.handle_events_with(handler)
        disruptor.handle_exceptions_with(
            lambda error, sequence, _: told.append((str(error), sequence))
        )
        async with disruptor as ring:
            await ring.publish_event(mark)
    why = f"must await what it calls, got the coroutine {store.__qualname__}"
    assert [sequence for _, sequence in told] == [0, 0]
    assert all(why in text for text, _ in told)


@pytest.mark.parametrize("is_async", [False, True])
async def test_work_that_is_not_done_is_told_as_an_error(*, is_async: bool) -> None:
    """A future is awaited; `map(...)` has called nothing."""
    told: list[tuple[str, int]] = []

    async def store(value: Event) -> None:
        await asyncio.sleep(0)
        raise ValueError(value.value)

    def begins(event: Event, sequence: int, _: bool) -> object:
        if sequence:
            return map(store, [event])
        return asyncio.ensure_future(store(event))

    async def forgets_await(event: Event, sequence: int, is_last: bool) -> object:
        return begins(event, sequence, is_last)

    disruptor = small(4)
    disruptor.handle_events_with(forgets_await if is_async else begins)
    disruptor.handle_exceptions_with(
        lambda error, sequence, _: told.append((str(error), sequence))
    )
    async with disruptor as ring:
        await ring.publish_events(fill, "ab")
    assert told[0] == ("a", 0)
    assert "got a map as its result" in told[1][0]


async def test_hooks_that_raise_go_to_the_exception_handler() -> None:
    calls: list[tuple[str, int, object]] = []

    class Hooks(Recorder):
        def on_start(self) -> None:
            raise ValueError("start")  # noqa: EM101

        async def on_shutdown(self) -> None:  # type: ignore[override]
            raise ValueError("shutdown")  # noqa: EM101

        def on_batch_start(self, size: int) -> None:
            raise ValueError("batch")  # noqa: EM101

    disruptor = small(4)
    handler = Hooks()
    disruptor.handle_events_with(handler)
    disruptor.handle_exceptions_with(
        lambda *args: calls.append((str(args[0]), *args[1:]))
    )
    async with disruptor as ring:
        await ring.publish_event(mark)

    assert calls == [("start", -1, None), ("batch", -1, None), ("shutdown", 0, None)]
    assert handler.sequences == [0]


async def test_a_cancelled_error_of_the_handlers_own_is_an_error() -> None:
    errors: list[Exception] = []

    async def handler(event: Event, sequence: int, end_of_batch: bool) -> None:
        if sequence == 1:
            raise asyncio.CancelledError

    disruptor = small(4)
    disruptor.handle_events_with(handler)
    disruptor.handle_exceptions_with(lambda error, *_: errors.append(error))
    async with disruptor as ring:
        await ring.publish_events(fill, range(10))
    assert [type(error) for error in errors] == [RingError]


async def test_so_is_that_of_a_batch_or_of_an_exception_handler() -> None:
    class Batches:
        async def on_batch(self, events: list[Event], first_sequence: int) -> None:
            raise asyncio.CancelledError

    async def on_error(error: Exception, sequence: int, event: object) -> None:
        assert isinstance(error, RingError)
        raise asyncio.CancelledError

    disruptor = small(4)
    disruptor.handle_events_with(Batches())
    disruptor.handle_exceptions_with(on_error)
    with pytest.raises(RingHalted) as caught:
        async with disruptor as ring:
            await ring.publish_event(mark)
    assert isinstance(caught.value.__cause__, RingError)


async def test_a_consumer_cancelled_from_outside_halts_the_ring() -> None:
    disruptor = small(2)
    disruptor.handle_events_with(Recorder("victim", gate=asyncio.Event()))
    with pytest.raises(RingHalted) as caught:  # noqa: PT012
        async with disruptor as ring:
            await ring.publish_event(mark)
            await turns()
            for task in asyncio.all_tasks():
                if task.get_name() == "ring consumer victim":
                    task.cancel()
            await ring.publish_events(fill, range(10))
    assert str(caught.value.__cause__) == "ring consumer victim was cancelled"


async def test_a_wait_strategy_that_breaks_halts_the_ring(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken:
        async def wait_for(self, sequence: int, barrier: object) -> int:
            raise OSError

    disruptor = small(2, wait=Broken())
    disruptor.handle_events_with(Recorder())
    with pytest.raises(RingHalted):  # noqa: PT012
        async with disruptor as ring:
            await turns()
            await ring.publish_event(mark)
    assert "ring consumer recorder ended" in caplog.text


async def test_a_handler_that_waits_for_room_only_it_can_make_is_told() -> None:
    errors: list[Exception] = []
    disruptor = small(2)
    ring: RingBuffer[Event] = disruptor.ring

    async def echo(event: Event, sequence: int, end_of_batch: bool) -> None:
        if event.value < 3:
            await ring.publish_event(fill, event.value + 1)
            await ring.publish_event(fill, event.value + 1)

    disruptor.handle_events_with(echo)
    disruptor.handle_exceptions_with(lambda error, *_: errors.append(error))
    async with disruptor:
        await ring.publish_event(fill, 0)
        await turns(100)
    assert errors
    assert str(errors[0]).startswith("a handler waits for room in its own ring")


async def test_a_handler_may_wait_for_room_that_others_make() -> None:
    """It is ahead of the slowest one, which goes on by itself."""
    gate = asyncio.Event()
    slow = Recorder("slow", gate=gate)
    disruptor = small(2)
    has_echoed = False

    async def echo(event: Event, sequence: int, end_of_batch: bool) -> None:
        nonlocal has_echoed
        if not has_echoed and sequence == 1:
            has_echoed = True
            await disruptor.ring.publish_event(fill, "echo")

    disruptor.handle_events_with(echo, slow, max_batch=1)
    async with disruptor as ring:
        await ring.publish_events(fill, "ab")
        await turns()
        gate.set()
        await turns()
    assert slow.values == ["a", "b", "echo"]
