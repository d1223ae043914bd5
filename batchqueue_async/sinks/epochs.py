"""The contract of a sink that takes every epoch exactly once, and what writes to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar, runtime_checkable

from batchqueue_async import BatchQueueError
from batchqueue_async._log import logger
from batchqueue_async._validation import refuse, require_instance, require_int

from .checks import require_name
from .forks import watch_forks

T = TypeVar("T")

# Spark counts as far, and so do databases.
_MOST: Final = 2**63 - 1


class _OfStream:
    """Where an epoch came from, beside what it is: its dataclass has it in no field.

    Sinks of users' own pass `astuple(epoch)` on, as the two values that they know.
    """

    __slots__ = ("checkpoint",)

    checkpoint: str | None


@dataclass(frozen=True, order=True, init=False)
class Epoch(_OfStream):
    """A unit of work that comes again after a crash: a streaming query's micro-batch.

    The same pair means the same rows, however they are divided into partitions that
    time. So this pair, and nothing smaller, is what a sink remembers.

    Attributes:
        query: Who delivers, the same after a restart; for Spark the query id.
        batch: Its number, from 0 on.
        checkpoint: The id in the stream's checkpoint, which `query` need not be; None
            if there is none, or nobody knows. A fence notes it, so that another stream
            of the same `query` is refused, and a batch that comes again under another
            `query`. It has no part in what is equal, and is no field:
            `dataclasses.replace` makes an epoch without.

    Raises:
        TypeError: If one of them is of the wrong kind.
        ValueError: If the query is empty, or the batch negative or beyond 64 bits.
    """

    __slots__ = ("batch", "query")

    query: str
    batch: int

    def __init__(self, query: str, batch: int, checkpoint: str | None = None) -> None:
        require_name("query", query)
        require_int("batch", batch, at_least=0, at_most=_MOST)
        if checkpoint is not None:
            require_name("checkpoint", checkpoint)
        # It is frozen: by the way that a dataclass's own `__init__` takes.
        assign = object.__setattr__
        assign(self, "query", query)
        assign(self, "batch", batch)
        assign(self, "checkpoint", checkpoint)

    def __reduce__(self) -> tuple[type[Epoch], tuple[str, int, str | None]]:
        return type(self), (self.query, self.batch, self.checkpoint)

    def __str__(self) -> str:
        return f"batch {self.batch} of query {self.query}"


def key_of(epoch: Epoch) -> tuple[str, int]:
    """Return what an epoch is known by."""
    return epoch.query, epoch.batch


def fields_of(epoch: Epoch) -> dict[str, Any]:
    """Return what a record in the log says of it."""
    return {"query": epoch.query, "batch": epoch.batch}


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
    once; `commit`, when all of them have returned.
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
        """Return whether the fence is there.

        If it notes another `checkpoint` than this epoch's, it is another stream's: this
        raises, and so does `commit`. So they do if this `checkpoint`'s batch was
        written under another `query`. A sink that notes none can't tell.
        """


def require_sink(value: object) -> None:
    """Refuse what is no sink, and a sink's class given for its object."""
    if isinstance(value, type) or not isinstance(value, EpochSink):
        refuse("sink", "an EpochSink", value, TypeError)


def require_epoch(value: object) -> None:
    """Refuse what is none, such as the number of a batch alone."""
    rule = "an Epoch, as in Epoch(query, batch)"
    require_instance("epoch", value, Epoch, rule)


class EpochWriter(Generic[T]):
    """A handler that writes every batch into the epoch that is open, and its sink.

    It is both ends of the way through a queue: the queue's handler, or what a handler
    of yours writes with; and the `EpochSink` that begins and commits. So it is given to
    both, and the handler needs no idea of epochs.

    After an `abort` it takes what still comes, from caches for instance, and drops it:
    it belongs to the epoch that was given up, and will come again. At any other time
    `consume` without an open epoch raises, so that nothing gets past a fence.

    Args:
        sink: Where the epochs go. Closed with the queue, if it has a `close`.
    """

    def __init__(self, sink: EpochSink[T]) -> None:
        require_sink(sink)
        self._sink = sink
        # The last attempt's, from the first step of its `begin`; whether it goes on.
        self._begun: Epoch | None = None
        self._goes_on = False
        # The one that takes rows.
        self._epoch: Epoch | None = None
        self._drops = False
        self._written = 0
        watch_forks(self)

    def leave_to_parent(self) -> list[object]:
        """Have no epoch open, in a forked child: it is its parent's."""
        self._begun = self._epoch = None
        self._goes_on = self._drops = False
        return []

    @property
    def epoch(self) -> Epoch | None:
        """The epoch that is open."""
        return self._epoch

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The names of a row's values, if the sink tells them in its `columns`."""
        return getattr(self._sink, "columns", None)

    @property
    def written(self) -> int:
        """How many items went into the epoch that is open, or was the last."""
        return self._written

    async def consume(self, batch: list[T]) -> None:
        """Write a batch, or anything else, into the open epoch.

        Raises:
            BatchQueueError: No epoch is open.
        """
        batch = [*batch]  # it may be a generator of a handler's
        if self._epoch is not None:
            await self._sink.write(self._epoch, batch)
            self._written += len(batch)
        elif self._drops:
            logger.debug(
                "%d items of an epoch that was given up",
                len(batch),
                items=len(batch),
            )
        else:
            msg = f"no epoch is open: {len(batch)} items would get past the fence"
            raise BatchQueueError(msg)

    async def on_close(self) -> None:
        """Close the sink."""
        close = getattr(self._sink, "close", None)
        if close is not None:
            await close()

    async def begin(self, epoch: Epoch) -> None:
        """Start an attempt: from now on `consume` writes into this epoch.

        Raises:
            BatchQueueError: Another epoch is open.
        """
        if self._goes_on and self._begun != epoch:
            msg = (
                f"{self._begun} is open: {epoch} has to wait for its end; queries that"
                " run at a time need an EpochWriter and a queue each"
            )
            raise BatchQueueError(msg)
        # Before the sink begins: until then another query's attempt might begin, too,
        # and one would take the other's rows.
        self._begun, self._goes_on, self._epoch = epoch, True, None
        try:
            await self._sink.begin(epoch)
        except BaseException:
            # If it was cut off, another epoch may have begun since.
            if self._begun == epoch:
                self._goes_on = False
            raise
        self._epoch, self._drops, self._written = epoch, False, 0

    async def write(self, epoch: Epoch, items: list[T]) -> None:
        """Write into an epoch that is named, as the sink does."""
        await self._sink.write(epoch, items)

    async def commit(self, epoch: Epoch) -> None:
        """End the attempt: from now on `consume` raises."""
        self._close_for_writing(epoch)
        await self._sink.commit(epoch)

    async def abort(self, epoch: Epoch) -> None:
        """Give the attempt up: from now on `consume` drops, until the next `begin`."""
        self._close_for_writing(epoch)
        # One that was refused beside an open one leaves that one as it is.
        self._drops = self._drops or self._begun in {None, epoch}
        await self._sink.abort(epoch)

    async def is_committed(self, epoch: Epoch) -> bool:
        """Return what the sink says."""
        return await self._sink.is_committed(epoch)

    def _close_for_writing(self, epoch: Epoch) -> None:
        if self._begun == epoch:
            self._epoch, self._goes_on = None, False
