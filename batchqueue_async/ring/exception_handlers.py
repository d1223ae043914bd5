"""What happens when a handler raises."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, TypeAlias

from batchqueue_async._wording import kind_of

logger = logging.getLogger("batchqueue_async.ring")

ExceptionHandler: TypeAlias = Callable[
    [Exception, int, Any], Awaitable[object] | object
]
"""Called as `(error, sequence, event)`, sync or async, when a handler raised.

If it returns, the event counts as passed, and the next one comes. If it raises, the
ring halts. For a batch handler `sequence` is the batch's first, and `event` the list of
its events; for the other hooks `event` is None.
"""


def log_and_continue(error: Exception, sequence: int, event: object) -> None:
    """Log the error and go on with the next event: the default."""
    logger.error("event %d, %s, failed", sequence, kind_of(event), exc_info=error)


def halt(error: Exception, sequence: int, event: object) -> NoReturn:
    """Halt the ring: no event after this one is handled, and producers are told."""
    logger.critical(
        "event %d, %s, halts the ring", sequence, kind_of(event), exc_info=error
    )
    raise error
