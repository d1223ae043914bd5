"""Undoes an append after which a signal handler has raised."""

from __future__ import annotations

from collections.abc import MutableSequence
from typing import TypeVar

T = TypeVar("T")


def undo_append(items: MutableSequence[T], item: T, error: BaseException) -> None:
    """Take an item out that was just appended on the loop, so its producer may raise.

    No drain task has run since, but the signal handler may have put items behind it.
    """
    if isinstance(error, MemoryError):
        # The append itself failed, so the item is not in.
        return
    for index in range(len(items) - 1, -1, -1):
        if items[index] is item:
            del items[index]
            return
