"""Calls the optional methods of handlers: `on_idle`, `on_flush`, `on_close`.

Each call is alone in its handler: never beside `consume`, nor beside another hook.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from batchqueue_async._engine.attempt import attempt
from batchqueue_async._engine.gate import ALONE
from batchqueue_async._engine.log import logger
from batchqueue_async._engine.own_work import OwnWork
from batchqueue_async._engine.reentrancy import outside
from batchqueue_async._engine.registration import Hook, Registration
from batchqueue_async._engine.repeats import Repeats
from batchqueue_async._engine.wait_for_graph import OnFlushNode


class Hooks:
    """The hooks of one queue's handlers."""

    __slots__ = (
        "_name",
        "_not_closed",
        "_own_work",
        "_shortest_idle",
        "flushing",
        "repeats",
    )

    def __init__(
        self, own_work: OwnWork, name: str, shortest_idle: float, repeats: Repeats
    ) -> None:
        self.repeats = repeats
        self._own_work = own_work
        self._name = name
        self._shortest_idle = shortest_idle
        # Handlers whose `on_close` was due and did not complete, by identity.
        self._not_closed: dict[int, Registration] = {}
        # Calls of `on_flush` that run, and who waits for them; the shutdown does, too.
        self.flushing: dict[
            asyncio.Task[BaseException | None], asyncio.Future[BaseException | None]
        ] = {}

    async def idle(
        self,
        registrations: Iterable[Registration],
        now: float,
        drain_task: int,
    ) -> None:
        """Tell the handlers that got nothing, each at most once per shortest nap."""
        loop = asyncio.get_running_loop()
        for registration in registrations:
            hook = registration.on_idle
            if hook is None or registration.is_closed:
                continue
            # The hooks before it may have taken long.
            now = max(now, loop.time())
            if now < registration.next_idle:
                continue
            # A handler that is at work elsewhere is not idle.
            if not registration.gate.try_enter(ALONE):
                continue
            registration.next_idle = now + self._shortest_idle
            try:
                if (permit := self._own_work.permit) is not None:
                    await permit.regain()
                with self._own_work.inside(drain_task, registration.gate):
                    await self._call(hook, "on_idle", registration)
            finally:
                registration.gate.leave(ALONE)
            await asyncio.sleep(0)

    def flush(
        self, registration: Registration, drain_task: int | None
    ) -> tuple[asyncio.Future[BaseException | None], OnFlushNode]:
        """Call `on_flush` on a task of its own, which a cancelled flush leaves running.

        Returns:
            A future, whose result is what `on_flush` raised, if anything; and what
            stands for the call in the wait-for graph.
        """
        ending: asyncio.Future[BaseException | None]
        ending = asyncio.get_running_loop().create_future()
        # Asked for at once: the drain task's next batch comes after it.
        answer = registration.gate.ask(ALONE)
        task = outside(
            asyncio.get_running_loop().create_task,
            self._flush(registration, drain_task, answer),
        )
        task.set_name(f"{self._name}: on_flush of {registration.label}")
        self.flushing[task] = ending
        task.add_done_callback(self._flushed)
        return ending, OnFlushNode(self._own_work, registration.gate, answer, task)

    def abandon_flushes(self) -> None:
        """Whoever still waits for `on_flush` at the end of a shutdown waits no more."""
        for ending in self.flushing.values():
            message = "on_flush did not end before the shutdown's deadline"
            ending.set_result(TimeoutError(message))
        self.flushing.clear()

    def _flushed(self, task: asyncio.Task[BaseException | None]) -> None:
        cut_off = task.cancelled()
        error = asyncio.CancelledError() if cut_off else task.exception()
        ending = self.flushing.pop(task, None)
        if ending is not None:
            ending.set_result(task.result() if error is None else error)

    async def _flush(
        self,
        registration: Registration,
        drain_task: int | None,
        answer: asyncio.Future[None],
    ) -> BaseException | None:
        hook = registration.on_flush
        await registration.gate.admitted(ALONE, answer)
        try:
            if hook is None or registration.is_closed:
                return None
            with self._own_work.beside(drain_task, registration.gate):
                return await self._call(hook, "on_flush", registration)
        finally:
            registration.gate.leave(ALONE)

    @property
    def not_closed(self) -> tuple[str, ...]:
        """The handlers whose `on_close` was due and did not complete, by name."""
        # Of a copy: other threads may ask.
        return tuple(each.label for each in list(self._not_closed.values()))

    async def close(
        self, registration: Registration, drain_task: int | None = None
    ) -> None:
        """Call `on_close`, once for each handler; what it raises is logged.

        Args:
            registration: The handler.
            drain_task: Who calls, when the queue goes on.
        """
        if registration.on_close is None or registration.is_closed:
            return
        await self._own_work.enter(registration.gate, ALONE, drain_task)
        registration.is_closed = True
        try:
            with self._own_work.inside(drain_task, registration.gate):
                error = await self._call(
                    registration.on_close, "on_close", registration
                )
        except BaseException:
            self.cut_off(registration)
            raise
        finally:
            registration.gate.leave(ALONE)
        if error is not None:
            self._not_closed[id(registration)] = registration

    def cut_off(self, registration: Registration) -> None:
        """The handler's `on_close` began, and was not let end."""
        if registration.is_closed and id(registration) not in self._not_closed:
            self._not_closed[id(registration)] = registration
            logger.error(
                "%s: on_close of %s was cut off; what it had to do is undone",
                self._name,
                registration.label,
            )

    def skip(self, registrations: Iterable[Registration]) -> None:
        """The handlers' `on_close` was due, and is never called."""
        for registration in registrations:
            registration.is_closed = True
            self._not_closed[id(registration)] = registration
            logger.error(
                "%s: on_close of %s was not called: the queue's end came first",
                self._name,
                registration.label,
            )

    async def _call(
        self, hook: Hook, name: str, registration: Registration
    ) -> BaseException | None:
        error = await attempt(hook)
        if error is not None:
            self.repeats.error(
                "%s: %s of %s failed",
                self._name,
                name,
                registration.label,
                title=f"{self._name}: {name} of {registration.label} failed",
                error=error,
            )
        return error
