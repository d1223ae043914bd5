"""Ctrl-C as a wish to end, not as an exception in the middle of anything."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Self


class Interruption:
    """Notes the first Ctrl-C; a second one interrupts at once, as usual.

    An exception in the middle of `produce_many` would leave a flight counted for its
    carrier and not for its route. So the producer looks here between two batches.
    """

    def __init__(self) -> None:
        self.is_requested = False

    def __enter__(self) -> Self:
        self._previous = signal.signal(signal.SIGINT, self._request)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._previous)

    def _request(self, _: int, __: FrameType | None) -> None:
        self.is_requested = True
        signal.signal(signal.SIGINT, signal.default_int_handler)
