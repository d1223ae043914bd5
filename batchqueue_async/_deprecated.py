"""Marks what a later version won't have, for callers and for editors (PEP 702)."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

if TYPE_CHECKING:
    # By this name checkers know it; that package need not be installed.
    from typing_extensions import deprecated as deprecated  # noqa: PLC0414
else:

    def deprecated(message: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Warn whoever calls the function, as `warnings.deprecated` of Python 3.13."""

        def decorated(function: Callable[P, R]) -> Callable[P, R]:
            @functools.wraps(function)
            def warning(*args: P.args, **kwargs: P.kwargs) -> R:
                warnings.warn(message, DeprecationWarning, stacklevel=2)
                return function(*args, **kwargs)

            warning.__deprecated__ = message
            return warning

        return decorated
