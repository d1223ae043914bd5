"""What passes for a handler."""

from __future__ import annotations

import pytest

from batchqueue_async._policies.handler_checks import require_handler
from batchqueue_async._policies.handlers import (
    BatchHandler,
    HandlesClose,
    HandlesFlush,
    HandlesIdle,
    SyncBatchHandler,
)


class Merging:
    """A handler with two of the optional methods."""

    async def consume(self, batch: list[int]) -> None:
        """Take a batch."""

    async def on_idle(self) -> None:
        """Use the pause."""

    def on_close(self) -> None:
        """Finish."""


class Plain:
    """A handler that never awaits."""

    def consume(self, batch: list[int]) -> None:
        """Take a batch."""


def test_optional_methods_are_found_one_by_one() -> None:
    """Each has a protocol of its own, sync or async."""
    handler = Merging()
    assert isinstance(handler, BatchHandler)
    assert isinstance(handler, HandlesIdle)
    assert isinstance(handler, HandlesClose)
    assert not isinstance(handler, HandlesFlush)
    assert not isinstance(Plain(), HandlesIdle)


def test_handlers_fit_for_typing() -> None:
    """The name of the parameter is the handler's own affair."""
    handler: BatchHandler[int] = Merging()
    plain: SyncBatchHandler[int] = Plain()
    assert callable(handler.consume)
    assert callable(plain.consume)


@pytest.mark.parametrize("value", [Merging(), Plain(), print, [].extend, list])
def test_objects_and_callables_are_handlers(value: object) -> None:
    """An object with `consume`, or anything that can be called."""
    require_handler("handler", value)


@pytest.mark.parametrize(
    "value, message",
    [
        (None, r"^handler must be callable or have a consume method, got None$"),
        ([1], r"^handler must be callable or have a consume method, got \[1\]$"),
        (Plain, r"^handler must be a handler, not its class, got <class .*Plain'>$"),
    ],
)
def test_what_cannot_take_a_batch_is_refused(value: object, message: str) -> None:
    """A handler's class would make an object per batch and handle nothing."""
    with pytest.raises(TypeError, match=message):
        require_handler("handler", value)
