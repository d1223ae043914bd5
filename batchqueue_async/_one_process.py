"""Refuses to be sent to another process, or copied, in words that say what to do."""

from __future__ import annotations

from typing import NoReturn


class OfOneProcess:
    """What has a loop, threads or locks, none of which another process could use.

    `_INSTEAD` ends the error: what to do there.
    """

    __slots__ = ()

    _INSTEAD = "make one there, as process_queue does"

    # Called by `pickle` and `copy`, whose errors would name something deep inside.
    def __reduce__(self) -> NoReturn:
        msg = (
            f"a {type(self).__name__} can't be copied, or sent to another process: "
            f"{self._INSTEAD}"
        )
        raise TypeError(msg)
