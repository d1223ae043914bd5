"""What an item counts for, where room and batches are bounded by size."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from operator import index
from typing import TYPE_CHECKING, Any, TypeAlias

from batchqueue_async._validation import refuse, require_positive
from batchqueue_async._wording import add_note, kind_of

from .errors import ItemTooLarge

if TYPE_CHECKING:
    from fractions import Fraction

Exact: TypeAlias = "int | Fraction"
"""Numbers with exact sums: what was added and is taken away again leaves 0."""

SizeOf: TypeAlias = Callable[[Any], float]

_RULE = "a finite number >= 0"


def exact(size: float) -> Exact:
    """Return the number as an int or a Fraction, so that sums of it are exact."""
    if isinstance(size, int) or size.is_integer():
        return int(size)
    # Hardly any size is a fraction, and the import takes 2 ms.
    from fractions import Fraction  # noqa: PLC0415

    return Fraction(size)


def plain(size: Exact | float) -> float:
    """Return the number in a form that users know: an int, else a float."""
    return size if isinstance(size, int) else float(size)


def length_of(item: object) -> int:
    """Return the length of bytes or a text; other items need a `size_of`."""
    if isinstance(item, bytes | str | bytearray):
        return len(item)
    rule = "given where items are not bytes or str"
    msg = f"size_of must be {rule}, got None and {kind_of(item)}"
    raise TypeError(msg)


def measured_by(size_of: SizeOf, most: Exact | float) -> Callable[[Any], Exact]:
    """Return a function that measures an item, and refuses one that never fits."""

    def measure(item: object) -> Exact:
        try:
            size = size_of(item)
        except Exception as error:
            note_item(error, item)
            raise
        if type(size) is int and 0 <= size <= most:
            return size
        return checked(size, most)

    return measure


def note_item(error: Exception, item: object) -> None:
    """Say in what `size_of` has raised for which item."""
    add_note(error, f"size_of raised this for {kind_of(item)}")


def checked(size: object, most: Exact | float) -> Exact:
    """Return what `size_of` has returned as an exact number, if it is a size."""
    number = size if type(size) is int else _number(size)
    if number < 0:
        refuse("size_of(item)", _RULE, plain(number))
    if number > most:
        raise ItemTooLarge(plain(number), plain(most))
    return number


def _number(size: object) -> Exact:
    if isinstance(size, float):
        if not math.isfinite(size):
            refuse("size_of(item)", _RULE, float(size))
        return exact(size)
    if not isinstance(size, bool):
        # Whole numbers of other libraries, as NumPy's.
        with suppress(TypeError):
            return index(size)  # type: ignore[arg-type]
    # It may be a part of the item, so it is shown like one: by its type.
    msg = f"size_of(item) must be {_RULE}, got {kind_of(size)}"
    raise TypeError(msg)


def exact_weight(weight: float) -> Exact:
    """Return a handler's weight as the decimal number that was written.

    Sums of these are exact, in any order and at O(1) per change: twenty times 0.05
    is 1, and what is added and taken away again leaves 0.
    """
    require_positive("weight", weight)
    # Nearly every handler's is whole, and the import of fractions takes 2 ms.
    if isinstance(weight, int) or weight == 1:
        return int(weight)
    from fractions import Fraction  # noqa: PLC0415

    # float() first: a subclass may print its value in a wrapper.
    return Fraction(repr(float(weight)))
