"""How much a handler counts when partitions are shared out."""

from __future__ import annotations

from batchqueue_async._validation import require_positive

from .sizing import Exact


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
