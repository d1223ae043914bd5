"""Which calls are inside of a handler: its lock, and the call that code is part of.

A handler whose items live in one partition is entered by that partition's owner only.
But its items may live in several (a consumer, a custom selector, two types), and its
hooks may be called by another drain task. So it has a lock: first come, first served,
so that a busy `consume` cannot starve an `on_flush`.

Code inside of a handler, also in its tasks and threads, is known by a context variable.
Its drain task ends the call: a task that outlives its handler is outside again.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable
from contextvars import ContextVar, Token, copy_context
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeVar

from batchqueue_async._loop_time import LONG_AGO

if TYPE_CHECKING:
    from batchqueue_async._engine.draining.shared_drain_tasks import Permit
    from batchqueue_async._engine.handlers.deadlock_detector import DeadlockDetector
    from batchqueue_async._engine.handlers.registration import Registration
    from batchqueue_async._engine.handlers.unstoppable_call import Stuck
    from batchqueue_async._engine.handlers.wait_for_graph import Wait

R = TypeVar("R")

HELD_UP: Final = 0.1
"""Seconds after which it is logged that a handler has let nothing else run."""


class Exclusive(NamedTuple):
    """A hook's mode: no other call is inside. `forget` finds one that was cut off."""

    holder: object


EXCLUSIVE: Final = Exclusive("consume")
"""The mode of a `consume` that lets nobody else in."""
SHARED: Final = "shared"
"""The mode of a `consume` that may run several times at once."""


def excludes(one: Hashable, other: Hashable) -> bool:
    """Whether callers with these modes may not be inside at once."""
    if isinstance(one, Exclusive) or isinstance(other, Exclusive):
        return True
    return one == other != SHARED


class HandlerLock:
    """Lets callers with different modes in together, and one of each at a time.

    A mode is `Exclusive`, SHARED, or the item type of a `consume` whose items live in
    one partition.
    """

    # Nearly always one call at most is inside, and nobody waits. So the lock has no
    # objects of its own: with many types each would cost every batch.
    __slots__ = ("_by_mode", "_sole", "_waiting", "idle_calls", "idled_at", "stuck")

    def __init__(self) -> None:
        # The mode of the only call inside; else how many are inside with each mode.
        self._sole: Hashable | None = None
        self._by_mode: dict[Hashable, int] | None = None
        self._waiting: tuple[tuple[Hashable, asyncio.Future[None]], ...] = ()
        self.stuck: tuple[Stuck, ...] = ()
        # The last call of `on_idle`, and how many there were since the last batch: kept
        # here, once for all types.
        self.idled_at, self.idle_calls = LONG_AGO, 0

    @property
    def is_free(self) -> bool:
        return self._sole is None and not self._by_mode and not self._waiting

    def try_acquire(self, mode: Hashable) -> bool:
        """Enter if that needs no waiting, and overtakes nobody who waits."""
        if self._sole is None and self._by_mode is None and not self._waiting:
            self._sole = mode
            return True
        if self._waiting or not self._has_room(mode):
            return False
        self._go_in(mode)
        return True

    def request(self, mode: Hashable) -> asyncio.Future[None]:
        """Take a place in the order of arrival; the answer is done once it is inside.

        A caller that does not go in, or is cut off before that, has to `withdraw` it.
        """
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            if self.try_acquire(mode):
                answer.set_result(None)
            else:
                self._waiting = (*self._waiting, (mode, answer))
                self.bring_on()
        except BaseException:
            self.withdraw(mode, answer)  # A signal handler's: nobody else would.
            raise
        return answer

    def withdraw(self, mode: Hashable, answer: asyncio.Future[None]) -> None:
        """Give up a place in the order of arrival; leave, if it is inside already."""
        if answer.done() and not answer.cancelled():
            self.release(mode)
        else:
            waiting = self._waiting
            self._waiting = tuple(each for each in waiting if each[1] is not answer)
            self.grant_next()

    def forget(self, mode: Exclusive) -> None:
        """Take a holder that was cut off out of the line, or out of the handler."""
        if any(each.call.mode == mode for each in self.stuck):
            # A call that cannot be stopped is still inside.
            return
        self._waiting = tuple(each for each in self._waiting if each[0] != mode)
        if mode == self._sole or (self._by_mode and mode in self._by_mode):
            self.release(mode)
        else:
            self.bring_on()

    def modes_ahead_of(self, answer: asyncio.Future[None]) -> tuple[Hashable, ...]:
        """Return the modes in the line up to that one; none once it is inside."""
        waiting = self._waiting
        for position, (_, each) in enumerate(waiting, start=1):
            if each is answer:
                return tuple(mode for mode, _ in waiting[:position])
        return ()

    def release(self, mode: Hashable) -> None:
        self.leave(mode)
        self.admit_next()

    def leave(self, mode: Hashable) -> object:
        """Go out, with no call in between; returns whether to call `admit_next`."""
        counts = self._by_mode
        if counts is None:
            self._sole = None
        elif counts[mode] > 1:
            counts[mode] -= 1
        else:
            del counts[mode]
            self._by_mode = counts or None
        return self._waiting

    def admit_next(self) -> None:
        """Let the next ones in, after a call has left."""
        if self._waiting:
            self.grant_next()

    def bring_on(self) -> None:
        """Do what whoever left has not, if a signal handler's error struck it."""
        self.grant_next()

    def keeps_out(self, mode: Hashable) -> bool:
        """Whether nobody with this mode comes in before a stuck call has ended."""
        return any(excludes(mode, each.call.mode) for each in self.stuck)

    def belongs_to(self, detector: DeadlockDetector) -> None:
        """Learn whose calls enter by it, before any does."""

    def outer_waits(self) -> Iterable[Wait]:
        """Return what the first in the line waits for besides the calls inside."""
        return ()

    def _go_in(self, mode: Hashable) -> None:
        counts = self._by_mode
        if counts is not None:
            counts[mode] = counts.get(mode, 0) + 1
        elif self._sole is None:
            self._sole = mode
        else:
            self._by_mode = {self._sole: 1}
            self._sole = None
            self._go_in(mode)

    def _has_room(self, mode: Hashable) -> bool:
        if self._by_mode is not None:
            return not any(excludes(mode, inside) for inside in self._by_mode)
        return self._sole is None or not excludes(mode, self._sole)

    def grant_next(self) -> None:
        """Let the next ones in, as far as their modes allow it."""
        while self._waiting and self._has_room(self._waiting[0][0]):
            mode, admitted = self._waiting[0]
            if admitted.cancelled():
                # Its caller was cancelled, and is about to withdraw it.
                return
            behind = self._waiting[1:]
            self._go_in(mode)
            # No call in between: it is in the line, or inside.
            self._waiting = behind
            admitted.set_result(None)


class HandlerCall:
    """A call of a handler, a hook or `on_error`, which begins as this is made."""

    __slots__ = (
        "_reset",
        "began",
        "coroutine",
        "detector",
        "drain_task",
        "hook",
        "is_over",
        "lock",
        "mode",
        "registration",
        "step_began",
    )

    def __init__(  # noqa: PLR0913, PLR0917 - by position: one for each batch
        self,
        detector: DeadlockDetector,
        drain_task: int | None,
        lock: HandlerLock | None,
        mode: Hashable,
        registration: Registration | None,
        hook: str = "",
    ) -> None:
        # The detector of the queue whose handler it is.
        self.detector = detector
        # The lock of the handler that is entered, None for `on_error`; and the mode.
        self.lock = lock
        self.mode = mode
        # None where no drain task is at work: `on_close`.
        self.drain_task = drain_task
        self.is_over = False
        # The handler, None for a hook of the queue; and the hook, "" for `consume`.
        self.registration = registration
        self.hook = hook
        # The coroutine that runs it, if that is known.
        self.coroutine: Coroutine[Any, Any, object] | None = None
        calls = detector.calls
        self.began = began = calls.clock()
        # Since when it has held the loop; inf while it waits. By the machine's clock:
        # a virtual one stands still meanwhile.
        self.step_began = now = began if calls.clock is monotonic else monotonic()
        # From here on `recover` finds and ends it, whatever is raised.
        calls.inside[self] = False
        self._reset: Token[HandlerCall | None] = innermost.set(self)
        if now > calls.thread.due:
            calls.thread.look(now)

    @property
    def label(self) -> str:
        if self.registration is None:
            return self.hook
        of = f"{self.hook} of " if self.hook else ""
        return f"{of}{self.registration.label}"

    def run(
        self, running: Coroutine[Any, Any, object], registration: Registration
    ) -> Awaitable[object] | None:
        """Return what to await, in steps if it is first or was slow; None if over."""
        calls = self.detector.calls
        if calls.is_first or not registration.was_quick:
            calls.is_first, registration.was_quick = False, True
            return self.first_step(running)
        self.coroutine = running
        if not calls.is_asked:
            calls.ask()
        return running

    def first_step(
        self, running: Coroutine[Any, Any, object]
    ) -> Awaitable[object] | None:
        """Run a coroutine up to its first wait; return the rest, if it waits."""
        self.coroutine = running
        try:
            waits_for = running.send(None)
        except StopIteration as end:
            if end.value is None:
                # `end`, which comes next, looks how long it has held the loop.
                self.coroutine = None
                return None
            return self.detector.calls.finish(self, end.value)
        finally:
            if self.coroutine is not None and monotonic() - self.step_began > HELD_UP:
                self.end_step()
        return self.detector.calls.in_steps(running, self, waits_for)

    def end_step_to_wait(self) -> None:
        """Note that it lets the loop go, to await something."""
        self.step_began = math.inf
        if (calls := self.detector.calls).timer is None:
            calls.watch(self)

    def _took_long(self) -> None:
        if self.coroutine is None:
            self.end_step()
        elif self.registration is not None:
            # It may have waited: next time it is run in steps.
            self.registration.was_quick = False

    def begin_step(self) -> None:
        """Note that it goes on, and holds the loop."""
        self.step_began = now = monotonic()
        if now > (thread := self.detector.calls.thread).due:
            thread.look(now)

    def end_step(self) -> None:
        """Note that it held the loop since its begin, or its last wait."""
        seconds = monotonic() - self.step_began
        self.step_began = math.inf
        if seconds > HELD_UP:
            self.detector.calls.held_up(self, seconds)

    @property
    def permit(self) -> Permit | None:
        """The permit of its drain task, where queues share drain tasks."""
        detector = self.detector
        is_without = self.drain_task is None or self in detector.calls.left_behind
        return None if is_without else detector.permit

    @property
    def is_waiting(self) -> bool:
        """Whether any task or thread of it waits for a queue."""
        # Again if other threads changed the waits; nearly always the first is its own.
        while True:
            try:
                return any(wait.call is self for wait in self.detector.waits)
            except RuntimeError:
                continue

    def waits(self) -> Iterable[Wait]:
        """Return its waits, as a node of the wait-for graph."""
        return self.detector.waits_of(lambda call: call is self)

    def is_of(self, drain_task: int) -> bool:
        """Whether the drain task waits for its end."""
        return self.drain_task == drain_task and not self.is_over

    def end(self) -> None:
        if monotonic() - self.step_began > HELD_UP:
            self._took_long()
        # Both at once, with no call in between.
        self.is_over = True
        if self in (inside := self.detector.calls.inside):
            del inside[self]
        if self.drain_task is None:
            # For a call of a drain task its next nap does this.
            self.detector.calls.stop_idle_timer()
        # Not `contextlib.suppress`, which costs more than all the rest here.
        try:  # noqa: SIM105
            innermost.reset(self._reset)
        except (ValueError, RuntimeError, AttributeError):
            pass  # Closed in another context, or collected; or it was struck before.

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


class BackgroundCall(HandlerCall):
    """An `on_flush`, on a task of its own: its drain task waits at the lock alone."""

    __slots__ = ()

    @property
    def permit(self) -> None:
        return None

    def is_of(self, _: int) -> bool:
        return False


innermost: Final[ContextVar[HandlerCall | None]] = ContextVar(
    "inside_handler", default=None
)
"""The call that code is part of; it may be over: see `current_call`."""


def current_call() -> HandlerCall | None:
    """Return the call of any queue's handler that the caller is part of."""
    call = innermost.get()
    return None if call is None or call.is_over else call


def handler_call(detector: DeadlockDetector) -> HandlerCall | None:
    """Return the call of one of this queue's handlers that the caller is part of."""
    call = current_call()
    return call if call is not None and call.detector is detector else None


def outside(function: Callable[..., R], *args: object) -> R:
    """Call `function` as if outside of any handler; otherwise in this context."""
    if innermost.get() is None:
        return function(*args)
    context = copy_context()
    context.run(innermost.set, None)
    return context.run(function, *args)
