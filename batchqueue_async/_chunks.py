"""For bulk verbs of queues and rings: any iterable in lists of bounded length."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from itertools import islice
from typing import Final, TypeVar

from batchqueue_async._threads.clock import monotonic
from batchqueue_async._wording import kind_of

T = TypeVar("T")

# Items that are looked at together: what bounds the memory for endless iterables.
LENGTH = 10_000

# The same where sizes count: items that were taken from an iterable and have no room
# yet are in memory beside those that have room.
SIZED_LENGTH = 16

_LONG: Final = 0.01
"""Seconds after which a list is long enough: so items of a slow iterator don't wait for
those that it has not made yet."""
_STEP: Final = 1024
"""Items after which the clock is looked at, once an iterator has proved quick."""
_GROWTH: Final = 4
"""How fast that is proved, from one item on: looks cost a microsecond each."""


def chunks(items: Iterable[T], length: int = LENGTH) -> Iterator[list[T]]:
    """Yield the items in lists; those before an error come out before it is raised.

    A list is shorter where an iterator takes its time over the next items.

    Raises:
        TypeError: It is no iterable, or an asynchronous one.
    """
    if type(items) is list and len(items) <= length:
        yield items
        return
    _require_iterable(items)
    iterator = iter(items)
    # What has a length has its items, and need not be asked for them in steps.
    step = length if isinstance(items, Sized) else 1
    while True:
        chunk: list[T] = []
        error: BaseException | None = None
        is_over = True
        try:
            is_over = _fill(chunk, iterator, length, step)
        except BaseException as raised:  # noqa: BLE001 - raised again below
            error = raised
        if chunk:
            yield chunk
        if error is not None:
            raise error
        if is_over:
            return


def _fill(chunk: list[T], iterator: Iterator[T], length: int, step: int) -> bool:
    """Fill it with as many, or with what comes in time; returns if those are all."""
    until = monotonic() + _LONG
    while (wanted := min(step, length - len(chunk))) > 0:
        expected = len(chunk) + wanted
        # On an error `extend` keeps the items that it has got so far.
        chunk.extend(islice(iterator, wanted))
        if len(chunk) < expected:
            return True
        if monotonic() > until:
            return False
        step = min(_GROWTH * step, _STEP)
    return False


def _require_iterable(items: object) -> None:
    """Refuse all else, showing its type only, since its value may be an item's."""
    if not isinstance(items, Iterable) and not hasattr(items, "__getitem__"):
        kind = kind_of(items)
        msg = f"items must be an iterable, and no asynchronous one, got {kind}"
        raise TypeError(msg)
