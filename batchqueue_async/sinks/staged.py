"""The contract of a sink that many processes write to, and one publishes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn, Protocol, TypeVar, runtime_checkable

from batchqueue_async import BatchQueueError
from batchqueue_async._validation import require_int
from batchqueue_async._wording import shown

from .checks import require_name
from .epochs import Epoch, require_epoch

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of one process to stage one partition's part of an epoch.

    Attributes:
        epoch: What the rows belong to.
        run: Which run of the epoch this is part of: a restarted driver is another one.
        partition: The partition's number in this run; says nothing about its rows.
        name: Any text, unique among all attempts there ever are, those of killed runs
            included.
        is_announced: The run was announced to the sink, if it has `announce`.
        is_case_sensitive: Names of columns that differ in the case of their letters are
            different, as with `spark.sql.caseSensitive`.

    Raises:
        TypeError: If one of these is of the wrong kind.
        ValueError: If one is empty, or the partition negative.
    """

    epoch: Epoch
    run: str
    partition: int
    name: str
    is_announced: bool = False
    is_case_sensitive: bool = False

    def __post_init__(self) -> None:
        require_epoch(self.epoch)
        require_name("run", self.run)
        require_int("partition", self.partition, at_least=0)
        require_name("name", self.name)

    def __str__(self) -> str:
        return f"partition {self.partition} of {self.epoch}"


@dataclass(frozen=True, slots=True)
class Token:
    """The receipt for what an attempt has staged; small, and travels to the driver.

    Attributes:
        attempt: Whose rows they are.
        rows: How many; `publish` compares it with what it finds.
        place: Where they are, in the sink's own words.
    """

    attempt: Attempt
    rows: int
    place: str = ""


@runtime_checkable
class StagedSink(Protocol[T]):
    """Where many processes stage an epoch's rows, and one makes them visible.

    On executors an attempt is any number of `stage` calls, then `seal` or `abandon`,
    one after the other. On the driver's side the epoch ends with `publish` or
    `discard`. Any of these processes may die at any point, and then the epoch comes
    again with another `run`, possibly divided into other partitions.

    What an implementation must keep:

    * Nothing is visible before `publish`; what it publishes is exactly what its tokens
      stand for, and becomes visible in one transaction with the epoch's fence.
    * The fence stands for the whole epoch. One per partition loses rows when the
      parallelism changes between crash and restart.
    * An attempt that was sealed but isn't among the tokens (of a retried task, of
      speculation, of an earlier run) is removed by `publish`, and one that is sealed
      later than that leaves nothing.
    * The constructor does no I/O: it runs wherever the sink is named.

    All methods of one object are called on one event loop.

    A sink may have one more method, `async announce(epoch, run)`. Where the driver's
    side can name a run before its tasks start (a batch write; not a micro-batch) it is
    called there, and the attempts say so. Once such a run is published or discarded, an
    attempt that begins later is refused, so that what a failed job's last tasks do
    leaves nothing either.

    A sink may say where it writes to, in an attribute `target` such as "table sales":
    messages of what failed name it. With an attribute `wants_columns` that is true, it
    gets a record batch without rows, staged and sealed beside the driver, before an
    epoch is published that has none.
    """

    async def stage(self, attempt: Attempt, items: list[T], /) -> None:
        """Add items to the attempt, or none.

        If it raises, the attempt can only be abandoned: `seal` would lose its rows.
        """

    async def seal(self, attempt: Attempt, /) -> Token:
        """Make what was staged durable, and invisible still; returns the receipt.

        An attempt without items is sealed, too; that should cost no I/O. If the epoch
        was published in the meantime, it keeps nothing, and may raise. If its rows are
        gone otherwise, since the run was discarded, or all of it was too old, it
        raises.
        """

    async def abandon(self, attempt: Attempt, /) -> None:
        """Undo what an unsealed attempt has staged; unknown ones are fine."""

    async def publish(self, epoch: Epoch, tokens: Sequence[Token], /) -> bool:
        """Make the tokens' rows and the fence visible in one transaction.

        Whatever else is staged for the epoch is removed. Returns False, and changes
        nothing that is visible, if the epoch was published before. If it raises the
        epoch may be published or not; `is_published` tells.

        Raises:
            StagedRowsMissing: The rows found aren't those of the tokens.
            BatchQueueError: The fence is there and notes another `checkpoint` than the
                epoch's: another stream has published it. Or there is one of this
                `checkpoint` and batch, of another `query`. A sink that notes none can't
                tell.
        """

    async def discard(self, epoch: Epoch, run: str, /) -> None:
        """Remove what the run has staged, and what it seals from now on.

        Never touches what is published, nor another run's rows.
        """

    async def is_published(self, epoch: Epoch, /) -> bool:
        """Return whether the fence is there."""

    async def close(self) -> None:
        """Give connections and files back; unsealed attempts are undone."""


class StagedRowsMissing(Exception):
    """Less is staged than was sealed, so nothing was published.

    For instance the database server crashed in between, and its unlogged tables are
    empty. The epoch has to run again, and Spark doesn't do that by itself: it ends the
    query, which somebody starts again with the same checkpoint; or a batch write
    raises, and is called again.
    """

    def __init__(self, epoch: Epoch, expected: int, found: int) -> None:
        super().__init__(epoch, expected, found)
        self.epoch = epoch
        self.expected = expected
        self.found = found

    def __str__(self) -> str:
        return (
            f"{self.epoch}: {self.expected} rows were sealed, but {self.found} are "
            "staged; nothing was published"
        )


def refuse_known(attempt: Attempt) -> NoReturn:
    """Raise for a name that another attempt had: a token may refer to its rows."""
    msg = (
        f"an attempt's name must be unique, got {shown(attempt.name)} for {attempt},"
        " which was staged before"
    )
    raise BatchQueueError(msg)


def refuse_removed(attempt: Attempt) -> NoReturn:
    """Raise if staged rows are gone and not published: a receipt would lose them."""
    msg = (
        f"{attempt} was removed before it was sealed: its run was discarded, or it had"
        " begun 7 days ago"
    )
    raise BatchQueueError(msg)


def columns_of(tokens: Sequence[Token]) -> list[str]:
    """Return the columns that sinks of tables note in `place`; refuse different ones.

    The others' would be left out, or become null, without a word.
    """
    found = [token.place.split("\0") for token in tokens]
    require_same_columns(found)
    return found[0]


def require_same_columns(found: Sequence[Sequence[str]]) -> None:
    """Refuse tokens whose columns differ, in whatever order they are."""
    for columns in found[1:]:
        if {*columns} != {*found[0]}:
            told = f"{shown(tuple(found[0]))} and {shown(tuple(columns))}"
            msg = f"tokens must be of rows with the same columns, got {told}"
            raise ValueError(msg)


def rows_of(epoch: Epoch, tokens: Sequence[Token]) -> int:
    """Return how many rows the tokens stand for."""
    names = set()
    for token in tokens:
        if token.attempt.epoch != epoch or token.attempt.name in names:
            msg = (
                f"tokens must be of {epoch}, one per attempt, got {token} among "
                f"{len(tokens)}"
            )
            raise ValueError(msg)
        names.add(token.attempt.name)
    return sum(token.rows for token in tokens)
