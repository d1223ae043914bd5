"""Cuts what is to be published into lists that a ring can hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

A = TypeVar("A")


def portions(items: Iterable[A], most: int) -> Iterator[list[A]]:
    """Return lists of up to `most` items.

    If `items` raises, what it gave before that comes before the error.
    """
    source = iter(items)
    while True:
        portion: list[A] = []
        try:
            # Unlike `list`, it keeps what came before an error.
            portion.extend(islice(source, most))
        except Exception:
            yield portion
            raise
        if not portion:
            return
        yield portion
