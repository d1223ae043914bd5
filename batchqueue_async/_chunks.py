"""For bulk verbs of queues and rings: any iterable in lists of bounded length."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

from batchqueue_async._wording import kind_of

T = TypeVar("T")

# Items that are looked at together: what bounds the memory for endless iterables.
LENGTH = 10_000

# The same where sizes count: items that were taken from an iterable and have no room
# yet are in memory beside those that have room.
SIZED_LENGTH = 16


def chunks(items: Iterable[T], length: int = LENGTH) -> Iterator[list[T]]:
    """Yield the items in lists; those before an error come out before it is raised.

    Raises:
        TypeError: It is no iterable, or an asynchronous one.
    """
    if type(items) is list and len(items) <= length:
        yield items
        return
    _require_iterable(items)
    iterator = iter(items)
    while True:
        chunk: list[T] = []
        error: BaseException | None = None
        try:
            # On an error `extend` keeps the items that it has got so far.
            chunk.extend(islice(iterator, length))
        except BaseException as raised:  # noqa: BLE001 - raised again below
            error = raised
        if chunk:
            yield chunk
        if error is not None:
            raise error
        if len(chunk) < length:
            return


def _require_iterable(items: object) -> None:
    """Refuse all else, showing its type only, since its value may be an item's."""
    if not isinstance(items, Iterable) and not hasattr(items, "__getitem__"):
        kind = kind_of(items)
        msg = f"items must be an iterable, and no asynchronous one, got {kind}"
        raise TypeError(msg)
