"""What a `map_async` was declared with, looked at before any task runs."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from batchqueue_async import Retry
from batchqueue_async._functions import require_arguments
from batchqueue_async._validation import (
    refuse,
    require_at_least,
    require_callable,
    require_instance,
    require_int,
    require_positive,
)

if TYPE_CHECKING:
    import pyarrow as pa

Call: TypeAlias = Callable[..., Awaitable[Any]]
"""`call(batch)`, or `call(client, batch)` where there is an `open`."""
Open: TypeAlias = Callable[[], AbstractAsyncContextManager[Any]]
"""Returns an async context manager, whose value is the client."""
OnError: TypeAlias = Literal["raise", "null", "column"]
"""What becomes of an item whose call failed for good."""

_MOST_IN_FLIGHT = 65_536


@dataclass(frozen=True, kw_only=True)
class CallOptions:
    """All settings of a `map_async` that say how calls are made.

    Attributes are the arguments of `map_async`; `key` is unique to one call of it.
    """

    key: str
    call: Call
    open: Open | None
    to_items: Callable[[pa.RecordBatch], Iterable[Any]]
    max_batch: int
    linger: float
    in_flight: int
    ordered: bool
    reorder_buffer: int | None
    timeout: float | None
    retry: Retry
    rate: float | None
    flat: bool
    on_error: OnError

    def __post_init__(self) -> None:
        if self.open is not None:
            _require_open(self.open)
        _require_call(self.call, has_client=self.open is not None)
        told = "one argument, a record batch"
        require_arguments("to_items", self.to_items, 1, told)
        require_int("max_batch", self.max_batch, at_least=1)
        require_at_least("linger", self.linger, 0)
        require_int("in_flight", self.in_flight, at_least=1, at_most=_MOST_IN_FLIGHT)
        if self.timeout is not None:
            require_positive("timeout", self.timeout)
        require_instance(
            "retry", self.retry, Retry, "a Retry such as Retry(attempts=3)"
        )
        if self.rate is not None:
            require_positive("rate", self.rate)
        require_instance("ordered", self.ordered, bool, "a bool")
        require_instance("flat", self.flat, bool, "a bool")
        if self.reorder_buffer is not None:
            require_int("reorder_buffer", self.reorder_buffer, at_least=0)
            if self.reorder_buffer and not self.ordered:
                rule = "0 with ordered=False"
                refuse("reorder_buffer", rule, self.reorder_buffer)
        if self.on_error not in get_args(OnError):
            refuse("on_error", '"raise", "null" or "column"', self.on_error)

    @property
    def name(self) -> str:
        return getattr(self.call, "__qualname__", type(self.call).__qualname__)


def _require_call(call: object, *, has_client: bool) -> None:
    """Refuse what is no async function, or takes other arguments.

    What is written in C, or marked as a coroutine function, is not looked into.
    """
    require_callable("call", call)
    if not _is_async(call) and isinstance(_python_function(call), types.FunctionType):
        refuse("call", "an async function (async def)", call, TypeError)
    wanted = ("client", "batch") if has_client else ("batch",)
    which = "with" if has_client else "without"
    _require_arguments("call", call, wanted, f" {which} open")


def _require_open(opener: object) -> None:
    """Refuse what will not return an async context manager, if that can be seen."""
    require_callable("open", opener)
    rule = "a function that returns an async context manager"
    function = _python_function(opener)
    # The function that `asynccontextmanager` or `contextmanager` wraps, if any.
    made_of = getattr(function, "__wrapped__", None)
    if _is_async(opener) or inspect.isasyncgenfunction(function):
        refuse("open", f"{rule} (as @asynccontextmanager makes it)", opener, TypeError)
    if inspect.isgeneratorfunction(function) or inspect.isgeneratorfunction(made_of):
        refuse("open", f"{rule}, not a plain one", opener, TypeError)
    if isinstance(opener, type) and not hasattr(opener, "__aenter__"):
        refuse("open", rule, opener, TypeError)
    _require_arguments("open", opener, (), "")


def _is_async(call: Any) -> bool:  # noqa: ANN401 - anything that can be called
    functions = [call, inspect.unwrap(call), type(call).__call__]
    return any(map(inspect.iscoroutinefunction, functions))


def _python_function(call: Any) -> object:  # noqa: ANN401 - anything that can be called
    """Return the function that runs first, if it is known."""
    while isinstance(call, functools.partial):
        call = call.func
    if isinstance(call, types.MethodType):
        return call.__func__
    if inspect.isroutine(call) or isinstance(call, type):
        return call
    return type(call).__call__


def _require_arguments(
    field: str,
    call: Any,  # noqa: ANN401 - anything that can be called
    wanted: tuple[str, ...],
    when: str,
) -> None:
    try:
        signature = inspect.signature(call)
    except (TypeError, ValueError):
        # Written in C: it checks its arguments itself when it is called.
        return
    try:
        signature.bind(*wanted)
    except TypeError as error:
        msg = f"{field} must take ({', '.join(wanted)}){when}: {error}"
        raise TypeError(msg) from None
