"""What consumes events, and how its hooks are found."""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
)
from types import MethodType
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from batchqueue_async._functions import attribute_of, is_generator_function, takes
from batchqueue_async._results import is_generated, require_done
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

        `end_of_batch` says that it is the last one of its batch: a good moment to write
        out what was gathered. More may be available by then, as where `max_batch` cuts
        batches. Raising calls the exception handler.
        """


class EventBatchHandler(Protocol[E]):
    """An object that takes all available events in one call.

    Where an abandoned slot lies between them, those before and after it are a call
    each. It may have the same hooks as an `EventHandler`.
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

_EVENT: Final = 3, "(event, sequence, end_of_batch)"
_BATCH: Final = 2, "(events, first_sequence)"
_NOTHING: Final = 0, "no argument"


class HandlerMethods(Generic[E]):
    """The methods of a handler, looked up once.

    Raises:
        InvalidArgument: It is no handler, or a class, or takes both events and batches;
            or it, or one of its hooks, is a generator function, or can't be called with
            what it gets.
    """

    def __init__(self, handler: HandlerLike[E]) -> None:
        on_event = _method(handler, "on_event")
        on_batch = _method(handler, "on_batch")
        if on_event is None and on_batch is None and callable(handler):
            on_event = handler
        if isinstance(handler, type) or (on_event is None) == (on_batch is None):
            rule = "an object with either on_event or on_batch, or a function"
            refuse("a handler", rule, handler, InvalidArgument)
        _require_call("a handler", handler, on_event, _EVENT)
        _require_call("a handler", handler, on_batch, _BATCH)
        self.name: str = name_of(handler)
        self.on_event: EventFunction[E] | None = on_event
        self.on_batch = on_batch
        size, sequence = (1, "(size)"), (1, "(sequence)")
        self.on_batch_start: Hook | None = _hook(handler, "on_batch_start", size)
        self.on_start: Hook | None = _hook(handler, "on_start", _NOTHING)
        self.on_shutdown: Hook | None = _hook(handler, "on_shutdown", _NOTHING)
        self.on_timeout: Hook | None = _hook(handler, "on_timeout", sequence)
        self.set_sequence_callback: Hook | None = _hook(
            handler, "set_sequence_callback", sequence
        )


def refuse_unrun(field: str, call: object, result: object) -> None:
    """Refuse an async or generator function, whose body nobody runs.

    A slot that it was to fill would be stale.

    Raises:
        InvalidArgument: `call` is async, or a generator function.
    """
    if isinstance(result, Coroutine | Generator):
        result.close()
    elif not isinstance(result, AsyncGenerator):
        return
    refuse(field, "a plain function, none with await or yield", call, InvalidArgument)


def refuse_generated(result: object) -> None:
    """Refuse what a handler or hook has made and nobody runs: none of it is done."""
    if is_generated(result):
        msg = f"a handler must not be a generator function, it returned {shown(result)}"
        raise TypeError(msg)
    require_done(result)


def require_exception_handler(on_error: object) -> None:
    """Refuse what can't be told of an error, or would do nothing with it."""
    # To call a class would only make an object.
    if isinstance(on_error, type) or not takes(on_error, 3):
        rule = "callable with (error, sequence, event)"
        refuse("on_error", rule, on_error, InvalidArgument)
    if is_generator_function(on_error):
        refuse("on_error", "no generator function", on_error, InvalidArgument)


def name_of(handler: object) -> str:
    """Return what a handler is called in graphs, statistics and logs."""
    name = getattr(handler, "name", None) or getattr(handler, "__name__", None)
    return name if isinstance(name, str) else type(handler).__name__


def identity_of(handler: object) -> object:
    """Return the same for the same handler, whatever its `__eq__` says."""
    if isinstance(handler, MethodType):
        return id(handler.__self__), id(handler.__func__)
    return id(handler)


def _require_call(
    field: str, handler: object, call: Hook | None, arguments: tuple[int, str]
) -> None:
    if call is None:
        return
    count, told = arguments
    if not takes(call, count):
        refuse(field, f"callable with {told}", handler, InvalidArgument)
    if is_generator_function(call):
        rule = f"{field} must not be a generator, whose body nobody runs"
        msg = f"{rule}: {shown(handler)}"
        raise InvalidArgument(msg)


def _hook(handler: object, name: str, arguments: tuple[int, str]) -> Hook | None:
    hook = _method(handler, name)
    _require_call(f"{name} of a handler", handler, hook, arguments)
    return hook


def _method(handler: object, name: str) -> Hook | None:
    method = attribute_of(handler, name)
    return method if callable(method) else None
