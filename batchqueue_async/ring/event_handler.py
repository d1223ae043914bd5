"""What consumes events, and how its hooks are found."""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
)
from inspect import isasyncgenfunction, isgeneratorfunction
from types import MethodType
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from batchqueue_async._functions import attribute_of, takes
from batchqueue_async._validation import refuse
from batchqueue_async._wording import shown

from .errors import InvalidArgument

E = TypeVar("E")
E_contra = TypeVar("E_contra", contravariant=True)


class EventHandler(Protocol[E_contra]):
    """An object that takes events one by one. Its methods may be sync or async.

    Only `on_event` is required. It may also have:

    `on_batch_start(size)`: the next `size` events were available together.
    `on_start()`, `on_shutdown()`: before the first event, after the last.
    `on_timeout(sequence)`: nothing came for the timeout of `TimeoutBlockingWait`.
    `set_sequence_callback(sequence)`: gets its own `Sequence` before it starts, to say
    within a batch how far it has come: `sequence.value = ...`.
    """

    def on_event(
        self, event: E_contra, sequence: int, end_of_batch: bool, /
    ) -> Awaitable[object] | object:
        """Take an event; the slot is used again after the batch.

        `end_of_batch` says that no other event is available now: a good moment to write
        out what was gathered. Raising calls the exception handler.
        """


class EventBatchHandler(Protocol[E]):
    """An object that takes all available events in one call.

    It may have the same hooks as an `EventHandler`.
    """

    def on_batch(
        self, events: list[E], first_sequence: int, /
    ) -> Awaitable[object] | object:
        """Take events in a fresh list; their slots are used again afterwards."""


EventFunction: TypeAlias = Callable[[E, int, bool], Awaitable[object] | object]
"""A plain callable `(event, sequence, end_of_batch)`, sync or async."""

HandlerLike: TypeAlias = EventHandler[E] | EventBatchHandler[E] | EventFunction[E]
"""Everything that a ring accepts as a handler."""

Hook: TypeAlias = Callable[..., Any]


class HandlerMethods(Generic[E]):
    """The methods of a handler, looked up once.

    Raises:
        InvalidArgument: It is no handler, or a class, or takes both events and batches,
            or is a generator function, or can't be called with what it gets.
    """

    def __init__(self, handler: HandlerLike[E]) -> None:
        on_event = _method(handler, "on_event")
        on_batch = _method(handler, "on_batch")
        if on_event is None and on_batch is None and callable(handler):
            on_event = handler
        if isinstance(handler, type) or (on_event is None) == (on_batch is None):
            rule = "an object with either on_event or on_batch, or a function"
            refuse("a handler", rule, handler, InvalidArgument)
        consume = on_batch if on_event is None else on_event
        _require_arguments(handler, on_event, 3, "(event, sequence, end_of_batch)")
        _require_arguments(handler, on_batch, 2, "(events, first_sequence)")
        if isgeneratorfunction(consume) or isasyncgenfunction(consume):
            rule = "a handler must not be a generator, whose body nobody runs"
            msg = f"{rule}: {shown(handler)}"
            raise InvalidArgument(msg)
        self.name: str = name_of(handler)
        self.on_event: EventFunction[E] | None = on_event
        self.on_batch = on_batch
        self.on_batch_start: Hook | None = _method(handler, "on_batch_start")
        self.on_start: Hook | None = _method(handler, "on_start")
        self.on_shutdown: Hook | None = _method(handler, "on_shutdown")
        self.on_timeout: Hook | None = _method(handler, "on_timeout")
        self.set_sequence_callback: Hook | None = _method(
            handler, "set_sequence_callback"
        )


def refuse_unrun(fill: object, result: object) -> None:
    """Refuse an async or generator `fill`, whose body nobody runs: the slot is stale.

    Raises:
        InvalidArgument: `fill` is async, or a generator function.
    """
    if isinstance(result, Coroutine | Generator):
        result.close()
    elif not isinstance(result, AsyncGenerator):
        return
    refuse("fill", "a plain function, none with await or yield", fill, InvalidArgument)


def name_of(handler: object) -> str:
    """Return what a handler is called in graphs, statistics and logs."""
    name = getattr(handler, "name", None) or getattr(handler, "__name__", None)
    return name if isinstance(name, str) else type(handler).__name__


def identity_of(handler: object) -> object:
    """Return the same for the same handler, whatever its `__eq__` says."""
    if isinstance(handler, MethodType):
        return id(handler.__self__), id(handler.__func__)
    return id(handler)


def _require_arguments(
    handler: object, call: Hook | None, arguments: int, told: str
) -> None:
    if call is not None and not takes(call, arguments):
        refuse("a handler", f"callable with {told}", handler, InvalidArgument)


def _method(handler: object, name: str) -> Hook | None:
    method = attribute_of(handler, name)
    return method if callable(method) else None
