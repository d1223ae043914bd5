"""Items of several kinds, and handlers whose calls end when a test says so."""

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from batchqueue_async import PartialFailure
from batchqueue_async._engine.handlers.handler_lock_and_call import current_call


class Item:
    """Numbered in the order in which their producers came."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self.number}"


class A(Item): ...


class B(Item): ...


class C(Item): ...


class D(Item): ...


class Child(A):
    """Without a handler of its own it goes to that of `A`."""


KINDS: tuple[type[Item], ...] = (A, B, C, D, Child)


class Failed(Exception):
    """A handler failed because it was told to."""


@dataclass(eq=False)
class Call:
    """One call of `consume` that is under way."""

    handler: "GatedHandler"
    batch: list[Item]
    drain_task: int | None
    was_cancelled: bool = False
    cancels_itself: bool = False
    gate: asyncio.Future[None] = field(init=False)

    def __post_init__(self) -> None:
        self.gate = asyncio.get_running_loop().create_future()

    def end(self, error: Exception | None = None) -> None:
        """Let the handler return, or raise; only the first time counts."""
        if self.gate.done():
            return
        if error is None:
            self.gate.set_result(None)
        else:
            self.gate.set_exception(error)


class Witness(Protocol):
    """Who is told what handlers see: an exception would be theirs, not the test's."""

    def demand(self, holds: object, message: str) -> None:
        """Something must hold here."""

    def entered(self, call: Call) -> None:
        """A handler was given a batch."""

    def succeeded(self, call: Call) -> None:
        """It has handled it."""

    def succeeded_but(self, call: Call, failed: Collection[int]) -> None:
        """It has handled it, but for these positions."""

    def left(self, call: Call) -> None:
        """The call has ended, one way or the other."""


class GatedHandler:
    """Stands at a gate in each call, until the test opens it or cancels the call."""

    def __init__(
        self, kind: type[Item], witness: Witness, *, exclusive: bool, stubborn: bool
    ) -> None:
        self.kind = kind
        self.is_open = False
        self.is_closed = False
        self._witness = witness
        self._exclusive = exclusive
        self._stubborn = stubborn
        self._consuming = 0
        self._in_hook = 0

    async def consume(self, batch: list[Item]) -> None:
        is_twice = self._exclusive and self._consuming
        self._witness.demand(not is_twice, "B3: consume beside consume")
        self._witness.demand(not self._in_hook, "B3: consume beside a hook")
        self._witness.demand(not self.is_closed, "consume after on_close")
        inside = current_call()
        call = Call(self, list(batch), None if inside is None else inside.drain_task)
        self._consuming += 1
        self._witness.entered(call)
        try:
            await self._pass_gate(call)
            if call.cancels_itself and self._cancel_own_task():
                return
            self._witness.succeeded(call)
        except PartialFailure as answer:
            self._witness.succeeded_but(call, answer.failed)
            raise
        finally:
            self._consuming -= 1
            self._witness.left(call)

    async def _pass_gate(self, call: Call) -> None:
        while not self.is_open:
            try:
                await call.gate
            except asyncio.CancelledError:
                if not self._stubborn:
                    raise
                call.was_cancelled = True
                call.gate = asyncio.get_running_loop().create_future()
            else:
                return

    @staticmethod
    def _cancel_own_task() -> bool:
        """Cancel, as the last act; returns whether this call fails by that.

        With a `handler_timeout` the task is this call's alone. Else it is the drain
        task, which the cancellation reaches behind the call.
        """
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return "drain task" not in task.get_name()

    @contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        self._witness.demand(not self._consuming, f"B3: {name} beside consume")
        self._witness.demand(not self._in_hook, f"B3: {name} beside another hook")
        self._in_hook += 1
        try:
            yield
        finally:
            self._in_hook -= 1


class HookedHandler(GatedHandler):
    """Has every optional method; each takes a step, which leaves a window."""

    async def on_idle(self) -> None:
        with self._alone("on_idle"):
            await asyncio.sleep(0)

    async def on_flush(self) -> None:
        with self._alone("on_flush"):
            await asyncio.sleep(0)

    async def on_close(self) -> None:
        with self._alone("on_close"):
            self.is_closed = True
            await asyncio.sleep(0)
