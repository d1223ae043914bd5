"""The attempts that one staged sink has open, and which of them have ended."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Generic, TypeVar

from batchqueue_async import BatchQueueError
from batchqueue_async._wording import shown

from .forks import watch_forks
from .staged import Attempt

A = TypeVar("A")

# Who seals an attempt again does so soon; an executor stages any number of them.
_MOST_ENDED: Final = 10_000


class OpenAttempts(Generic[A]):
    """What a sink knows of each attempt that has rows, by the attempt's name.

    One that it doesn't know has none, and is sealed as such. So those that had some
    must be known after their end, too: to seal one again would be a receipt that lacks
    its rows. That is so for one that failed, whose rows may not be whole.
    """

    def __init__(self) -> None:
        self._open: dict[str, A] = {}
        # In the order of their ends. One that failed is in both until it is undone.
        self._ended: OrderedDict[str, None] = OrderedDict()
        watch_forks(self)

    def __setitem__(self, attempt: Attempt, known: A) -> None:
        self._open[attempt.name] = known

    def get(self, attempt: Attempt) -> A | None:
        """Return what is known of an attempt; None if nothing was staged in it.

        Raises:
            BatchQueueError: It has ended, or failed.
        """
        if attempt.name in self._ended:
            msg = (
                f"an attempt's name must be unique, got {shown(attempt.name)} for"
                f" {attempt}, which has ended: it was sealed or abandoned, or a `stage`"
                " of it failed, or its sink was closed"
            )
            raise BatchQueueError(msg)
        return self._open.get(attempt.name)

    @contextmanager
    def staging(self, attempt: Attempt) -> Iterator[A | None]:
        """Give what `get` returns; if the block raises, nothing is sealed any more."""
        known = self.get(attempt)
        try:
            yield known
        except BaseException:
            self._note_end(attempt.name)
            raise

    def end(self, attempt: Attempt) -> A | None:
        """Return what is known of an attempt that is open, and end it."""
        known = self._open.pop(attempt.name, None)
        if known is not None:
            self._note_end(attempt.name)
        return known

    def end_any(self) -> tuple[str, A] | None:
        """End one of those that are open, if there is one."""
        if not self._open:
            return None
        name, known = self._open.popitem()
        self._note_end(name)
        return name, known

    def forget(self, attempt: Attempt) -> A | None:
        """Do what `end` does, but it may be sealed again: its epoch is published."""
        return self._open.pop(attempt.name, None)

    def leave_to_parent(self) -> list[object]:
        """End all of them, in a forked child: its parent goes on with them."""
        attempts, self._open = self._open, {}
        for name in attempts:
            self._note_end(name)
        return [*attempts.values()]

    def _note_end(self, name: str) -> None:
        self._ended[name] = None
        if len(self._ended) > _MOST_ENDED:
            self._ended.popitem(last=False)
