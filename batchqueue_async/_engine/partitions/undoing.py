"""A signal handler's error struck just after an item had come in."""

from __future__ import annotations

from collections.abc import MutableSequence
from typing import TypeVar

T = TypeVar("T")


def undo_append(items: MutableSequence[T], item: T, error: BaseException) -> None:
    """Take out what has just come in, on the loop, so that its producer may raise.

    Nobody has looked since; but the signal handler may have put something behind it.
    """
    if isinstance(error, MemoryError):
        # Then it did not come in.
        return
    for index in range(len(items) - 1, -1, -1):
        if items[index] is item:
            del items[index]
            return
