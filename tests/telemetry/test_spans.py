"""`with_links`: a span per call of a handler, linked to where its items come from."""

import asyncio
import functools
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from batchqueue_async import BatchQueue, BatchQueueConfig, Retry
from batchqueue_async.telemetry import traceparent, with_links


@dataclass
class Event:
    number: int
    traceparent: str | None = field(default_factory=traceparent)


class Tracing:
    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("test")

    def batches(self) -> list[ReadableSpan]:
        spans = self._exporter.get_finished_spans()
        return [span for span in spans if span.name.startswith("process ")]


@pytest.fixture
def tracing() -> Iterator[Tracing]:
    tracing = Tracing()
    yield tracing
    tracing.provider.shutdown()


def linked(span: ReadableSpan) -> set[int]:
    return {link.context.span_id for link in span.links}


def span_id(span: trace.Span) -> int:
    return span.get_span_context().span_id


async def test_a_batch_is_linked_to_its_producers(tracing: Tracing) -> None:
    current: list[int] = []

    async def store(batch: list[Event]) -> None:
        current.append(span_id(trace.get_current_span()))
        await asyncio.sleep(0.01)

    handler = with_links(store, tracer_provider=tracing.provider)
    async with BatchQueue("q", BatchQueueConfig[Event](consumer=handler)) as queue:
        with tracing.tracer.start_as_current_span("first") as first:
            await queue.produce_many([Event(1), Event(2)])
        with tracing.tracer.start_as_current_span("second") as second:
            await queue.produce(Event(3))
        await queue.produce(Event(4))
        await queue.flush()
        assert queue.stats().handlers[0].name == store.__qualname__
    (span,) = tracing.batches()
    assert span.kind is trace.SpanKind.CONSUMER
    assert span.attributes == {"messaging.batch.message_count": 4}
    assert linked(span) == {span_id(first), span_id(second)}
    assert span.context is not None
    assert current == [span.context.span_id]
    # A new trace: a batch is nobody's child.
    assert span.parent is None


async def test_a_batch_is_no_child_of_the_span_that_opened_its_queue(
    tracing: Tracing,
) -> None:
    current: list[int] = []

    async def store(_: list[Event]) -> None:
        current.append(trace.get_current_span().get_span_context().span_id)

    handler = with_links(store, tracer_provider=tracing.provider)
    queue = BatchQueue("q", BatchQueueConfig[Event](consumer=handler))
    with tracing.tracer.start_as_current_span("startup"):
        await queue.start()
    with tracing.tracer.start_as_current_span("request") as request:
        await queue.produce(Event(1))
    await queue.close()
    (span,) = tracing.batches()
    assert span.parent is None
    assert linked(span) == {span_id(request)}
    assert span.context is not None
    assert current == [span.context.span_id]


async def test_sync_handlers_and_contexts_as_origins(tracing: Tracing) -> None:
    def store(_: list[int]) -> None:
        pass

    with tracing.tracer.start_as_current_span("request") as request:
        context = request.get_span_context()

    def origin(item: int) -> trace.SpanContext | None:
        if item == 0:
            raise LookupError(item)
        return context if item == 1 else None

    handler = with_links(store, origin, tracer_provider=tracing.provider)
    async with BatchQueue("q", BatchQueueConfig[int](consumer=handler)) as queue:
        await queue.produce_many([0, 1, 2])
    (span,) = tracing.batches()
    assert linked(span) == {context.span_id}
    assert queue.stats().handled == 3


async def test_what_it_raises_is_recorded_and_each_attempt_is_a_span(
    tracing: Tracing,
) -> None:
    attempts = 0

    async def store(_: list[int]) -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise OSError

    handler = with_links(store, lambda _: None, tracer_provider=tracing.provider)
    config = BatchQueueConfig[int](consumer=handler, retry=Retry(attempts=2))
    async with BatchQueue("q", config) as queue:
        await queue.produce(1)
    failed, done = tracing.batches()
    assert failed.status.status_code is trace.StatusCode.ERROR
    assert failed.events[0].name == "exception"
    assert done.status.status_code is trace.StatusCode.UNSET


@pytest.mark.parametrize("is_plain", [False, True])
async def test_a_call_that_is_cancelled_is_no_success(
    tracing: Tracing, *, is_plain: bool
) -> None:
    """By a time limit, say: the batch fails, and its span looked like any other."""

    async def store(_: list[int]) -> None:
        await asyncio.sleep(60)

    plain = functools.wraps(store)(lambda batch: store(batch))  # noqa: PLW0108 - plain
    handler = with_links(plain if is_plain else store, tracer_provider=tracing.provider)
    config = BatchQueueConfig[int](
        consumer=handler, on_error=lambda *_: None, handler_timeout=1.0
    )
    async with BatchQueue("q", config) as queue:
        await queue.produce(1)
    (span,) = tracing.batches()
    assert span.status.status_code is trace.StatusCode.ERROR
    assert span.status.description == "cancelled"
    assert span.end_time is not None


@pytest.mark.parametrize("handler_timeout", [None, 5.0])
async def test_an_async_handler_behind_a_plain_decorator_is_inside_of_its_span(
    tracing: Tracing, handler_timeout: float | None, caplog: pytest.LogCaptureFixture
) -> None:
    """It looks like a sync one, and what it does comes after its call."""
    current: list[int] = []

    async def store(_: list[int]) -> None:
        await asyncio.sleep(0.01)
        current.append(span_id(trace.get_current_span()))
        message = "no"
        raise ValueError(message)

    handler = with_links(
        functools.wraps(store)(lambda batch: store(batch)),  # noqa: PLW0108 - plain
        tracer_provider=tracing.provider,
    )
    config = BatchQueueConfig[int](
        consumer=handler,
        on_error=lambda *_: None,
        handler_timeout=handler_timeout,
    )
    async with BatchQueue("q", config) as queue:
        await queue.produce(1)
    (span,) = tracing.batches()
    assert current == [span.context.span_id]
    assert span.status.status_code is trace.StatusCode.ERROR
    assert [each.name for each in span.events] == ["exception"]
    assert caplog.messages == []


async def test_links_are_bounded(tracing: Tracing) -> None:
    def origin(item: int) -> str:
        return f"00-{item + 1:032x}-{item + 1:016x}-01"

    async def store(_: list[int]) -> None:
        pass

    handler = with_links(store, origin, tracer_provider=tracing.provider)
    async with BatchQueue("q", BatchQueueConfig[int](consumer=handler)) as queue:
        await queue.produce_many(range(1_000))
    (span,) = tracing.batches()
    assert len(span.links) == 128


async def test_hooks_are_kept(tracing: Tracing) -> None:
    class Store:
        tick_every = 1.0

        def __init__(self) -> None:
            self.called: list[str] = []

        async def consume(self, _: list[int]) -> None:
            self.called.append("consume")

        async def on_open(self) -> None:
            self.called.append("open")

        def on_tick(self) -> None:
            self.called.append("tick")

        async def on_close(self) -> None:
            self.called.append("close")

    store = Store()
    handler = with_links(store, lambda _: None, tracer_provider=tracing.provider)
    async with BatchQueue("q", BatchQueueConfig[int](consumer=handler)) as queue:
        await queue.produce(1)
        await asyncio.sleep(1.5)
        assert "Store" in queue.stats().handlers[0].name
    assert store.called == ["open", "consume", "tick", "close"]


def test_outside_of_a_span_there_is_no_traceparent() -> None:
    assert traceparent() is None


def test_what_is_no_handler_is_refused() -> None:
    with pytest.raises(TypeError, match="handler must"):
        with_links(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="origin must"):
        with_links(lambda _: None, 5)  # type: ignore[arg-type]
