"""How a user is warned of what he declares: at his own line."""

from __future__ import annotations

import sys
import warnings
from typing import Final

# `typing` calls what has a type in brackets, `dataclasses.replace` a class.
_INSIDE: Final = (__name__.partition(".")[0], "typing", "dataclasses")


def warn(message: str) -> None:
    """Warn the first caller that is not the library."""
    frame, level = sys._getframe(1), 2  # noqa: SLF001 - as warnings itself does it
    while frame.f_back is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] not in _INSIDE:
            break
        frame, level = frame.f_back, level + 1
    warnings.warn(message, UserWarning, stacklevel=level)
