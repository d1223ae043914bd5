"""What the fences of all stores have in common: whose they are, and what is told."""

from __future__ import annotations

from typing import Final, NoReturn

from batchqueue_async import BatchQueueError
from batchqueue_async._log import logger
from batchqueue_async._wording import shown

from .epochs import Epoch, fields_of

# In fences of the old layout, which don't know their table: they count for all.
ANY_TABLE: Final = ""

KNOWN_TARGETS: Final = """
    WITH RECURSIVE known (name) AS (
        SELECT min(target) FROM {0}
    UNION ALL
        SELECT (SELECT min(target) FROM {0} WHERE target > name) FROM known
        WHERE name IS NOT NULL
    )"""
"""The names of tables in a table of fences, of which each epoch's stays.

There are few. So for each of these an epoch is asked for, which the primary key
answers; else it would be looked for among all fences.
"""


def warn_of_old_fence(epoch: Epoch, table: str) -> None:
    """Log that a fence counts for a table although it may be another one's."""
    logger.warning(
        "%s counts as committed into %s: its fence was written by an earlier version, "
        "which didn't note the table, and so counts for all that share the fences. Give"
        " a table that is new fences of its own",
        epoch,
        table,
        table=table,
        **fields_of(epoch),
    )


def warn_of_new_table(epoch: Epoch, table: str) -> None:
    """Log that an epoch is committed once more: its table was made anew."""
    logger.warning(
        "%s was committed into a table %s that was dropped since: it is committed into"
        " the new one of that name, too",
        epoch,
        table,
        table=table,
        **fields_of(epoch),
    )


def require_own(epoch: Epoch, checkpoint: str | None) -> None:
    """Refuse an epoch that another stream has written: it is no repetition.

    Where one of the two is not known, as in fences of earlier versions, it counts.
    """
    if checkpoint is None or epoch.checkpoint in {None, checkpoint}:
        return
    msg = (
        f"query must be one stream's alone, got {shown(epoch.query)}: its batch"
        f" {epoch.batch} was written by the stream with checkpoint {checkpoint}, and"
        f" now comes from that with checkpoint {epoch.checkpoint}, whose rows are not"
        " written. A stream with another checkpoint, or with a new one, takes another"
        " `query`"
    )
    raise BatchQueueError(msg)


def refuse_query(epoch: Epoch, query: str) -> NoReturn:
    """Raise for a batch that its stream has written under another `query`.

    As one that was killed just after it, and started again by another name.
    """
    before = f"query {shown(query)}"
    if query == epoch.checkpoint:
        before = "no query, but its checkpoint's id"
    msg = (
        f"query must stay what it was until a stream's last batch can't come again, got"
        f" {shown(epoch.query)}: batch {epoch.batch} of checkpoint {epoch.checkpoint}"
        f" was written under {before}, and is not written twice. Start the stream once"
        " as it was, and give it another when a batch after that has been written"
    )
    raise BatchQueueError(msg)
