"""Calls the optional methods of handlers: `on_idle`, `on_tick`, `on_flush`, `on_close`.

Each call is alone in its handler: never beside `consume`, nor beside another hook.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from batchqueue_async._engine.handlers.call_with_timeout import (
    LeftBehind,
    attempt,
    finish,
)
from batchqueue_async._engine.handlers.handler_lock_and_call import (
    BackgroundCall,
    Exclusive,
    HandlerCall,
    HandlerLock,
    outside,
)
from batchqueue_async._engine.handlers.hook_times import next_idle
from batchqueue_async._engine.handlers.ticks import Ticks
from batchqueue_async._engine.handlers.unstoppable_call import outlive
from batchqueue_async._engine.handlers.wait_for_graph import OnFlushNode
from batchqueue_async._engine.partitions.routing import TypePlacement
from batchqueue_async._log import logger
from batchqueue_async._loop_time import LoopTurn

if TYPE_CHECKING:
    from batchqueue_async._engine.handlers.hook_times import HookTimes
    from batchqueue_async._engine.handlers.registration import Hook, Registration
    from batchqueue_async._engine.queue_parts import Parts

# Of all queues that were never flushed: never written to.
_NO_FLUSHES: Final[dict[Any, Any]] = {}


class Hooks:
    __slots__ = ("_entered", "_not_closed", "_parts", "flushing")

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        # Handlers whose `on_close` was due and did not complete, by identity.
        self._not_closed: dict[int, Registration] | None = None
        # By drain task: the handler that it has entered last for a hook, if it is in.
        self._entered: dict[int | None, HandlerLock] | None = None
        # Calls of `on_flush`, with the futures of their results, and handlers' locks.
        self.flushing: dict[
            asyncio.Task[BaseException | None],
            tuple[asyncio.Future[BaseException | None], HandlerLock],
        ] = _NO_FLUSHES

    def owns_hooks_of(self, drain_task: int, registration: Registration) -> bool:
        """Whether the drain task calls this handler's hooks: it owns its home."""
        if registration.item_type is None:
            return True
        home = self._home(registration)
        return self._parts.ownership.owner_of(home) == drain_task

    def home_owner(self, registration: Registration) -> int | None:
        """Return the drain task that calls the handler's hooks; None for a consumer."""
        if registration.item_type is None:
            return None
        return self._parts.ownership.last_owner(self._home(registration))

    def _is_awaited(self, registrations: Sequence[Registration]) -> bool:
        """Whether what may be for the handler lingers, or is deferred, anywhere."""
        parts, lock = self._parts, registrations[-1].lock
        deferred = [each.in_flight.retries for each in parts.tasks.drain_tasks]
        if any(each.holds(lock) for each in deferred):
            return True
        if not (parts.batch_terms.lingers or any(each.batches for each in deferred)):
            return False
        partitions = parts.partitions
        if isinstance(parts.placement, TypePlacement) and registrations[-1].item_type:
            partitions = [partitions[self._home(each)] for each in registrations]
        return any(
            partition.items and (partition.ages.linger or partition.pausing is not None)
            for partition in partitions
        )

    def _home(self, registration: Registration) -> int:
        """Return the partition of a handler's type; else one by its number."""
        placement = self._parts.placement
        if isinstance(placement, TypePlacement):
            assert registration.item_type is not None
            return placement.place(registration.item_type).index
        return registration.order % len(self._parts.partitions)

    async def call_due(
        self,
        times: HookTimes,
        called: Collection[Registration],
        now: float,
        drain_task: int,
    ) -> None:
        """Call each `on_tick` that is due, and each `on_idle` that may be called.

        Args:
            times: The drain task's hooks.
            called: Handlers that got a batch in this cycle.
            now: The loop's time.
            drain_task: Which drain task calls.
        """
        times.got_items(called, now)
        busy = {each.lock for each in called}
        due, turn = times.due(now), LoopTurn.of(asyncio.get_running_loop())
        for key in due:
            if isinstance(key, Ticks):
                again = await self._tick(key, times.of[key][-1], now, drain_task)
                times.put(key, again)
                if turn.is_over():
                    await turn.next()
        for key in due:
            if isinstance(key, HandlerLock) and key not in busy:
                later = await self._idle(key, times.of[key], now, drain_task)
                if later is None:
                    times.put_off(key, now)
                else:
                    times.put(key, later)
                if turn.is_over():
                    await turn.next()

    async def _idle(
        self,
        lock: HandlerLock,
        registrations: Sequence[Registration],
        now: float,
        drain_task: int,
    ) -> float | None:
        """Call `on_idle` if it may be; returns when to look again, if that is known."""
        registration, naps = registrations[-1], self._parts.config.idle
        # The hooks before it may have taken long.
        now = max(now, asyncio.get_running_loop().time())
        if now < (due := next_idle(lock, naps)):
            # Another drain task has called it.
            return due
        hook = registration.on_idle
        if hook is None or not self._may_call(registration):
            return None
        # A handler that is at work elsewhere is not idle.
        mode = self._mode(registration, drain_task)
        if self._is_awaited(registrations) or not lock.try_acquire(mode):
            return None
        lock.idled_at, lock.idle_calls = now, lock.idle_calls + 1
        await self._call_inside(hook, "on_idle", registration, mode)
        # It naps after the call, however long that took.
        lock.idled_at = max(now, asyncio.get_running_loop().time())
        return next_idle(lock, naps)

    async def _tick(
        self, ticks: Ticks, registration: Registration, now: float, drain_task: int
    ) -> float:
        """Call `on_tick` if it is due; returns when to look again.

        Ticks that were missed count as one.
        """
        longest = self._parts.config.idle.longest
        clock = asyncio.get_running_loop().time
        now = max(now, clock())
        if not self._may_call(registration):
            return now + max(longest, ticks.every)
        lock = registration.lock
        if ticks.late(now) >= 0:
            mode = self._mode(registration, drain_task)
            if not lock.try_acquire(mode):
                # Other calls are inside: come later, but be late by one period at most.
                if lock.stuck:
                    return now + longest
                if (latest := ticks.next_due(now) + ticks.every) > now:
                    return min(now + longest, latest)
                await self._parts.detector.enter_handler(lock, mode, drain_task)
                now = max(now, clock())
                if not self._may_call(registration) or ticks.late(now) < 0:
                    # It was closed meanwhile, or another drain task has called it.
                    lock.release(mode)
                    return now
            ticks.done(now)
            await self._call_inside(ticks.hook, "on_tick", registration, mode)
        # Now, if the handler was removed meanwhile: it may be back.
        return now if ticks.due is None else ticks.due

    def _may_call(self, registration: Registration) -> bool:
        """Whether `on_idle` and `on_tick` may be called; a hook may close its queue."""
        return registration.is_open and not self._parts.state.refuses_items

    def _mode(self, registration: Registration, drain_task: int | None) -> Exclusive:
        """Return the mode to enter a handler with, after noting it: see `recover`."""
        if self._entered is None:
            self._entered = {}
        self._entered[drain_task] = registration.lock
        return Exclusive(drain_task)

    def recover(self, drain_task: int) -> None:
        """Leave a handler that was entered for a hook, if the hook was cut off.

        A signal handler may raise after any call, so also before the hook can leave it.
        """
        lock = (self._entered or {}).get(drain_task)
        if lock is not None:
            self._parts.running_calls.end_those_of(drain_task)
            lock.forget(Exclusive(drain_task))

    async def _call_inside(
        self, hook: Hook, name: str, registration: Registration, mode: Exclusive
    ) -> None:
        detector, lock, drain_task = self._parts.detector, registration.lock, mode[0]
        assert isinstance(drain_task, int)
        try:
            if (permit := detector.permit) is not None and not permit.is_held:
                await permit.regain()
            call = HandlerCall(detector, drain_task, lock, mode, registration, name)
        except BaseException:
            lock.release(mode)
            raise
        await self._call(hook, name, registration, call)

    def flush(
        self, registration: Registration, drain_task: int | None
    ) -> tuple[asyncio.Future[BaseException | None], OnFlushNode]:
        """Call `on_flush` on a task of its own, which a cancelled flush leaves running.

        Returns:
            A future, whose result is what `on_flush` raised, if anything; and the
            call's node in the wait-for graph.
        """
        loop, lock = asyncio.get_running_loop(), registration.lock
        ending: asyncio.Future[BaseException | None] = loop.create_future()
        # The lock is asked for at once: the drain task's next batch comes after it.
        mode = Exclusive(ending)
        try:
            answer = lock.request(mode)
            call = self._flush(registration, drain_task, ending, answer)
            task = outside(loop.create_task, call)
            task.set_name(f"{self._parts.name}: on_flush of {registration.label}")
            if self.flushing is _NO_FLUSHES:
                self.flushing = {}
            self.flushing[task] = ending, lock
            task.add_done_callback(self._flushed)
        except BaseException:
            # A signal handler's: there may be no task that leaves the lock.
            ending.cancel()
            lock.forget(mode)
            raise
        return ending, OnFlushNode(self._parts.detector, lock, answer, task)

    def bring_flushes_on(self) -> None:
        """Tell of calls that have ended, where that was cut short by a signal."""
        for task in [each for each in self.flushing if each.done()]:
            self._flushed(task)

    def leave_flushes(self) -> None:
        """End the waits for `on_flush` that are left at a shutdown's deadline."""
        self.bring_flushes_on()
        message = "on_flush did not end before the shutdown's deadline"
        for ending, _ in self.flushing.values():
            if not ending.done():
                ending.set_result(TimeoutError(message))

    def _flushed(self, task: asyncio.Task[BaseException | None]) -> None:
        if task not in self.flushing:
            return
        ending, lock = self.flushing[task]
        # A task that was cancelled before its first step has not left the lock.
        lock.forget(Exclusive(ending))
        cut_off = task.cancelled()
        error = asyncio.CancelledError() if cut_off else task.exception()
        if not ending.done():
            ending.set_result(task.result() if error is None else error)
        # Last: if this is cut short it is called again.
        self.flushing.pop(task, None)

    async def _flush(
        self,
        registration: Registration,
        drain_task: int | None,
        ending: asyncio.Future[BaseException | None],
        answer: asyncio.Future[None],
    ) -> BaseException | None:
        hook, lock, mode = registration.on_flush, registration.lock, Exclusive(ending)
        if ending.done():
            # What began it was cut short, and has left the lock.
            return None
        await answer
        if hook is None or not registration.is_open:
            return None
        detector, name = self._parts.detector, "on_flush"
        call = BackgroundCall(detector, drain_task, lock, mode, registration, name)
        return await self._call(hook, name, registration, call)

    @property
    def not_closed(self) -> tuple[str, ...]:
        """The handlers whose `on_close` was due and did not complete, by name."""
        # A copy: other threads may ask.
        return tuple(each.label for each in list((self._not_closed or {}).values()))

    async def close(
        self,
        registration: Registration,
        drain_task: int | None = None,
        is_back: Callable[[Registration], bool] = lambda _: False,
    ) -> None:
        """Call `on_close`, once for each handler; what it raises is logged."""
        hook = registration.on_close
        if hook is None or not registration.is_open:
            # What was never opened has nothing to close.
            registration.is_closed = True
            return

        async def close() -> None:
            # Asked in the step that calls the hook: with a timeout that is on a task of
            # its own, and before it begins the handler may be registered again.
            if is_back(registration):
                return
            registration.is_closed = True
            if registration.opening is not None:
                # If the handler is registered again, it is opened again.
                registration.opening.is_done = False
            result = hook()
            if result is not None:
                await finish(hook, result, None)

        mode = self._mode(registration, drain_task)
        detector, lock, name = self._parts.detector, registration.lock, "on_close"
        await detector.enter_handler(lock, mode, drain_task)
        call = HandlerCall(detector, drain_task, lock, mode, registration, name)
        try:
            error = await self._call(close, name, registration, call)
        except BaseException:
            self.cut_off(registration)
            raise
        if error is not None:
            self._note_not_closed(registration)

    def cut_off(self, registration: Registration) -> None:
        """Note that a handler's `on_close` began, and was cut off."""
        known = self._not_closed or {}
        if registration.is_closed and id(registration) not in known:
            says = "%s: on_close of %s was cut off; what it had to do is undone"
            self._note_not_closed(registration, says)

    def skip(self, registrations: Iterable[Registration]) -> None:
        """Note handlers whose `on_close` was due, and is never called."""
        says = "%s: on_close of %s was not called: a deadline or loop's end was first"
        for registration in registrations:
            registration.is_closed = True
            self._note_not_closed(registration, says)

    def _note_not_closed(self, registration: Registration, says: str = "") -> None:
        if self._not_closed is None:
            self._not_closed = {}
        self._not_closed[id(registration)] = registration
        if says:
            name, label = self._parts.name, registration.label
            logger.error(says, name, label, queue=name, handler=label, hook="on_close")

    async def _call(
        self, hook: Hook, name: str, registration: Registration, call: HandlerCall
    ) -> BaseException | None:
        """Call a hook of a handler that was entered for it, and leave the handler."""
        left: asyncio.Future[Any] | None = None
        try:
            error = await attempt(hook, timeout=registration.timeout)
            left = error.left if isinstance(error, LeftBehind) else None
        except BaseException as raised:
            left = raised.left if isinstance(raised, LeftBehind) else None
            raise
        finally:
            call.end()
            if left is None:
                registration.lock.release(call.mode)
            else:
                outlive(self._parts, left, call)
        if error is not None:
            self._parts.repeated_failures.error(
                "%s: %s of %s failed",
                self._parts.name,
                name,
                registration.label,
                title=f"{self._parts.name}: {name} of {registration.label} failed",
                error=error,
                queue=self._parts.name,
                handler=registration.label,
                hook=name,
            )
        return error
