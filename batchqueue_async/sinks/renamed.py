"""Arguments that have another name by now."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def renamed(**names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function take arguments by their old names, too, with a warning.

    Args:
        names: The new names by the old ones.
    """

    def decorated(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def taking_both(*args: P.args, **kwargs: P.kwargs) -> R:
            for old in names.keys() & kwargs.keys():
                new = names[old]
                msg = (
                    f"{old} is called {new} now; version 0.3 won't know {old} any more"
                )
                warnings.warn(msg, DeprecationWarning, stacklevel=2)
                if new in kwargs:
                    msg = f"{new} must be given once, got it as {old}, too"
                    raise TypeError(msg)
                kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return taking_both

    return decorated
