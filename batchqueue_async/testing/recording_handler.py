"""A `BatchHandler` for tests that remembers everything that was done to it."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic

from batchqueue_async._functions import require_sync_function
from batchqueue_async._threads.clock import sleep
from batchqueue_async._validation import refuse, require_at_least

if TYPE_CHECKING:
    # The default spares `RecordingHandler()` an annotation.
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")

FailWhen = Callable[[list[T]], BaseException | None]


class RecordingHandler(Generic[T]):
    """Records batches, idle, flush and close calls, and how many ran at once.

    Args:
        gate: When given, `consume` records its batch, then waits for the event.
        delay: Seconds that each `consume` sleeps, on the loop's clock.
        fail_when: Given a batch, returns the exception that `consume` raises,
            or None.

    Attributes:
        batches: Each batch as it came, those that failed and retries included.
        times: When each of them came, on the loop's clock.
        handled: The items of the batches that `consume` returned from.
        failed: The items of those that it raised for, once per attempt.
        calls: The names of the methods in the order in which they were called.
        idle_calls, flush_calls, close_calls: How often each was called.
        running, max_concurrency: How many calls are inside now, and were at most.
    """

    def __init__(
        self,
        *,
        gate: asyncio.Event | None = None,
        delay: float = 0.0,
        fail_when: FailWhen[T] | None = None,
    ) -> None:
        _require_gate(gate)
        require_at_least("delay", delay, 0)
        if fail_when is not None:
            told = "one argument, the batch"
            require_sync_function("fail_when", fail_when, 1, told)
        self.gate: asyncio.Event | None = gate
        self.delay: float = delay
        self.fail_when: FailWhen[T] | None = fail_when
        self.batches: list[list[T]] = []
        self.times: list[float] = []
        self.handled: list[T] = []
        self.failed: list[T] = []
        self.idle_calls: int = 0
        self.flush_calls: int = 0
        self.close_calls: int = 0
        self.calls: list[str] = []
        self.running: int = 0
        self.max_concurrency: int = 0
        self._entered = asyncio.Event()

    @property
    def items(self) -> list[T]:
        """Every item of every batch, in the order received."""
        return [item for batch in self.batches for item in batch]

    async def consume(self, batch: list[T]) -> None:
        """Record the batch, wait at the gate, then fail if told to."""
        with self._inside("consume"):
            # A copy: somebody may change the list afterwards.
            taken = list(batch)
            self.batches.append(taken)
            self.times.append(asyncio.get_running_loop().time())
            self._entered.set()
            if self.gate is not None:
                await self.gate.wait()
            if self.delay:
                await sleep(self.delay)
            error: object = self.fail_when(taken) if self.fail_when else None
            if not isinstance(error, BaseException | None):
                msg = f"fail_when must return an exception or None, got {error!r}"
                raise TypeError(msg)
            if error is not None:
                self.failed += taken
                raise error
            self.handled += taken

    async def on_idle(self) -> None:
        """Count the call."""
        with self._inside("on_idle"):
            self.idle_calls += 1

    async def on_flush(self) -> None:
        """Count the call."""
        with self._inside("on_flush"):
            self.flush_calls += 1

    async def on_close(self) -> None:
        """Count the call."""
        with self._inside("on_close"):
            self.close_calls += 1

    async def entered(self) -> None:
        """Wait until a `consume` has started since the last call of this."""
        await self._entered.wait()
        self._entered.clear()

    @contextmanager
    def _inside(self, call: str) -> Iterator[None]:
        self.calls.append(call)
        self.running += 1
        self.max_concurrency = max(self.max_concurrency, self.running)
        try:
            yield
        finally:
            self.running -= 1


def _require_gate(gate: object) -> None:
    """Refuse what cannot be waited at; an Event's class is refused, too."""
    if gate is None or (hasattr(gate, "wait") and not isinstance(gate, type)):
        return
    refuse("gate", "an asyncio.Event or None", gate, TypeError)
