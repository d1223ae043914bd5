"""Calls the optional methods of handlers: `on_idle`, `on_flush`, `on_close`.

Each call is alone in its handler: never beside `consume`, nor beside another hook.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable

from batchqueue_async._engine.attempt import attempt
from batchqueue_async._engine.own_work import OwnWork
from batchqueue_async._engine.registration import Hook, Registration

FlushAnswer = asyncio.Future[BaseException | None]

logger = logging.getLogger("batchqueue_async")


class Hooks:
    """The hooks of one queue's handlers."""

    def __init__(self, own_work: OwnWork, name: str, shortest_idle: float) -> None:
        self._own_work = own_work
        self._name = name
        self._shortest_idle = shortest_idle
        self._flushes: dict[Registration, list[FlushAnswer]] = {}

    @property
    def has_flushes(self) -> bool:
        return bool(self._flushes)

    async def idle(
        self,
        registrations: Iterable[Registration],
        busy: Collection[Registration | None],
        drain_task: int,
    ) -> None:
        """Tell the handlers that got nothing, each at most once per shortest nap."""
        loop = asyncio.get_running_loop()
        for registration in registrations:
            hook = registration.on_idle
            if hook is None or registration.is_closed or registration in busy:
                continue
            now = loop.time()
            # A handler that is at work elsewhere is not idle.
            if now < registration.next_idle or not registration.gate.try_enter(
                alone=True
            ):
                continue
            registration.next_idle = now + self._shortest_idle
            try:
                await self._call(hook, "on_idle", registration, drain_task)
            finally:
                registration.gate.leave()
            await asyncio.sleep(0)

    def request_flush(self, registration: Registration) -> FlushAnswer:
        """Ask the drain task that owns the handler to call `on_flush`, in between."""
        done: FlushAnswer = asyncio.get_running_loop().create_future()
        self._flushes.setdefault(registration, []).append(done)
        return done

    async def flush(self, owned: Iterable[Registration], drain_task: int) -> None:
        """Call the `on_flush` that were asked for, and tell who asked."""
        for registration in [each for each in owned if each in self._flushes]:
            waiting = self._flushes.pop(registration)
            if registration.on_flush is None or all(map(_is_done, waiting)):
                continue
            error: BaseException | None = asyncio.CancelledError()
            try:
                await registration.gate.enter(alone=True)
                try:
                    error = await self._call(
                        registration.on_flush, "on_flush", registration, drain_task
                    )
                finally:
                    registration.gate.leave()
            finally:
                _answer(waiting, error)

    def forget_flushes(self) -> None:
        """Nobody will call them any more: `on_close` has taken their place."""
        for waiting in self._flushes.values():
            _answer(waiting, None)
        self._flushes.clear()

    async def close(self, registration: Registration) -> None:
        """Call `on_close`, once for each handler; what it raises is logged."""
        if registration.on_close is not None:
            await registration.gate.enter(alone=True)
            registration.is_closed = True
            try:
                await self._call(registration.on_close, "on_close", registration, None)
            finally:
                registration.gate.leave()

    async def _call(
        self, hook: Hook, name: str, registration: Registration, drain_task: int | None
    ) -> BaseException | None:
        with self._own_work.inside(drain_task):
            error = await attempt(hook)
        if error is not None:
            logger.error(
                "%s: %s of %s failed",
                self._name,
                name,
                registration.label,
                exc_info=error,
            )
        return error


def _is_done(answer: FlushAnswer) -> bool:
    return answer.done()


def _answer(waiting: Iterable[FlushAnswer], error: BaseException | None) -> None:
    for each in waiting:
        if not each.done():
            each.set_result(error)
