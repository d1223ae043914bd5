"""Calls user code, under its `handler_timeout`, and returns what that raised.

A cancellation of the drain task is not an error of the handler: it is raised. One that
the handler produced by itself is an error like any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from batchqueue_async._engine.handlers.handler_lock_and_call import (
    HandlerCall,
    current_call,
    innermost,
)
from batchqueue_async._engine.runtime.loop_end import (
    absorb_cancellation,
    is_being_left,
    is_cancelled_for_good,
    uncancel,
)
from batchqueue_async._loop_close import expect_no_end
from batchqueue_async._policies.retry import PartialFailure
from batchqueue_async._results import await_returned, is_generated, require_done
from batchqueue_async._wording import reason, shown

if TYPE_CHECKING:
    from batchqueue_async._engine.queue_parts import Parts
    from batchqueue_async._policies.handlers import ErrorHandler

T = TypeVar("T")

_GRACE: Final = 1.0
"""Seconds that a handler may take to clean up after its timeout.

A rollback takes a server's answer, and a killed process a moment of a busy machine's.
"""

# An attribute of a loop out of which an error has been raised here.
_IS_TOLD: Final = "_batchqueue_async_told_to_end"


class LeftBehind(BaseException):
    """A call is given up, while the task that it awaits goes on."""

    def __init__(self, task: asyncio.Future[Any], *message: str) -> None:
        super().__init__(*message)
        self._task = task

    @property
    def left(self) -> asyncio.Future[Any] | None:
        """The task that still runs, if it does."""
        return None if self._task.done() else self._task


class Unstoppable(LeftBehind, TimeoutError):
    """A handler went on after its timeout and the cancellation that followed."""


class CutOff(LeftBehind, asyncio.CancelledError):
    """The waiting for a handler was cancelled twice, and the handler goes on."""


async def attempt(
    call: Callable[..., Awaitable[object] | object],
    *arguments: object,
    timeout: float | None = None,
) -> BaseException | None:
    """Call, await where needed, and return what it raised, if anything."""
    error = await _attempt(call, arguments, timeout)
    await absorb_cancellation()
    return error


async def _attempt(
    call: Callable[..., Awaitable[object] | object],
    arguments: tuple[object, ...],
    timeout: float | None,
) -> BaseException | None:
    call_here = innermost.get()
    try:
        result = call(*arguments)
        if result is not None:
            await finish(call, result, timeout)
    except BaseException as error:  # noqa: BLE001 - the caller decides what it means
        return user_error(error, call_here)
    return None


async def call_on_error(
    parts: Parts,
    on_error: ErrorHandler[T],
    items: list[T],
    error: BaseException,
    timeout: float | None,
) -> None:
    """Call `on_error`; what it raises is logged, with the error that it got."""
    raised = await attempt(on_error, items, error, timeout=timeout)
    if raised is not None:
        parts.repeated_failures.error(
            "%s: on_error raised %s for %d items that had failed with %s",
            parts.name,
            reason(raised),
            len(items),
            reason(error),
            title=f"{parts.name}: on_error raised for items that had failed",
            error=raised,
            queue=parts.name,
            items=len(items),
            hook="on_error",
        )


def user_error(error: BaseException, call: HandlerCall | None) -> BaseException:
    """Return an error of user code; raise one that is for the drain task itself.

    `call` is the handler's call that the user code was part of, if it was of any.
    """
    if isinstance(error, asyncio.CancelledError):
        if is_cancelled_for_good():
            raise error
        uncancel()
    elif isinstance(error, KeyboardInterrupt | SystemExit):
        # The program ends through its loop, not by a drain task that dies.
        _end_program(error)
    elif isinstance(error, GeneratorExit) and innermost.get() is not call:
        # The coroutine is being closed from outside, so this has to be passed on.
        raise error
    return error


async def finish(call: object, result: object, timeout: float | None) -> None:
    """Await what a call returned, if that can be awaited."""
    if is_generated(result):
        # Nothing of its body has run, so its batch must not count as handled.
        msg = f"a handler must not be a generator function, got {shown(call)}"
        raise TypeError(msg)
    if isawaitable(result):
        if timeout is None:
            await _noted(result)
        else:
            await _within(timeout, result)
    else:
        require_done(result)


async def _noted(awaitable: Awaitable[object]) -> None:
    # Tells the handler call, if there is one, of its waits, unless it runs in steps.
    call = current_call()
    if call is not None and call.coroutine is None:
        if isinstance(awaitable, Coroutine):
            rest = call.first_step(awaitable)
            if rest is not None and (returned := await rest) is not None:
                await call.detector.calls.finish(call, returned)
            return
        call.end_step()
        call.end_step_to_wait()
    if (returned := await awaitable) is not None:
        await await_returned(returned)


async def _within(timeout: float, awaitable: Awaitable[object]) -> None:
    """Await in a task of its own, so that it can be left behind."""
    task = asyncio.create_task(_kept(awaitable))
    # Where a loop is closed with it, its queue says what is left.
    expect_no_end(task)
    if (call := current_call()) is not None:
        call.end_step()
        call.end_step_to_wait()
    if isinstance(awaitable, Coroutine):
        # Cancelled before its first step, it would be reported as never awaited.
        task.add_done_callback(lambda _: awaitable.close())
    until = asyncio.get_running_loop().time() + timeout
    message = f"no answer within handler_timeout={timeout}"
    cut_off_by: tuple[object, ...] | None = None
    try:
        await asyncio.wait({task}, timeout=timeout)
    except asyncio.CancelledError as cancelled:
        cut_off_by = cancelled.args
    # Outside of the block, where each error would get the cancellation as its context.
    if cut_off_by is not None:
        if not await _answer_in_spite_of_it(task, until, message):
            raise asyncio.CancelledError(*cut_off_by)
    elif not _has_answered(task):
        task.cancel()
        if await _outlast(task, until, message):
            raise asyncio.CancelledError
        _raise_partial_failure(task)
        raise TimeoutError(message)


async def _answer_in_spite_of_it(
    task: asyncio.Future[BaseException | None], until: float, message: str
) -> bool:
    """Have the handler's task end, now that the current one is cancelled.

    Returns:
        Whether the handler has returned, as one without a timeout may at the deadline.

    Raises:
        BaseException: What it raised of its own, as one without a timeout may, too.
    """
    if task.done() and not task.cancelled():
        # It has ended in this very turn: first what it says counts, then the
        # cancellation.
        _cancel_current_task()
    else:
        task.cancel()
        await _outlast(task, until, message)
    return not task.cancelled() and _has_answered(task)


async def _outlast(task: asyncio.Future[Any], until: float, message: str) -> bool:
    """Wait for a cancelled task to end, whoever cancels the current one meanwhile.

    Returns:
        Whether the current task was cancelled for good meanwhile.

    Raises:
        Unstoppable: It did not end by `until`, nor in the grace after that.
        CutOff: The current task, which is to end, was cancelled again.
    """
    loop = asyncio.get_running_loop()
    until = max(until, loop.time()) + _GRACE
    is_told = False
    while not task.done():
        # If the current task is to end, whoever ends it decides how long to wait.
        is_ending = is_cancelled_for_good()
        left = until - loop.time()
        if not is_ending and left <= 0:
            raise Unstoppable(task, message)
        try:
            await asyncio.wait({task}, timeout=None if is_ending else left)
        except asyncio.CancelledError:
            if not is_cancelled_for_good():
                uncancel()
                continue
            is_told = True
            if is_ending and not task.done():
                raise CutOff(task) from None
    return is_told


async def _kept(awaitable: Awaitable[object]) -> BaseException | None:
    # Returned, not raised: KeyboardInterrupt and SystemExit would end the loop's run
    # before the code that waits for the task learns of them, and `asyncio.run` reports
    # any other error of a task that it has cancelled, whoever is told of it.
    call = current_call()
    try:
        if call is not None:
            call.begin_step()
        await _noted(awaitable)
        # Left pending, it would end this task in place of what the call has returned.
        await absorb_cancellation()
    except (asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001 - raised where it is waited for
        return error
    finally:
        if call is not None:
            call.end_step()
    return None


def _has_answered(task: asyncio.Future[BaseException | None]) -> bool:
    """Whether it has returned; False if it still runs.

    Raises:
        BaseException: What it raised instead.
    """
    if not task.done():
        return False
    if (error := task.result()) is not None:
        raise error
    return True


def _raise_partial_failure(task: asyncio.Future[BaseException | None]) -> None:
    # Items that it says it has handled must not be handled again.
    if task.done() and not task.cancelled():
        error = task.result()
        if isinstance(error, PartialFailure):
            raise error


def _cancel_current_task() -> None:
    task = asyncio.current_task()
    if task is not None:
        task.cancel()


def _end_program(error: BaseException) -> None:
    """Raise the error out of the loop, unless an earlier one ends the loop's run.

    A second one would cut off what `asyncio.run` still has to do there: to wait for
    tasks that leave their queues, and so for what these drain.
    """
    loop = asyncio.get_running_loop()
    if not (getattr(loop, _IS_TOLD, False) and is_being_left()):
        setattr(loop, _IS_TOLD, True)
        loop.call_soon(_raise, error)


def _raise(error: BaseException) -> NoReturn:
    raise error
