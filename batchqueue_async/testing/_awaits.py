"""Where a coroutine waits."""

from collections.abc import Iterator
from types import FrameType
from typing import Any


def frames_of(coroutine: Any) -> Iterator[FrameType]:  # noqa: ANN401 - of any kind
    """Yield the frames of a coroutine and of those that it awaits, outermost first."""
    while coroutine is not None:
        # A generator may stand for a coroutine.
        frame = getattr(coroutine, "cr_frame", None)
        frame = frame or getattr(coroutine, "gi_frame", None)
        if frame is None:
            return
        yield frame
        awaited = getattr(coroutine, "cr_await", None)
        coroutine = awaited or getattr(coroutine, "gi_yieldfrom", None)
