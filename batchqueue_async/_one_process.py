"""Refuses to be sent to another process, or copied, in words that say what to do."""

from __future__ import annotations

from typing import NoReturn


class OfOneProcess:
    """What has a loop, threads or locks, none of which another process could use."""

    __slots__ = ()

    # Called by `pickle` and `copy`, whose errors would name something deep inside.
    def __reduce__(self) -> NoReturn:
        msg = (
            f"a {type(self).__name__} can't be copied, or sent to another process: "
            "make one there, as process_queue does"
        )
        raise TypeError(msg)
