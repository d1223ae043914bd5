"""What a handler can say of a batch that it could not handle as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import index

from batchqueue_async._validation import refuse, require_at_least

_SHOWN = 10


class PartialFailure(Exception):
    """Raised by a handler that handled its batch but for some items.

    The others count as handled at once. These are tried again, in their order and
    before anything that is behind them, for as long as `Retry` has attempts, whatever
    its `retry_on` says; without one they fail, and `on_error` gets them alone. They are
    not split, since the handler knows them already.

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

    failed: tuple[int, ...] = ()
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
        return f"{count} {noun} failed, at {where}{more}" if count else "no item failed"

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
        return f"to be tried again after {self.seconds} s"


def _position(value: object) -> int:
    # A mask of bools would pass for the positions 0 and 1.
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        refuse("failed", "positions in the batch, each an int", value, TypeError)
    return index(value)
