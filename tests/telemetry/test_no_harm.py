"""What a provider of OpenTelemetry's raises harms no batch, and is told once."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.context import Context
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import (
    ReadableSpan,
    Span,
    SpanProcessor,
    TracerProvider,
)
from opentelemetry.sdk.trace.sampling import StaticSampler

from batchqueue_async import BatchQueue, BatchQueueConfig, Retry
from batchqueue_async.telemetry import _opentelemetry as ours
from batchqueue_async.telemetry import instrument, with_links


def fail(*_: object, **__: object) -> Any:  # noqa: ANN401 - nothing
    message = "a fault of the program's"
    raise ValueError(message)


class Failing(SpanProcessor):
    def __init__(self, when: str) -> None:
        self._when = when

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        if self._when == "at the start":
            fail()

    def on_end(self, span: ReadableSpan) -> None:
        if self._when == "at the end":
            fail()


class FailingSampler(StaticSampler):
    should_sample = fail


def provider(when: str) -> TracerProvider:
    if when == "by the sampler":
        return TracerProvider(sampler=FailingSampler(None))  # type: ignore[arg-type]
    made = TracerProvider()
    made.add_span_processor(Failing(when))
    return made


def handler_of(form: str, batches: list[list[int]]) -> Callable[[list[int]], Any]:
    def store(batch: list[int]) -> None:
        batches.append(batch)

    async def store_async(batch: list[int]) -> None:
        batches.append(batch)

    forms: dict[str, Callable[[list[int]], Any]] = {
        "async": store_async,
        "sync": store,
        "behind a decorator": functools.partial(lambda call, b: call(b), store_async),
    }
    return forms[form]


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.message.partition("raised")[2] for each in caplog.records]


ONCE = [", which harms no batch; what it raises later is not told"]


@pytest.mark.parametrize("form", ["async", "sync", "behind a decorator"])
@pytest.mark.parametrize("when", ["at the start", "at the end", "by the sampler"])
async def test_a_span_that_fails_fails_no_batch(
    when: str, form: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A batch that was handled failed by the end of its span, and came again."""
    batches: list[list[int]] = []
    handler = with_links(handler_of(form, batches), tracer_provider=provider(when))
    config = BatchQueueConfig[int](consumer=handler, retry=Retry(attempts=3))
    async with BatchQueue("q", config) as queue:
        for number in range(2):
            await queue.produce(number)
            await queue.flush()
    assert batches == [[0], [1]]
    assert queue.stats().handled == 2
    assert said(caplog) == ONCE


@pytest.mark.real_time
async def test_a_histogram_that_fails_holds_no_queue_up(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler got its batch again and again, and a flush never ended."""
    metrics = MeterProvider()
    observed = ours._observed_by(metrics)
    monkeypatch.setattr(observed, "record", (fail, fail))
    batches: list[list[int]] = []
    config = BatchQueueConfig(consumer=batches.append, measure_handlers=True)
    async with BatchQueue("q", config) as queue:
        with instrument(queue, meter_provider=metrics):
            await queue.produce_many(range(5))
            await queue.flush(5)
    assert batches == [[*range(5)]]
    assert said(caplog) == ONCE
