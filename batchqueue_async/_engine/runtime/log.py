"""The library's log, behind a shield: a broken log must harm no item."""

from __future__ import annotations

import logging
import sys
import traceback
from typing import Any


class SafeLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger whose calls never raise.

    `logging` itself prints what goes wrong in its own handlers. A handler of somebody
    else's may raise, and would end whoever logs: a drain task, with what it holds.
    """

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:  # noqa: ANN401
        # One level more, so that records name the caller and not this method.
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
        try:
            super().log(level, msg, *args, **kwargs)
        except Exception:  # noqa: BLE001
            if logging.raiseExceptions and sys.stderr is not None:
                traceback.print_exc()


logger = SafeLogger(logging.getLogger("batchqueue_async"))
