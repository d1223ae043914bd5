"""What a group of errors is about: a `TaskGroup` raises one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

# Whatever a group's class makes of that attribute.
members_of: Final = vars(BaseExceptionGroup)["exceptions"].__get__


def errors_in(error: BaseException) -> Iterator[BaseException]:
    """Return the error itself, or those of a group that are no groups, in order."""
    left = [error]
    while left:
        each = left.pop()
        if isinstance(each, BaseExceptionGroup):
            left += reversed(members_of(each))
        else:
            yield each
