"""Items with their sizes, from the measuring of an item to its place in a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, SupportsIndex, TypeVar, overload

from batchqueue_async._policies.sizing import Exact

T = TypeVar("T")

Measure = Callable[[Any], Exact]


class Measured(list[T]):
    """A list of items that knows the size of each; a slice of it does, too."""

    __slots__ = ("sizes",)

    def __init__(self, items: Iterable[T] = (), sizes: Iterable[Exact] = ()) -> None:
        super().__init__(items)
        self.sizes = [*sizes]

    @overload
    def __getitem__(self, place: SupportsIndex) -> T: ...

    @overload
    def __getitem__(self, place: slice) -> Measured[T]: ...

    def __getitem__(self, place: SupportsIndex | slice) -> T | Measured[T]:
        if isinstance(place, slice):
            return Measured(super().__getitem__(place), self.sizes[place])
        return super().__getitem__(place)

    def of(self, places: Iterable[int]) -> Measured[T]:
        """Return the items at these places."""
        chosen: Measured[T] = Measured()
        for place in places:
            chosen.add(self[place], self.sizes[place])
        return chosen

    def add(self, item: T, size: Exact) -> None:
        """Put one more item at the end."""
        self.append(item)
        self.sizes.append(size)

    def extend(self, items: Iterable[T]) -> None:
        """Put other measured items at the end."""
        assert isinstance(items, Measured)
        super().extend(items)
        self.sizes.extend(items.sizes)


def measured(
    chunk: Iterable[T], measure: Measure
) -> tuple[Measured[T], Exception | None]:
    """Measure items until one cannot be; returns those before it, and what it raised.

    What comes before an error is accepted, as where an iterable raises midway.
    """
    known: Measured[T] = Measured()
    try:
        for item in chunk:
            known.add(item, measure(item))
    except Exception as error:  # noqa: BLE001 - for the caller to raise
        return known, error
    return known, None


def one_measured(item: T, measure: Measure) -> Measured[T]:
    """Measure one item."""
    return Measured((item,), (measure(item),))
