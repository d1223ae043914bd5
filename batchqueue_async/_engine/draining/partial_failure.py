"""A batch of which only a part has failed, as its handler says.

Of the items that it says to have handled none is tried again.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, TypeVar

from batchqueue_async._engine.draining.batch import Batch
from batchqueue_async._engine.draining.batch_stages import PART_BOOKED
from batchqueue_async._engine.partitions.accounts import Share
from batchqueue_async._engine.partitions.pausing import resume

if TYPE_CHECKING:
    from batchqueue_async._policies.retry import PartialFailure

T = TypeVar("T")


def settle_handled(batch: Batch[T], answer: PartialFailure) -> BaseException | None:
    """Book what was handled, and leave what failed in the batch.

    The rest keeps its place, its order and its attempts (promises A1 and B1). So items
    that were behind the batch are behind the rest, if that has any of their partition.

    Returns:
        Why the rest has failed: the answer, or the error if that is invalid. None if
        nothing is left.
    """
    if batch.is_settled:
        return answer
    try:
        failed = sorted(set(answer.failed))
        if not failed:
            batch.settle("handled")
            return None
        require_within(len(batch), failed, answer)
        if len(failed) < len(batch):
            _leave(batch, failed)
    except Exception as error:  # noqa: BLE001 - a subclass may be anything, or no memory
        return error
    return answer


def require_within(count: int, failed: list[int], answer: PartialFailure) -> None:
    """Refuse an answer that names, ascending, positions that its batch doesn't have."""
    for position in (failed[0], failed[-1]):
        if not 0 <= position < count:
            msg = f"failed must be positions from 0 to {count - 1}, got {position}"
            raise ValueError(msg) from answer


def _leave(batch: Batch[T], failed: list[int]) -> None:
    """Leave the items at these positions, ascending, in the batch."""
    former = batch.items
    items = [former[position] for position in failed]
    parts = _parted(batch.shares, failed)
    first, *others = (rest for _, rest in parts if rest is not None)
    parts.reverse()
    shares = [share for share, _ in parts]
    count = len(former) - len(items)
    # All that takes memory is made by now. The batch changes first: it cannot settle
    # again the items that it has no more. No call until all of it is changed.
    batch.stage = PART_BOOKED
    batch.items = items
    batch.partition = first.partition
    batch.count, batch.first = first.count, first.first
    batch.others = others or None
    if batch.registration is not None:
        batch.registration.items += count
    try:
        _book(batch, parts)
    except BaseException:
        # Book what was not booked before the error.
        _book(batch, parts)
        raise
    finally:
        for share in shares:
            share.partition.accounts.tell_watchers()


def _book(batch: Batch[T], parts: list[tuple[Share[T], Share[T] | None]]) -> None:
    """Book the shares from the last one on; those that are booked leave the list."""
    while parts:
        share, rest = parts[-1]
        accounts = share.partition.accounts
        if rest is None:
            resume(share.partition, batch)
            accounts.settle("handled", share.count, share.first)
        elif rest.count < share.count:
            handled = share.count - rest.count
            accounts.settle_some(handled, rest.count, share.first, rest.first)
        # No call in between.
        del parts[-1]


def _parted(
    shares: list[Share[T]], failed: list[int]
) -> list[tuple[Share[T], Share[T] | None]]:
    """Return each share with what is left of it, if anything is."""
    parts: list[tuple[Share[T], Share[T] | None]] = []
    start = known = 0
    for share in shares:
        end = start + share.count
        beyond = bisect_left(failed, end, known)
        rest = None
        if beyond > known:
            # At least so many of the share's items come before it: a lower bound of its
            # position.
            first = share.first + failed[known] - start
            rest = Share(share.partition, beyond - known, first)
        parts.append((share, rest))
        start, known = end, beyond
    return parts
