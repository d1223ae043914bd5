"""What a task awaits until it is woken, in a step that nothing can cut in two.

A future of asyncio is done first and calls back second. What is raised in between (a
RecursionError, a signal handler's exception) leaves it done and whoever awaits it
asleep for ever: no later call wakes it. Here the call back is asked for first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context


class Sleeper(asyncio.Future[None]):
    """A future for one task that awaits it; `wake` either raises or wakes.

    `set_result` is not for its users.
    """

    __slots__ = ("_context", "_wakeup", "is_called")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._wakeup: Callable[[Sleeper], object] | None = None
        self._context: Context | None = None
        # Whether it need not be awaited any more, or the call back is on its way.
        self.is_called = False

    def wake(self) -> None:
        """End the wait. What raises has changed nothing, and may be called again."""
        if not self.is_called:
            self.get_loop().call_soon(self._resume, context=self._context)
            # A second call back would be harmless, a missing one would not.
            self.is_called = True

    def resume(self) -> None:
        """Run the task on now, up to its next wait; for callbacks of the loop only."""
        if self._context is not None:
            self._context.run(self._resume)

    def cancel(self, msg: object | None = None) -> bool:
        """Cancel the wait, as the awaiting task's `cancel` does."""
        if self.is_called or self.done():
            return False
        self.wake()
        return super().cancel(msg)

    def add_done_callback(
        self,
        fn: Callable[[Sleeper], object],
        /,
        *,
        context: Context | None = None,
    ) -> None:
        """Keep the task that awaits it; called by asyncio, once."""
        self._wakeup, self._context = fn, context

    def _resume(self) -> None:
        wakeup, self._wakeup = self._wakeup, None
        if wakeup is None:
            return
        if not self.done():
            self.set_result(None)
        wakeup(self)
