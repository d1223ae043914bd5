"""What is told of items that were not handled, and counted of their deliveries.

Dropped ones (`DROP_OLDEST`) are told of once a minute at most. Nothing of it is on a
producer's way: a drain task looks at the counts after a cycle, at most once a second,
and the queue's end does.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar
from weakref import ref

from batchqueue_async._engine.draining.stages import NOTED, RETURNED
from batchqueue_async._engine.runtime.log import logger
from batchqueue_async._policies.config import AUTO

if TYPE_CHECKING:
    from batchqueue_async._engine.draining.batch import Batch
    from batchqueue_async._engine.handlers.handler_lock_and_call import HandlerCall
    from batchqueue_async._engine.partitions.partition import Partition
    from batchqueue_async._engine.queue_parts import Parts

T = TypeVar("T")

LOOKS: Final = 1.0
"""Seconds between two looks, at least."""
PERIOD: Final = 60.0
"""Seconds between two lines, at least."""


class DropReport:
    """What of one queue's drops the log does not know yet."""

    def __init__(self, name: str, partitions: Sequence[Partition[Any]]) -> None:
        self._name = name
        self._partitions = partitions
        self._told = 0
        self._told_at = -math.inf
        # When the next look is due.
        self.look_at = -math.inf

    def look(self, now: float) -> None:
        """Tell what was dropped since the last line; at its end `now` is inf."""
        self.look_at = now + LOOKS
        if now < self._told_at + PERIOD:
            return
        dropped = sum(each.accounts.dropped for each in self._partitions)
        more = dropped - self._told
        if not more:
            return
        logger.warning(
            "%s: %d items were dropped%s: newer ones displaced them in full partitions",
            self._name,
            more,
            f" (of {dropped} so far)" if self._told else "",
            queue=self._name,
            items=more,
        )
        self._told, self._told_at = dropped, now


def note(
    parts: Parts,
    outcome: Literal["failed", "unhandled"],
    items: list[T],
    error: BaseException | None = None,
) -> None:
    """Keep what ended other than handled for the next flush; never raises."""
    try:
        parts.failures.add(outcome, items, error)
    except Exception:  # noqa: BLE001 - the account must be right all the same
        logger.exception(
            "%s: the next flush will not tell all of %d items that ended as %s",
            parts.name,
            len(items),
            outcome,
            queue=parts.name,
            items=len(items),
        )


def end_unhandled(parts: Parts, batch: Batch[T]) -> None:
    """Nobody handles its items: say so, and count them."""
    if batch.stage is not NOTED:
        for item_type in parts.delivery.unhandled_news(batch.items):
            logger.error(
                "%s: no handler for items of type %s; they count as unhandled",
                parts.name,
                item_type.__qualname__,
                queue=parts.name,
                item_type=item_type.__qualname__,
            )
        note(parts, "unhandled", batch.items)
        batch.stage = NOTED
    batch.settle("unhandled")


class DeliveryCounts:
    """Handlers' calls, as far as they are timed, and what had to be tried again."""

    __slots__ = ("_told", "calls", "is_timed", "longest_pause", "retried")

    def __init__(self, parts: Parts) -> None:
        config = parts.config
        # Handlers are timed only where somebody asks what they cost.
        is_timed = parts.loads.in_seconds or config.measure_handlers
        is_timed = is_timed or parts.ownership.active is not None
        self.is_timed = is_timed or config.max_batch == AUTO
        # Of handlers that are timed, those that did not raise.
        self.calls = 0
        # Items that were tried again, each time.
        self.retried = 0
        # Seconds that a handler asked for, since adaptive drain tasks set it to zero.
        self.longest_pause = 0.0
        # The types without a handler that the log knows of; each is told of once. By
        # identity: a metaclass may refuse to be hashed. None until there are some.
        self._told: dict[int, ref[type]] | None = None

    def unhandled_news(self, items: Iterable[object]) -> list[type]:
        """Return those of the items' types, which have no handler, that are news."""
        types = {id(each): each for each in map(type, items)}.values()
        return [each for each in types if self._is_news(each)]

    def is_handled(self, item_type: type) -> None:
        """It has a handler: when it has none again, that is news."""
        if self._told is not None:
            self._told.pop(id(item_type), None)

    def _is_news(self, item_type: type) -> bool:
        if self._told is None:
            self._told = {}
        key, told = id(item_type), self._told
        known = told.get(key)
        if known is not None and known() is item_type:
            return False
        # Forgotten with the type: another one may get its identity.
        told[key] = ref(item_type, lambda _: told.pop(key, None))
        return True


def outlive(
    parts: Parts, left: asyncio.Future[Any], batch: Batch[Any], call: HandlerCall
) -> None:
    """Block the partitions of a handler that cannot be stopped, until it ends."""
    batch.pause_partitions(call)

    def ended() -> None:
        batch.resume_partitions(call)
        parts.tasks.wake()

    parts.detector.calls.outlives(call, left, batch, ended)
    # It is inside, and its drain task is not.
    batch.stage = RETURNED
    assert batch.registration is not None
    label = batch.registration.label
    logger.error(
        "%s: %s cannot be stopped; its partitions are blocked until it ends",
        parts.name,
        label,
        queue=parts.name,
        handler=label,
        items=len(batch),
    )
