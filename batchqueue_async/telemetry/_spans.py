"""A span per batch, linked to the spans in which its items were produced."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from inspect import isawaitable
from typing import Any, Generic, TypeVar, cast

from opentelemetry.trace import (
    INVALID_SPAN,
    Link,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    TracerProvider,
    get_current_span,
    get_tracer,
    set_span_in_context,
    use_span,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from batchqueue_async._functions import (
    attribute_of,
    is_async,
    name_of,
    require_sync_function,
)
from batchqueue_async._policies.handler_checks import consume_of
from batchqueue_async._policies.handlers import HandlerLike
from batchqueue_async._validation import refuse
from batchqueue_async._version import __version__
from batchqueue_async.telemetry._no_harm import NoHarm

T = TypeVar("T")

Origin = str | SpanContext | None
"""Where an item comes from: a W3C traceparent, a span's context, or unknown."""

MOST_LINKS = 128
"""As many as OpenTelemetry's SDK keeps of a span, unless it is told otherwise."""

_propagator = TraceContextTextMapPropagator()


def traceparent() -> str | None:
    """Return the current span as a W3C traceparent, for an item to take along.

    None outside of any span. It is a string: it can be pickled, stored, and sent.
    """
    carrier: dict[str, str] = {}
    _propagator.inject(carrier)
    return carrier.get("traceparent")


def _own_traceparent(item: object) -> Origin:
    return cast("Origin", getattr(item, "traceparent", None))


def with_links(
    handler: HandlerLike[T],
    origin: Callable[[T], Origin] = _own_traceparent,
    *,
    tracer_provider: TracerProvider | None = None,
) -> HandlerLike[T]:
    """Give each call of a handler a span that is linked to those of its items.

    The span is current in the handler, so that what it calls is traced below it. It is
    called `process <handler>`, has `messaging.batch.message_count`, and records what
    the handler raises. A call for a retried batch is a span of its own. 1,000 items of
    one producer's span give one link; a batch has 128 links at most.

    Args:
        handler: Any that `add_handler` takes; its hooks are kept, without spans.
        origin: Where an item comes from; by default its attribute `traceparent`. An
            item whose origin is None, or can't be read, has no link.
        tracer_provider: OpenTelemetry's global one unless given.

    Raises:
        TypeError: `handler` is no handler, or `origin` is no plain function of an item,
            or `tracer_provider` is none.
    """
    require_sync_function("origin", origin, 1, "one argument, an item")
    if tracer_provider is not None and not hasattr(tracer_provider, "get_tracer"):
        rule = "a TracerProvider, or None"
        refuse("tracer_provider", rule, tracer_provider, TypeError)
    tracer = get_tracer("batchqueue_async", __version__, tracer_provider)
    return _LinkedHandler(handler, origin, tracer)


class _LinkedHandler(Generic[T]):
    """Stands in for a handler; whatever is not `consume` is the handler's own."""

    consume: Callable[[Sequence[T]], Awaitable[object] | object]

    def __init__(
        self, handler: HandlerLike[T], origin: Callable[[T], Origin], tracer: Tracer
    ) -> None:
        consume = consume_of(handler)
        self._handler = self.__wrapped__ = handler
        self._origin = origin
        # Registration calls a handler by this name, in logs and statistics.
        self.__qualname__ = name_of(handler)
        start = partial(
            tracer.start_span,
            f"process {self.__qualname__}",
            # Else a child of the span in which the queue happened to be opened.
            set_span_in_context(INVALID_SPAN),
            kind=SpanKind.CONSUMER,
        )

        def span(batch: list[T]) -> Span:
            count = {"messaging.batch.message_count": len(batch)}
            with no_harm:
                return start(links=self._links(batch), attributes=count)
            return INVALID_SPAN

        no_harm = NoHarm(handler=self.__qualname__)
        self.consume = _inside(span, consume, no_harm)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - hooks, `tick_every`...
        if name == "_handler" or attribute_of(self._handler, name, self) is self:
            raise AttributeError(name)
        return getattr(self._handler, name)

    def _links(self, batch: Iterable[T]) -> list[Link]:
        origins: dict[object, SpanContext] = {}
        for item in batch:
            try:
                found = self._origin(item)
                if isinstance(found, SpanContext):
                    origins.setdefault((found.trace_id, found.span_id), found)
                elif found is not None and found not in origins:
                    origins[found] = _context(found)
            except Exception:  # noqa: BLE001 - tracing must not fail a batch
                continue
            if len(origins) == MOST_LINKS:
                break
        return [Link(each) for each in origins.values() if each.is_valid]


def _inside(
    start: Callable[[Any], Span], call: Callable[[Any], Any], no_harm: NoHarm
) -> Callable[[Any], Any]:
    """Return `call`, async if it is, so that each call is inside of a span."""

    def end(span: Span) -> None:
        # Whatever became of the batch: it would fail by this, and be tried again.
        with no_harm:
            span.end()

    async def finish(span: Span, rest: Callable[[], Awaitable[object]]) -> object:
        try:
            with use_span(span):
                return await rest()
        except asyncio.CancelledError:
            # By a time limit or a deadline, which is an error of the batch's.
            span.set_status(Status(StatusCode.ERROR, "cancelled"))
            raise
        finally:
            end(span)

    async def call_async(batch: object) -> object:
        return await finish(start(batch), partial(call, batch))

    def call_sync(batch: object) -> object:
        span = start(batch)
        rest = None
        try:
            with use_span(span):
                result = call(batch)
            # A plain decorator around an async function returns a coroutine, which is
            # awaited later; with a time limit, in another context.
            rest = finish(span, lambda: result) if isawaitable(result) else None
        finally:
            if rest is None:
                end(span)
        return rest or result

    return call_async if is_async(call) else call_sync


def _context(parent: str) -> SpanContext:
    carrier = {"traceparent": parent}
    return get_current_span(_propagator.extract(carrier)).get_span_context()
