"""One registered handler: what to call, and what is known of it while it runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import Any, cast

from batchqueue_async._engine.gate import TOGETHER, Gate
from batchqueue_async._policies.handlers import require_handler
from batchqueue_async._policies.weights import Exact

Consume = Callable[[list[Any]], Awaitable[None] | None]
Hook = Callable[[], Awaitable[None] | None]


class Registration:
    """A handler under its item type, or the queue's single consumer (no type)."""

    __slots__ = (
        "batches",
        "consume",
        "gate",
        "handler",
        "is_closed",
        "item_type",
        "next_idle",
        "on_close",
        "on_flush",
        "on_idle",
        "order",
        "slot",
        "weight",
    )

    def __init__(
        self,
        handler: object,
        *,
        item_type: type | None = None,
        weight: Exact = 1,
        order: int = 0,
        slot: Hashable = TOGETHER,
    ) -> None:
        self.handler = handler
        self.item_type = item_type
        self.weight = weight
        # Registrations are numbered; a custom selector's handlers idle by number.
        self.order = order
        # Which other calls of `consume` may be inside of the handler with one.
        self.slot = slot
        self.consume = consume_of(handler)
        self.on_idle = _hook(handler, "on_idle")
        self.on_flush = _hook(handler, "on_flush")
        self.on_close = _hook(handler, "on_close")
        self.gate = Gate()
        self.next_idle = 0.0
        # Batches that were taken for it and are not settled.
        self.batches = 0
        # After `on_close` nothing of it is called any more.
        self.is_closed = False

    @property
    def has_hooks(self) -> bool:
        """Whether it wants to be called without a batch while its queue runs."""
        return bool(self.on_idle or self.on_flush)

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing of it is taken, and nobody is inside."""
        return not self.batches and self.gate.is_free

    @property
    def label(self) -> str:
        """The handler's name in logs."""
        of_type = f" of {self.item_type.__qualname__}" if self.item_type else ""
        name = getattr(self.handler, "__qualname__", type(self.handler).__qualname__)
        return f"{name}{of_type}"


def consume_of(handler: object) -> Consume:
    """Return the callable that takes a batch.

    Raises:
        TypeError: It is neither a callable nor an object with `consume`.
    """
    require_handler("handler", handler)
    return cast("Consume", getattr(handler, "consume", handler))


def _hook(handler: object, name: str) -> Hook | None:
    hook = getattr(handler, name, None)
    return cast("Hook", hook) if callable(hook) else None
