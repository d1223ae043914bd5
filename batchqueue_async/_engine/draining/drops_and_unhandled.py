"""Logs items that were dropped, or had no handler, and the counts of other failures.

Dropped ones (`DROP_OLDEST`) are logged once a minute at most. Producers do nothing for
it: a drain task looks at the counts after a cycle, at most once a second, and they are
looked at once more at the queue's end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar
from weakref import ref

from batchqueue_async._engine.draining.batch_stages import TO_BE_SETTLED
from batchqueue_async._log import logger
from batchqueue_async._loop_time import LONG_AGO

if TYPE_CHECKING:
    from batchqueue_async._engine.draining.batch import Batch
    from batchqueue_async._engine.partitions.partition import Partition
    from batchqueue_async._engine.queue_parts import Parts

T = TypeVar("T")

LOOKS: Final = 1.0
"""Seconds between two looks, at least."""
PERIOD: Final = 60.0
"""Seconds between two lines, at least."""


class DropReport:
    """Logs the drops of one queue that were not logged yet."""

    def __init__(self, name: str, partitions: Sequence[Partition[Any]]) -> None:
        self._name = name
        self._partitions = partitions
        self._told = 0
        self._told_at = LONG_AGO
        # When the next look is due.
        self.look_at = LONG_AGO

    def look(self, now: float) -> None:
        """Log what was dropped since the last line; `now` is inf at the queue's end."""
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


class UnhandledTypes:
    """The types without a handler that were logged, which is done once for each."""

    __slots__ = ("_told",)

    def __init__(self) -> None:
        # By identity: a metaclass may refuse to be hashed. None until there are some.
        self._told: dict[int, ref[type]] | None = None

    def news(self, items: Iterable[object]) -> list[type]:
        """Return those types of the items that were not logged yet."""
        types = {id(each): each for each in map(type, items)}.values()
        return [each for each in types if self._is_news(each)]

    def forget(self, item_type: type) -> None:
        """Forget that a type had no handler: if it has none again, that is logged."""
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


def tell_counts(parts: Parts, now: float) -> None:
    """Log the counts of failures and drops that are due; all if `now` is inf."""
    parts.repeated_failures.tell(now)
    if (drops := parts.drops) is not None and drops.look_at <= now:
        drops.look(now)


def keep_for_flush(
    parts: Parts,
    outcome: Literal["failed", "unhandled"],
    items: list[T],
    error: BaseException | None = None,
) -> None:
    """Keep items that ended other than handled for the next flush; never raises."""
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
    """Log that a batch's items have no handler, and count them as unhandled."""
    if batch.stage is not TO_BE_SETTLED:
        for item_type in parts.unhandled_types.news(batch.items):
            logger.error(
                "%s: no handler for items of type %s; they count as unhandled",
                parts.name,
                item_type.__qualname__ + _made_again(parts, item_type),
                queue=parts.name,
                item_type=item_type.__qualname__,
            )
        keep_for_flush(parts, "unhandled", batch.items)
        batch.stage = TO_BE_SETTLED
    batch.settle("unhandled")


def _made_again(parts: Parts, item_type: type) -> str:
    """Say so if a handler's class only has the name of this one, or of a base of it."""
    handled = {each.__qualname__ for each in parts.handlers.types}
    # Not `item_type.__mro__`: a metaclass may have one of its own.
    for each in type.__dict__["__mro__"].__get__(item_type):
        if each.__qualname__ in handled:
            return (
                f" (there is one for another class named {each.__qualname__}: was it "
                "made again, by a reload or a cell of a notebook?)"
            )
    return ""
