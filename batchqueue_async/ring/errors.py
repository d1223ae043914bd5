"""What goes wrong in a ring, what is refused, and what is done if a handler raises."""

from __future__ import annotations

import logging
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeAlias

from batchqueue_async import _validation
from batchqueue_async._log import SafeLogger
from batchqueue_async._one_process import OfOneProcess
from batchqueue_async._validation import refuse
from batchqueue_async._wording import kind_of

logger: SafeLogger = SafeLogger(logging.getLogger("batchqueue_async.ring"))

RING: Final = "a RingBuffer, as `async with disruptor as ring` gives it"
INHERITED: Final = "the ring belongs to the process that this one was forked from"


class RingError(Exception):
    """A ring was used in a way that cannot work; base of the others."""


class InvalidArgument(RingError, ValueError):
    """A capacity, a count or a handler that no ring can work with."""


class InsufficientCapacity(RingError):
    """There is no room now: consumers are behind, or others wait for their turn."""


class RingHalted(RingError):
    """The ring takes no more events: it was shut down, or a handler's error halted it.

    In the latter case `__cause__` is that error.
    """


class RingPart(OfOneProcess):
    """A copy would share half of what it counts with the original: it is refused."""

    __slots__ = ()

    _INSTEAD = "make a ring there"


class RewindBatch(Exception):
    """Raised by a handler that wants its whole batch again, from its first event on.

    For failures that may pass, such as a lost connection. How often, and after which
    pause, is what `Rewind` says. What the handler has told as passed within the batch,
    by `set_sequence_callback`, does not come again.
    """


@dataclass(frozen=True, slots=True)
class Rewind:
    """What is done when a handler raises `RewindBatch`.

    Args:
        attempts: How often one batch may be rewound; then the exception handler gets
            the error for the event that raised it. None: for ever.
        pause: Seconds before the batch is delivered again; others run meanwhile.
    """

    attempts: int | None = None
    pause: float = 0.0

    def __post_init__(self) -> None:
        if self.attempts is not None:
            require_count("attempts", self.attempts, 0, ">= 0 or None")
        require_seconds("pause", self.pause, may_be_zero=True)

    def allows(self, rewound: int) -> bool:
        """Whether a batch that was rewound so often may be rewound again."""
        return self.attempts is None or rewound < self.attempts


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
    # A hook has no event: the last one that was passed did not fail.
    if event is None:
        says = "a hook failed before event %d"
        logger.error(says, sequence + 1, exc_info=error, sequence=sequence)
        return
    logger.error(
        "event %d, %s, failed",
        sequence,
        kind_of(event),
        exc_info=error,
        sequence=sequence,
    )


def halt(error: Exception, sequence: int, event: object) -> NoReturn:
    """Halt the ring: no batch begins after this one, and producers are told.

    Other handlers end the batch that they are at, also where it has later events.
    """
    if event is None:
        says = "a hook halts the ring before event %d"
        logger.critical(says, sequence + 1, exc_info=error, sequence=sequence)
        raise error
    logger.critical(
        "event %d, %s, halts the ring",
        sequence,
        kind_of(event),
        exc_info=error,
        sequence=sequence,
    )
    raise error


def require_timeout(field: str, value: object) -> None:
    """Refuse anything but None, for no limit, or a finite number of seconds >= 0."""
    _validation.require_timeout(field, value, InvalidArgument)


def require_count(field: str, value: object, at_least: int, rule: str) -> None:
    """Refuse anything but an int of `at_least` or more; a bool is no int."""
    if not isinstance(value, int) or isinstance(value, bool):
        refuse(field, "an int", value, TypeError)
    if value < at_least:
        refuse(field, rule, value, InvalidArgument)


def require_seconds(field: str, value: object, *, may_be_zero: bool) -> None:
    """Refuse anything but a number of seconds that a timer can be set to."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        refuse(field, "a number of seconds", value, TypeError)
    # By ranges: nan is in none, and a huge int fits into no float.
    if not 0 <= value <= sys.float_info.max or (value == 0 and not may_be_zero):
        refuse(field, ">= 0" if may_be_zero else "> 0", value, InvalidArgument)


def require_power_of_two(field: str, capacity: object) -> None:
    """Refuse anything but 1, 2, 4, ...; a bool is no int."""
    if (
        not isinstance(capacity, int)
        or isinstance(capacity, bool)
        or capacity < 1
        or capacity & (capacity - 1)
    ):
        refuse(field, "a power of two", capacity, InvalidArgument)
