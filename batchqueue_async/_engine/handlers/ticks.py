"""When a handler's `on_tick` is due: one clock for all types that it handles."""

from __future__ import annotations

from collections.abc import Awaitable, Callable


class Ticks:
    """Ticks that come at equal distances, and merge where they were missed."""

    __slots__ = ("due", "every", "hook")

    def __init__(
        self, hook: Callable[[], Awaitable[object] | object], every: float
    ) -> None:
        self.hook = hook
        self.every = every
        # None before anybody has looked.
        self.due: float | None = None

    def late(self, now: float) -> float:
        """Return for how many seconds it has been due; less than 0 before it is."""
        if self.due is None:
            self.due = now + self.every
        return now - self.due

    def done(self, now: float) -> None:
        """It ticks now: whatever was missed before is this one."""
        assert self.due is not None
        missed = (now - self.due) // self.every
        self.due += (missed + 1) * self.every
