"""Interrupts a call at each point where Python handles signals, in libraries, too.

Python handles signals where a function begins and after a call. A profile function is
told of both, and may raise there.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

MOST = 400
"""More than any of the calls has points that are interrupted here."""


class Interrupted(BaseException):
    """Stands for a KeyboardInterrupt."""


def interrupted(step: int, call: Callable[[], object]) -> bool:
    """Call it, and raise at its point number `step`; returns whether it had so many.

    Whatever else the call raises is raised here: an interrupt has to leave as itself.
    """
    left = step

    def profile(frame: FrameType, event: str, _: Any) -> None:  # noqa: ANN401
        nonlocal left
        if event in ("call", "c_return") and frame.f_code is not interrupted.__code__:
            left -= 1
            if left == 0:
                raise Interrupted

    # Hypothesis has a callback of its own for collections, which is no point of ours.
    gc.disable()
    try:
        with suppress(Interrupted):
            sys.setprofile(profile)
            try:
                call()
            finally:
                sys.setprofile(None)
    finally:
        gc.enable()
    return left <= 0
