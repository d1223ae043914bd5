"""How often, and after which waits, a failed batch is tried again.

And what a handler can say of a batch that it could not handle as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from operator import index
from typing import ClassVar

from batchqueue_async._validation import (
    refuse,
    require_at_least,
    require_instance,
    require_int,
    require_iterable,
    require_positive,
)
from batchqueue_async._wording import errors_in, reason

from .value import Value

_SHOWN = 10


class PartialFailure(Exception):
    """Raised by a handler that handled all of its batch but some items.

    The others count as handled at once. The failed ones are tried again, in their order
    and before anything that is behind them, for as long as `Retry` has attempts,
    whatever its `retry_on` says; then they fail, and `on_error` gets them alone. They
    are not split, since the handler knows them already.

    Without any position all of the batch was handled; with one that the batch does not
    have the whole batch fails, as by a `ValueError`.

    Args:
        failed: Positions in the batch as it was given, from 0; their order and
            repetitions don't matter.
        retry_after: Seconds to wait at least before they are tried again, as in
            `RetryAfter`; None for `Retry`'s own wait.
        results: What came of the batch, for `batchqueue_async.spark.map_async`: as its
            call returns it, one for each item; those at `failed` are not looked at. A
            queue's handlers have no results, and need none here.

    Raises:
        TypeError, ValueError: An argument is wrong. Raised in the handler, so that the
            batch fails by it.
    """

    # No default: a subclass that forgets it would count its batch as handled.
    failed: tuple[int, ...]
    retry_after: float | None = None
    results: Sequence[object] | None = None

    def __init__(
        self,
        failed: Iterable[int],
        *,
        retry_after: float | None = None,
        results: Sequence[object] | None = None,
    ) -> None:
        if retry_after is not None:
            require_at_least("retry_after", retry_after, 0)
        require_iterable("failed", failed, "positions in the batch, each an int")
        self.failed = tuple(map(_position, failed))
        self.retry_after = retry_after
        self.results = results
        # Enough for pickling, with what is in `__dict__`.
        super().__init__(self.failed)

    def __str__(self) -> str:
        count = len(self.failed)
        where = ", ".join(map(str, self.failed[:_SHOWN]))
        more = ", ..." if count > _SHOWN else ""
        noun = "item" if count == 1 else "items"
        text = f"{count} {noun} failed, at {where}{more}" if count else "no item failed"
        return text + _since(self.__cause__)

    def __repr__(self) -> str:
        return f"{type(self).__qualname__}({str(self)!r})"


class RetryAfter(Exception):
    """Raised by a handler whose receiver asks for a pause: HTTP 429 or 503, say.

    Its batch is tried again, whatever `Retry.retry_on` says, and not before these
    seconds have passed: also where that is longer than `Retry.wait_max`. Meanwhile the
    batch's partitions wait as for any retry. Without an attempt left, or if it would
    start after `Retry.deadline`, the batch fails; it is not split.

    Args:
        seconds: The least wait before the next attempt.

    Raises:
        TypeError, ValueError: That is no finite number >= 0. Raised in the handler, so
            that the batch fails by it.
    """

    seconds: float = 0.0

    def __init__(self, seconds: float) -> None:
        require_at_least("seconds", seconds, 0)
        self.seconds = seconds
        super().__init__(seconds)

    def __str__(self) -> str:
        return f"to be tried again after {self.seconds} s{_since(self.__cause__)}"


def _since(cause: BaseException | None) -> str:
    # A line of the log has no traceback that would say it.
    return "" if cause is None else f", since {reason(cause)}"


def _position(value: object) -> int:
    # A mask of bools would pass for the positions 0 and 1.
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        refuse("failed", "positions in the batch, each an int", value, TypeError)
    return index(value)


class Retry(Value):
    """When a batch whose handler raised is given to it again.

    With more than one attempt a handler may see items twice: delivery is at least
    once. The default tries once: at most once.

    Attributes:
        attempts: How many times a batch is given to its handler at most, the first
            time included: "retried 3 times" is 4.
        wait_initial: Longest wait in seconds before the second attempt; it doubles
            for each further one. A wait is a random time from 0 to that.
        wait_max: Seconds that no wait exceeds.
        deadline: Seconds from the first attempt after which no other is due, or None;
            one that is due before may start later, if its drain task is at work then.
        retry_on: Exceptions worth another attempt; any other fails at once. A group, as
            of a `TaskGroup`, is worth one if all in it are, or if its class is named.
        split: Halve a batch that failed for good, until what fails is isolated and
            every other item is handled.
        split_on: Exceptions by which a batch is halved at once, without another
            attempt as a whole. If a class in `retry_on` fits, too, the class that is
            nearer to the error counts; with one that is in both it is retried first.
    """

    _called_elsewhere: ClassVar[dict[str, str]] = {
        # Three retries are four attempts.
        **dict.fromkeys(("retries", "max_retries"), "attempts, with the first one"),
        "tries": "attempts",
        **dict.fromkeys(("backoff", "delay"), "wait_initial"),
        **dict.fromkeys(("max_wait", "max_delay"), "wait_max"),
        "timeout": "deadline",
        "exceptions": "retry_on",
    }

    attempts: int = 1
    wait_initial: float = 0.1
    wait_max: float = 5.0
    deadline: float | None = None
    retry_on: tuple[type[Exception], ...] = (Exception,)
    split: bool = False
    split_on: tuple[type[Exception], ...] = ()

    def __post_init__(self) -> None:
        require_int("attempts", self.attempts, at_least=1)
        require_at_least("wait_initial", self.wait_initial, 0)
        require_at_least("wait_max", self.wait_max, 0)
        if self.wait_max < self.wait_initial:
            refuse("wait_max", f">= wait_initial ({self.wait_initial})", self.wait_max)
        if self.deadline is not None:
            require_positive("deadline", self.deadline)
        _require_exceptions("retry_on", self.retry_on)
        require_instance("split", self.split, bool, "a bool")
        _require_exceptions("split_on", self.split_on)

    def retries(self, error: BaseException) -> bool:
        """Return whether another attempt as a whole is worth it after this error."""
        if self._goes_by_members(error):
            # The positions in a `PartialFailure` may be of one task's share.
            return all(
                not isinstance(each, PartialFailure) and self.retries(each)
                for each in errors_in(error)
            )
        if isinstance(error, PartialFailure | RetryAfter):
            return True
        if not isinstance(error, self.retry_on):
            return False
        return not isinstance(error, self.split_on) or _distance(
            error, self.retry_on
        ) <= _distance(error, self.split_on)

    def splits(self, error: BaseException) -> bool:
        """Return whether a batch is halved if it gets no other attempt after this."""
        if self._goes_by_members(error):
            return any(map(self.splits, errors_in(error)))
        if isinstance(error, PartialFailure | RetryAfter):
            return False
        return isinstance(error, self.split_on) or (
            self.split and isinstance(error, self.retry_on)
        )

    def _goes_by_members(self, error: BaseException) -> bool:
        """Whether it is a group that no setting names, so that what is in it counts."""
        named = (*self.retry_on, *self.split_on)
        return isinstance(error, BaseExceptionGroup) and not isinstance(error, named)

    def wait_before(self, attempt: int, random: float) -> float:
        """Return the seconds to wait before an attempt: exponential, fully jittered.

        Args:
            attempt: The attempt that follows the wait; 2 is the first retry.
            random: A random number from 0 up to, not including, 1.
        """
        retries = attempt - 1
        if retries < 1:
            refuse("attempt", ">= 2", attempt)
        return random * doubled(self.wait_initial, retries - 1, self.wait_max)


def doubled(first: float, doublings: int, longest: float) -> float:
    """Return min(first * 2**doublings, longest), without overflow for any count."""
    if doublings < 0:
        refuse("doublings", ">= 0", doublings)
    if first == 0:
        return first
    # Beyond the difference of the binary exponents the product exceeds `longest`.
    if doublings > math.frexp(longest)[1] - math.frexp(first)[1]:
        return longest
    return min(math.ldexp(first, doublings), longest)


def _require_exceptions(field: str, value: object) -> None:
    # Not BaseException: a retried cancellation would keep a queue from closing.
    are_exceptions = isinstance(value, tuple) and all(
        isinstance(each, type) and issubclass(each, Exception) for each in value
    )
    if not are_exceptions:
        refuse(field, "a tuple of Exception classes", value, TypeError)


def _distance(error: BaseException, classes: tuple[type[Exception], ...]) -> int:
    """Return how far up among the error's bases the nearest of `classes` is."""
    bases = type(error).__mro__
    return next(place for place, base in enumerate(bases) if base in classes)


def checked_answer(error: Exception) -> Exception:
    """Return what a handler raised, or why it is no answer.

    A subclass may have an `__init__` of its own, which checks nothing.
    """
    try:
        for each in errors_in(error):
            _check(each)
    except Exception as wrong:  # noqa: BLE001 - a property of the subclass may do anything
        wrong.__cause__ = error
        return wrong
    return error


def _check(error: BaseException) -> None:
    if isinstance(error, PartialFailure):
        _ = error.failed
        if error.retry_after is not None:
            require_at_least("retry_after", error.retry_after, 0)
    elif isinstance(error, RetryAfter):
        require_at_least("seconds", error.seconds, 0)


def pause_asked_for(error: BaseException | None) -> float:
    """Return the seconds that a handler asks to wait for before a next attempt."""
    return max(map(_pause, errors_in(error))) if error is not None else 0.0


def asks_for_pause(error: BaseException) -> bool:
    """Whether it does, though it may be for no time."""
    return any(
        isinstance(each, RetryAfter)
        or (isinstance(each, PartialFailure) and each.retry_after is not None)
        for each in errors_in(error)
    )


def _pause(error: BaseException) -> float:
    if isinstance(error, PartialFailure):
        return error.retry_after or 0.0
    return error.seconds if isinstance(error, RetryAfter) else 0.0
