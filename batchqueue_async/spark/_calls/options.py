"""What a `map_async` was declared with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from batchqueue_async import Retry
from batchqueue_async._functions import require_arguments
from batchqueue_async._validation import (
    refuse,
    require_at_least,
    require_instance,
    require_int,
    require_positive,
)

from .functions import require_call, require_open

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

    Attributes are the arguments of `map_async`; `key` tells one from all others.
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
            require_open(self.open)
        require_call(self.call, has_client=self.open is not None)
        told = "one argument, a record batch"
        require_arguments("to_items", self.to_items, 1, told)
        require_int("max_batch", self.max_batch, at_least=1)
        require_at_least("linger", self.linger, 0)
        require_int("in_flight", self.in_flight, at_least=1, at_most=_MOST_IN_FLIGHT)
        if self.timeout is not None:
            require_positive("timeout", self.timeout)
        require_instance("retry", self.retry, Retry, "a Retry")
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
