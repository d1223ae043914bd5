"""A class that counts comparisons, to see that no long line is searched."""

from typing import ClassVar


class CountsComparisons:
    """To be inherited from, first; each class has a count."""

    comparisons: ClassVar[int] = 0

    def __eq__(self, other: object) -> bool:
        type(self).comparisons += 1
        return self is other

    def __hash__(self) -> int:
        return id(self)
