"""Refuses to copy a part of a ring, or to send it to another process."""

from __future__ import annotations

from batchqueue_async._one_process import OfOneProcess


class RingPart(OfOneProcess):
    """A copy would share half of what it counts with the original."""

    __slots__ = ()

    _INSTEAD = "make a ring there"
