"""The attempts at epochs that one sink has begun and not yet ended."""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass, field

from batchqueue_async import BatchQueueError

from .epochs import Epoch


@dataclass(slots=True)
class Attempt:
    """One try to write an epoch; its writes are numbered.

    A write counts when it has returned. One that failed, or was cancelled in the
    middle, may have left rows behind; they carry a number that is not acknowledged, and
    are left out.

    Attributes:
        name: Of this attempt alone; starts with the epoch's `prefix`.
        acknowledged: How many rows each write added, by its number.
    """

    name: str
    acknowledged: dict[int, int] = field(default_factory=dict)
    _writes: int = 0

    @property
    def rows(self) -> int:
        """How many rows the epoch has so far."""
        return sum(self.acknowledged.values())

    def next_write(self) -> int:
        """Return the number of a new write."""
        self._writes += 1
        return self._writes


class Attempts:
    """One sink's open attempts, at most one per epoch."""

    def __init__(self) -> None:
        self._open: dict[Epoch, Attempt] = {}

    def start(self, epoch: Epoch, target: str = "") -> Attempt:
        """Return a new attempt, which takes the place of an earlier one."""
        attempt = Attempt(new_name(epoch, target))
        self._open[epoch] = attempt
        return attempt

    def of(self, epoch: Epoch) -> Attempt:
        """Return the epoch's attempt.

        Raises:
            BatchQueueError: It was not begun, or has ended.
        """
        attempt = self._open.get(epoch)
        if attempt is None:
            raise not_open(epoch)
        return attempt

    def end(self, epoch: Epoch) -> Attempt | None:
        """Forget the epoch's attempt and return it, if there was one."""
        return self._open.pop(epoch, None)


def prefix(epoch: Epoch, target: str = "") -> str:
    """Return what the names of all attempts at an epoch start with.

    A digest: it has one length, and no character that a name must not have.

    Args:
        epoch: The epoch.
        target: What it goes to, where attempts for several targets lie side by side:
            those for another one have other names.
    """
    of_target = f"\0{target}" if target else ""
    text = f"{epoch.query}\0{epoch.batch}{of_target}"
    # A query's name may be half a surrogate: it needs no meaning, only to differ.
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"epoch_{digest[:16]}_"


def new_name(epoch: Epoch, target: str = "") -> str:
    """Return a name for a new attempt."""
    return f"{prefix(epoch, target)}{uuid.uuid4().hex[:12]}"


def not_open(epoch: Epoch) -> BatchQueueError:
    """Return what is raised for an epoch that has no attempt."""
    msg = f"{epoch} is not open: `begin` comes first, once for each attempt"
    return BatchQueueError(msg)
