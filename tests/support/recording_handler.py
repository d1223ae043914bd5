"""A fake `BatchHandler` that remembers everything that was done to it."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")

FailWhen = Callable[[list[T]], BaseException | None]


class RecordingHandler(Generic[T]):
    """Records batches, idle, flush and close calls, and how many ran at once.

    Args:
        gate: When given, `consume` records its batch, then waits for the event.
        delay: Seconds that each `consume` sleeps, on the loop's clock.
        fail_when: Given a batch, returns the exception that `consume` raises,
            or None.
    """

    def __init__(
        self,
        *,
        gate: asyncio.Event | None = None,
        delay: float = 0.0,
        fail_when: FailWhen[T] | None = None,
    ) -> None:
        self.gate = gate
        self.delay = delay
        self.fail_when = fail_when
        self.batches: list[list[T]] = []
        self.times: list[float] = []
        self.handled: list[T] = []
        self.failed: list[T] = []
        self.idle_calls = 0
        self.flush_calls = 0
        self.close_calls = 0
        self.calls: list[str] = []
        self.running = 0
        self.max_concurrency = 0
        self._entered = asyncio.Event()

    @property
    def items(self) -> list[T]:
        """Every item of every batch, in the order received."""
        return [item for batch in self.batches for item in batch]

    async def consume(self, batch: list[T]) -> None:
        """Record the batch, wait at the gate, then fail if told to."""
        with self._inside("consume"):
            # Copies: whoever reuses the list afterwards must not rewrite history.
            taken = list(batch)
            self.batches.append(taken)
            self.times.append(asyncio.get_running_loop().time())
            self._entered.set()
            if self.gate is not None:
                await self.gate.wait()
            if self.delay:
                await asyncio.sleep(self.delay)
            error = self.fail_when(taken) if self.fail_when is not None else None
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


class RecordingConsumer(Generic[T]):
    """Has `consume` alone: a handler without the optional methods."""

    def __init__(self) -> None:
        self.batches: list[list[T]] = []

    @property
    def items(self) -> list[T]:
        """Every item of every batch, in the order received."""
        return [item for batch in self.batches for item in batch]

    async def consume(self, batch: list[T]) -> None:
        """Record the batch."""
        self.batches.append(list(batch))
