"""What a sink has of the epochs that are begun and not yet ended."""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass, field
from typing import NoReturn, TypeVar

from batchqueue_async import BatchQueueError

from .epochs import Epoch

V = TypeVar("V")


class OpenEpochs(dict[Epoch, V]):
    """What is open, at most once per epoch; asked for another, it refuses."""

    def __missing__(self, epoch: Epoch) -> NoReturn:
        """Raise a BatchQueueError: the epoch was not begun, or has ended."""
        msg = f"{epoch} is not open: `begin` comes first, once for each attempt"
        raise BatchQueueError(msg)


@dataclass(slots=True)
class NumberedWrites:
    """The writes of one attempt at an epoch.

    A write counts when it has returned. One that failed, or was cancelled in the
    middle, may have left rows behind; they carry a number that is not acknowledged, and
    are left out.

    Attributes:
        name: Of this attempt alone; starts with the epoch's `prefix`.
        acknowledged: How many rows each write added, by its number.
    """

    name: str
    acknowledged: dict[int, int] = field(default_factory=dict)
    _last: int = 0

    @property
    def rows(self) -> int:
        """How many rows the epoch has so far."""
        return sum(self.acknowledged.values())

    def next_number(self) -> int:
        """Return the number of a new write."""
        self._last += 1
        return self._last


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
