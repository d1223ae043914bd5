"""How much a handler counts when partitions are shared out."""

from __future__ import annotations

from fractions import Fraction

from .validation import require_positive

# Nearly every handler's.
_ONE = Fraction(1)


def exact_weight(weight: float) -> Fraction:
    """Return a handler's weight as the decimal number that was written.

    Sums of these are exact, in any order and at O(1) per change: twenty times 0.05
    is 1, and what is added and taken away again leaves 0.

    Raises:
        TypeError: If the weight is no number.
        ValueError: If the weight is not finite or not above zero.
    """
    require_positive("weight", weight)
    if weight == 1:
        return _ONE
    # float() first: a subclass may print its value in a wrapper.
    return Fraction(weight if isinstance(weight, int) else repr(float(weight)))
