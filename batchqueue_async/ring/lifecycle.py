"""The tasks of consumers, from their start to their end, expected or not."""

from __future__ import annotations

import asyncio
import atexit
import os
from collections.abc import Awaitable, Callable, Iterable
from inspect import isawaitable, iscoroutine
from typing import Any, Final, TypeAlias

from batchqueue_async._loop_close import (
    call_at_close,
    expect_no_end,
    forget_at_close,
)
from batchqueue_async._process_end import call_at_multiprocessing_end
from batchqueue_async._shielding import Shielded, backend_is_where_it_was
from batchqueue_async._threads.clock import sleep

from .errors import RingError, RingHalted, logger
from .event_processor import EventProcessor
from .handler_call import running_call
from .sequence import Sequence, minimum
from .sequence_barrier import SequenceBarrier
from .sequencer import MultiProducerSequencer

GRACE: Final = 1.0
"""Seconds that a cancelled handler gets to end, and exception handlers to be told of
events that nobody has handled."""

Consumer: TypeAlias = EventProcessor[Any]
Sequences: TypeAlias = Callable[[], tuple[Sequence, ...]]
"""Returns what a shutdown waits for, which may change meanwhile."""


class ConsumerTasks:
    """Runs consumers until the ring is shut down.

    A consumer that ends without being told to halts the ring. That happens when the
    loop ends first: the events left are logged then, and exception handlers are told.
    At the end of a shutdown `stop` tells consumers to end; `release` is called when
    they have.
    """

    def __init__(
        self,
        sequencer: MultiProducerSequencer,
        stop: Callable[[], None],
        release: Callable[[], None] = lambda: None,
    ) -> None:
        self.has_started: bool = False
        self._sequencer = sequencer
        self._stop = stop
        self._release = release
        self._consumers: dict[asyncio.Task[None], Consumer] = {}
        self._is_stopping = self._is_cut_short = False
        # Cancelled with all tasks of its loop, as that ends, and by nobody else.
        self._canary: asyncio.Task[None] | None = None
        self._shutdown: asyncio.Task[int] | None = None
        # How many callers of `shut_down` wait for its result; and the events that were
        # not handled before its deadline, until one of them or the log was told.
        self._callers = self._untold = 0
        self._deadline: asyncio.Future[None]
        self._timers: list[asyncio.TimerHandle] = []
        self._drained: SequenceBarrier | None = None

    def start(self, consumers: Iterable[Consumer]) -> None:
        """Run these consumers; called again for those that are added later."""
        self._sequencer.loop = loop = self._sequencer.own_loop()
        self.has_started = True
        backend_is_where_it_was()
        if self._canary is None:
            self._canary = loop.create_task(_wait_for_ever(), name="ring canary")
            expect_no_end(self._canary)
        for consumer in consumers:
            consumer.is_to_end = self._are_to_end
            task = loop.create_task(self._run(consumer), name=consumer.name)
            # This class logs what is lost then.
            expect_no_end(task)
            self._consumers[task] = consumer
            task.add_done_callback(self._ended)
        if self not in _running:
            _running.add(self)
            call_at_multiprocessing_end(_end_at_exit)
            call_at_close(loop, self.end_after_loop)

    async def shut_down(self, sequences: Sequences, timeout: float | None) -> None:
        """Wait until all that is claimed now has been handled, and the tasks ended.

        Of several deadlines the earliest counts. If a caller is cancelled, it goes on.
        A handler that calls it, if only in a task that it has started, does not wait:
        its own event has to be handled first.
        """
        if self._is_after_loop():
            return
        # Each time: whoever asks once more may do so because nothing moves.
        self._sequencer.call_back_again()
        shutdown = self._begin(sequences)
        if timeout is not None and not shutdown.done():
            self._timers.append(shutdown.get_loop().call_later(timeout, self._expire))
        call = running_call()
        is_inside = call is not None and call.sequence in sequences()
        if is_inside or asyncio.current_task() in self._consumers:
            return
        self._callers += 1
        try:
            await asyncio.wait({shutdown})
            while shutdown.cancelled():
                # User code has cancelled all tasks of the loop, and this one goes on.
                shutdown = self._begin(sequences)
                await asyncio.wait({shutdown})
            left = shutdown.result()
            self._untold = 0
        finally:
            self._callers -= 1
            self._say_untold()
        if left:
            msg = f"{left} events were not handled before the deadline"
            raise TimeoutError(msg)
        sequencer = self._sequencer
        if sequencer.cause is not None and not sequencer.has_told:
            sequencer.refuse_if_closed()

    def _is_after_loop(self) -> bool:
        """Whether nothing runs any more: what was left is told as the loop ends.

        A coroutine that is collected then leaves its block, too, and on no loop.
        """
        loop = self._sequencer.loop
        is_closed = loop is not None and loop.is_closed()
        return is_closed or asyncio._get_running_loop() is None  # noqa: SLF001

    def _begin(self, sequences: Sequences) -> asyncio.Task[int]:
        """Return the task of the shutdown, which begins here if there is none.

        One that was cancelled, or that a signal handler has cut off, is begun again.
        """
        loop = asyncio.get_running_loop()
        if self._shutdown is None:
            self._deadline = loop.create_future()
        known = self._shutdown
        if known is not None and known.done():
            is_cut_off = known.cancelled() or known.exception() is not None
            known = None if is_cut_off else known
        if known is None:
            ending = self._end(sequences)
            self._shutdown = known = loop.create_task(ending, name="ring shutdown")
        return known

    async def _end(self, sequences: Sequences) -> int:
        sequencer = self._sequencer
        # While the ring is open, grants whose producers have not run may be given back.
        target = sequencer.settled
        await self._drain(sequences, target)
        self._is_stopping = True
        self._stop()
        is_late = self._deadline.done()
        if is_late:
            self._cancel()
        try:
            await self._tasks_end()
        finally:
            # Also if the shutdown is cancelled, as when the loop ends now.
            left = target - minimum(sequences(), target) if is_late else 0
            self._untold = left
            self._say_untold()
        if self._canary is not None:
            self._canary.cancel()
            await asyncio.wait({self._canary})
        self._release()
        for timer in self._timers:
            timer.cancel()
        return left

    def _say_untold(self) -> None:
        """Log what the deadline left, if no caller waits to be told that."""
        left = self._untold
        if left and not self._callers:
            self._untold = 0
            says = "%d events were not handled before the deadline"
            logger.error(says, left, events=left)

    async def _drain(self, sequences: Sequences, target: int) -> None:
        sequencer = self._sequencer
        # Asked each time: a worker pool beside these may leave, short of the target.
        while waited_for := sequences():
            drained = self._drained = sequencer.new_barrier(*waited_for)
            is_over = self._deadline.done() or sequencer.is_halted
            if is_over or drained.available() >= target:
                return
            sequencer.told_of_departures.append(drained)
            try:
                await drained.sleep(target)
            finally:
                sequencer.told_of_departures.remove(drained)

    async def _tasks_end(self) -> None:
        while (tasks := [*self._consumers]) and not self._deadline.done():
            waited_for = {*tasks, self._deadline}
            ended, _ = await asyncio.wait(waited_for, return_when="FIRST_COMPLETED")
            for task in self._consumers.keys() & ended:
                # A signal handler has raised as the callback began that does it.
                self._ended(task)
        if tasks:
            _, survivors = await asyncio.wait(tasks, timeout=GRACE)
            for task in survivors:
                logger.error("%s could not be stopped", task.get_name())

    def _expire(self) -> None:
        if self._deadline.done():
            return
        self._deadline.set_result(None)
        if self._drained is not None:
            self._drained.alert()
        if self._is_stopping:
            # Otherwise `_end` is about to cancel; twice would disturb clean-ups.
            self._cancel()

    def _cancel(self) -> None:
        for task in self._consumers:
            task.cancel()

    def _are_to_end(self) -> bool:
        """Whether consumers whose tasks are cancelled are to end."""
        canary = self._canary
        is_ending = canary is None or canary.done() or canary.cancelling() > 0
        return self._is_stopping or is_ending

    def end_after_loop(self) -> None:
        """Tell what is left when the loop is closed: nothing can be awaited then."""
        _running.discard(self)
        self._sequencer.end_after_loop(RingError("the ring's loop is closed"))
        consumers, self._consumers = self._consumers, {}
        for task, consumer in consumers.items():
            self._lose(consumer, f"the loop of {task.get_name()} was closed")

    def leave_to_parent(self) -> None:
        """Know of no consumers, in a forked child: they go on in the parent."""
        self._consumers = {}
        self._canary = self._shutdown = None
        self._callers = self._untold = 0
        self._sequencer.leave_to_parent()

    def end_at_exit(self) -> None:
        """Tell what is left when the program ends; another thread may run the loop."""
        for task, consumer in list(self._consumers.items()):
            reason = f"the program ends before {task.get_name()}"
            if not task.get_loop().is_running():
                self._sequencer.end_after_loop(RingError("the program ends"))
                self._lose(consumer, reason)
            else:
                say_left(consumer, reason)

    async def _run(self, consumer: Consumer) -> None:
        # An eager task would call its handler before `start` has registered the task.
        await sleep(0)
        try:
            await consumer.run()
        except asyncio.CancelledError:
            if not self._is_stopping:
                reason = f"{consumer.name} was cancelled"
                # First, so that no more events come.
                self._sequencer.halt(RingError(reason))
                await self.tell_left(consumer, reason)
            raise

    async def tell_left(self, consumer: Consumer, reason: str) -> None:
        """Log what a consumer leaves, and tell its exception handler, while it can."""
        limit = asyncio.timeout(GRACE)
        try:
            async with limit:
                for result in _tell_left(consumer, reason):
                    if isawaitable(result):
                        await result
        except (Exception, asyncio.CancelledError) as error:
            # Before Python 3.11.3 an expired `timeout` raises this in a cancelled task.
            if isinstance(error, asyncio.CancelledError) and not limit.expired():
                raise
            logger.exception("%s: the exception handler failed", reason)

    def _lose(self, consumer: Consumer, reason: str) -> None:
        try:
            for result in _tell_left(consumer, reason):
                if isawaitable(result):
                    if iscoroutine(result):
                        result.close()
                    logger.error("%s: an async exception handler is not told", reason)
                    return
        except Exception:  # noqa: BLE001 - of a user's function
            logger.exception("%s: the exception handler failed", reason)

    def _ended(self, task: asyncio.Task[None]) -> None:
        consumer = self._consumers.pop(task, None)
        if not self._consumers and self in _running:
            _running.discard(self)
            forget_at_close(task.get_loop(), self.end_after_loop)
            if self._canary is not None:
                self._canary.cancel()
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.critical("%s ended", task.get_name(), exc_info=error)
            self._is_cut_short = True
            self._sequencer.halt(error)
        elif task.cancelled() and not self._is_stopping:
            self._is_cut_short = True
            self._sequencer.halt(RingError(f"{task.get_name()} was cancelled"))
        if consumer is None:
            return
        # Those that this has halted leave events behind, too.
        if self._is_cut_short:
            self._lose(consumer, f"{task.get_name()} was cut short")
        elif self._sequencer.is_halted and not self._is_late():
            say_left(consumer, f"{task.get_name()} was halted")

    def _is_late(self) -> bool:
        """Whether a shutdown tells what its deadline has left."""
        return self._shutdown is not None and self._deadline.done()


async def _wait_for_ever() -> None:
    await asyncio.get_running_loop().create_future()


def _tell_left(consumer: Consumer, reason: str) -> Iterable[Awaitable[object] | object]:
    """Log what a consumer leaves, and tell its exception handler, step by step."""
    if left := say_left(consumer, reason):
        error = RingError(f"{reason}: {len(left)} events are left")
        yield from consumer.lose(left, error)


def say_left(consumer: Consumer, reason: str) -> list[int]:
    """Log how many events a consumer leaves; returns them."""
    if left := consumer.take_left():
        count = len(left)
        logger.error("%s: %d events are left", reason, count, events=count)
    return left


_running: set[ConsumerTasks] = set()
"""Keeps rings alive that nobody else refers to: loops refer to their tasks weakly."""


@atexit.register
def _end_at_exit() -> None:
    for tasks in list(_running):
        tasks.end_at_exit()


def _leave_to_parent() -> None:
    while _running:
        _running.pop().leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


async def leave_block(shutdown: Awaitable[None], error: BaseException | None) -> None:
    """End an `async with` block, whose own error matters more than the shutdown's."""
    try:
        # Cancel scopes of anyio do not cut it short.
        with Shielded():
            await shutdown
    except (RingHalted, TimeoutError) as failure:
        is_lost = isinstance(failure, TimeoutError)
        if is_lost or error is not None:
            # Also where it is raised: a block around this one may raise something else
            # on its way out, or catch it as a timeout of its own.
            logger.error("shutting down: %s", failure)
        if error is None:
            raise
