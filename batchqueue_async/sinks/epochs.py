"""The contract of a sink that takes every epoch exactly once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

from batchqueue_async._validation import refuse, require_int

from .checks import require_name

T = TypeVar("T")


@dataclass(frozen=True, slots=True, order=True)
class Epoch:
    """A unit of work that comes again after a crash: a streaming query's micro-batch.

    The same pair means the same rows, however they are divided into partitions that
    time. So this pair, and nothing smaller, is what a sink remembers.

    Attributes:
        query: Who delivers, the same after a restart; for Spark the query id.
        batch: Its number, from 0 on.

    Raises:
        TypeError: If one of them is of the wrong kind.
        ValueError: If the query is empty or the batch negative.
    """

    query: str
    batch: int

    def __post_init__(self) -> None:
        require_name("query", self.query)
        require_int("batch", self.batch, at_least=0)

    def __str__(self) -> str:
        return f"batch {self.batch} of query {self.query}"


@runtime_checkable
class EpochSink(Protocol[T]):
    """Where epochs are written: all of one becomes visible, once, or nothing of it.

    An attempt is `begin`, any number of `write` calls, then `commit` or `abort`. It may
    end anywhere with the death of the process; then the epoch comes again, possibly in
    another process with another parallelism. The sink keeps a fence for each committed
    epoch: the record that it is committed.

    What an implementation must keep:

    * Data and fence become visible in one transaction. With two, a crash in between
      loses the epoch or doubles it.
    * There is one fence for the whole epoch, never one per partition: after a restart
      the same rows may be divided otherwise, and a partition's number then stands for
      other rows.
    * Nothing that an attempt wrote is visible before its `commit`.
    * A `write` that raised, or was cancelled, adds nothing to the epoch; or it makes
      the attempt's `commit` raise.

    All methods are called on one event loop. `write` may be called several times at
    once.
    """

    async def begin(self, epoch: Epoch, /) -> None:
        """Start an attempt; what earlier attempts of this epoch left is discarded."""

    async def write(self, epoch: Epoch, items: list[T], /) -> None:
        """Add the items to the epoch; nobody sees them yet."""

    async def commit(self, epoch: Epoch, /) -> None:
        """Make everything that was written, and the fence, visible in one transaction.

        Once it returns both are durable. If another attempt has committed the epoch in
        the meantime, this one's items are discarded. If it raises the epoch may be
        committed or not; `is_committed` tells.
        """

    async def abort(self, epoch: Epoch, /) -> None:
        """Discard what was written; nothing to do for an epoch that was not begun."""

    async def is_committed(self, epoch: Epoch, /) -> bool:
        """Return whether the fence is there."""


def require_sink(field: str, value: object) -> None:
    """Refuse what is no sink, and a sink's class given for its object."""
    if isinstance(value, type) or not isinstance(value, EpochSink):
        refuse(field, "an EpochSink", value, TypeError)
