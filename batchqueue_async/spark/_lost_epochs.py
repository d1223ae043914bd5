"""A sink that has lost epochs which Spark has committed: nothing brings them again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from batchqueue_async._log import logger
from batchqueue_async.sinks import Epoch
from batchqueue_async.sinks.epochs import fields_of


async def warn_of_lost(
    epoch: Epoch,
    is_committed: Callable[[Epoch], Awaitable[bool]],
    before: Epoch | None = None,
) -> None:
    """Log it if an epoch comes to a sink in which the one before it is missing.

    As after a failover to a server that had not got it yet. A sink that hasn't the
    query's first epoch either is new to it, unless it is known to have had `before`.
    """
    first = Epoch(epoch.query, 0)
    last = before or Epoch(epoch.query, max(epoch.batch - 1, 0))
    if await is_committed(last):
        return
    if before is None and (last == first or not await is_committed(first)):
        return
    logger.warning(
        "%s comes, but %s, which Spark has committed, is not in the sink: its rows are"
        " lost, unless it had none, and was not written. The sink was restored from an"
        " older state, or a server that had not got it took over",
        epoch,
        last,
        **fields_of(last),
    )
