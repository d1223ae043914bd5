"""A handler that merges items by key, and hands on what has come of them.

Invariant: a batch is merged in one step, as the last thing that `consume` does. So one
that fails, or whose call is cancelled, was not merged, and a retry doubles nothing.
Queues of several loops may share it, so that this step is taken under a lock.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeAlias

from batchqueue_async._engine.draining.partial_failure import require_within
from batchqueue_async._engine.queue import BatchQueue
from batchqueue_async._functions import require_sync_function
from batchqueue_async._handing_on import HandingOn, Sharing
from batchqueue_async._log import logger
from batchqueue_async._policies.errors import BatchQueueError
from batchqueue_async._policies.handler_checks import require_batch_function
from batchqueue_async._policies.items import T
from batchqueue_async._policies.retry import (
    PartialFailure,
    RetryAfter,
    checked_answer,
    pause_asked_for,
)
from batchqueue_async._results import await_returned, is_generated, require_done
from batchqueue_async._validation import (
    refuse,
    require_int,
    require_positive,
)

Then: TypeAlias = BatchQueue[T] | Callable[[list[T]], Awaitable[object] | object]

# Seconds after which a `then` that raised is called again, at least.
_PAUSE = 1.0


class Merging(Generic[T]):
    """A handler that holds one merged item per key, and hands them on in batches.

    It hands on what it holds after `every` seconds; before it merges a batch, if it
    holds `at_most` by then; in the first pause (without `every`, else in the first one
    after that time); on a flush; and when its queue closes. While `then` waits, so does
    the queue in front of it: back-pressure goes through.

    A `then` that raises keeps the merged items here: they are tried again a second
    later, or after the seconds that it asks for by a `RetryAfter`, and go on being
    merged. Of a `PartialFailure` only those are kept that it names. With `at_most` of
    them held a batch fails instead of being merged (the queue's `Retry`, `on_error` and
    account apply). A flush gets the error in its `DeliveryError`. If `then` is a queue
    that closes, or the call is cancelled, in the middle, those that were not accepted
    are kept. If `merge` raises for an item that was not handed on and a newer one of
    its key, both are handed on.

    What is merged counts as handled by the queue in front. So if the process dies, what
    is held is lost without a trace: that of the last `every` seconds or more. If the
    queue's deadline comes before its `on_close`, or `then` raises there, it is lost,
    too, unless another queue has this handler, which goes on; the log says how much,
    and `stats().not_closed` names this handler.

    Register it for one type, or for several whose keys differ. Several drain tasks may
    enter it at once. Then `then`, too, may be called before it has returned, and of one
    key the older item be handed on after the newer one. Where only the latest counts,
    have one drain task.

    Queues may share it, also those of several loops. A flush, or the end, of one waits
    for what another one hands on. A `then` that is a function is called on each of the
    loops. In a forked child, and as a copy, it begins with nothing held.

    Args:
        key: Of an item; items with equal keys are merged.
        merge: Gets the older and the newer of two and returns what stands for both:
            None only if one of them is. It may change the older one and return that,
            where `key` and `merge` never raise: else a batch that fails may be merged
            in part.
        then: A `BatchQueue` on the same loop, or a function, sync or async, that gets a
            list of merged items: all of them are handed on when it returns.
        every: Seconds that an item is held, before its turn in the next batch or pause;
            None for until the first pause.
        at_most: How many merged items are held, and those of one batch; None for as
            many as there are keys.

    Raises:
        TypeError, ValueError: An argument is wrong.
    """

    def __init__(
        self,
        *,
        key: Callable[[T], Hashable],
        merge: Callable[[T, T], T],
        then: Then[T],
        every: float | None = None,
        at_most: int | None = None,
    ) -> None:
        require_sync_function("key", key, 1, "one argument, an item")
        require_sync_function("merge", merge, 2, "two arguments, both items")
        if not isinstance(then, BatchQueue):
            if not callable(then):
                refuse("then", "a BatchQueue or callable", then, TypeError)
            require_batch_function("then", then)
        if every is not None:
            require_positive("every", every)
        if at_most is not None:
            require_int("at_most", at_most, at_least=1)
        self._key = key
        self._merge = merge
        self._then = then
        self._every = every
        self._at_most = at_most
        self._hold_nothing()

    def _hold_nothing(self) -> None:
        self._held: dict[Hashable, T] = {}
        # In loop time: when the oldest held item came, and when `then` may be tried.
        self._since = self._try_at = 0.0
        # Until when `then` has asked not to be tried, not even to make room.
        self._asked_until = 0.0
        self._is_failing = False
        self._sharing = Sharing()

    def __getstate__(self) -> dict[str, object]:
        """Of a copy, as in a process of Spark's: what is held is not in two places."""
        return {**vars(self), "_held": {}, "_sharing": Sharing()}

    @property
    def held(self) -> int:
        """How many merged items wait to be handed on."""
        self._leave_to_parent()
        return len(self._held)

    async def consume(self, batch: list[T]) -> None:
        """Hand on what is due, then merge the batch."""
        self._leave_to_parent()
        if self._is_full:
            await self._make_room()
        elif self._every is not None and self._is_due(self._every):
            try:
                await self._hand_on()
            except Exception as error:  # noqa: BLE001 - held, and tried again
                self._tell(error)
        self._take_up(batch)

    async def _make_room(self) -> None:
        """Hand on all; whatever that raises fails a batch, which is not merged."""
        pause = self._asked_until - asyncio.get_running_loop().time()
        if pause > 0:
            raise RetryAfter(pause)
        try:
            await self._hand_on()
        except PartialFailure as answer:
            if self._is_full:
                # Its positions are of what was handed on, and not of the batch.
                raise RetryAfter(pause_asked_for(answer)) from answer
            self._tell(answer)

    async def on_idle(self) -> None:
        """Hand on what is due, or all if there is no `every`, or no room for more."""
        if self._is_due(0.0 if self._is_full else self._every or 0.0):
            await self._hand_on()

    async def on_flush(self) -> None:
        """Hand on all."""
        await self._hand_on_all()

    async def on_close(self) -> None:
        """Hand on all; what `then` refuses is lost, unless another queue has this."""
        try:
            await self._hand_on_all()
        except BaseException:
            logger.error(
                "%d merged items were not handed on: they are lost, unless another"
                " queue has this handler",
                self.held,
                items=self.held,
            )
            raise

    def _leave_to_parent(self) -> None:
        """Begin anew in a forked child: the parent hands on what it has merged."""
        if self._sharing.process != os.getpid():
            self._hold_nothing()

    @property
    def _is_full(self) -> bool:
        return self._at_most is not None and len(self._held) >= self._at_most

    def _is_due(self, after: float) -> bool:
        if not self._held:
            return False
        now = asyncio.get_running_loop().time()
        return now >= max(self._since + after, self._try_at)

    def _take_up(self, batch: list[T]) -> None:
        with self._sharing.lock:
            merged = self._merged(batch)
            if not self._held:
                self._since = asyncio.get_running_loop().time()
            # Last, so that after an error nothing of the batch is merged.
            self._held.update(merged)

    def _merged(self, batch: list[T]) -> dict[Hashable, T]:
        held, key_of, merge = self._held, self._key, self._merge
        merged: dict[Hashable, T] = {}
        for item in batch:
            key = key_of(item)
            if key in merged:
                older = merged[key]
            elif key in held:
                older = held[key]
            else:
                merged[key] = item
                continue
            merged[key] = both = merge(older, item)
            if both is None:
                _refuse_none(older, item)
        return merged

    async def _hand_on_all(self) -> None:
        """Hand on all, and wait for those who had taken some of it before.

        Several queues may share this one, and each of them is promised a receipt.
        """
        others = await self._hand_on()
        for other in others:
            await other.end()
        if any(other.has_ended and other.has_failed for other in others):
            await self._hand_on_all()

    async def _hand_on(self) -> list[HandingOn]:
        """Hand on what is held; returns who was handing on something else by then."""
        self._leave_to_parent()
        this, pause = HandingOn(), _PAUSE
        # Other drain tasks may merge meanwhile.
        with self._sharing.lock:
            handed, self._held = self._held, {}
            since, others = self._since, [*self._sharing.handing_on]
            self._sharing.handing_on.add(this)
        try:
            await self._give(handed)
            self._is_failing, self._try_at, self._asked_until = False, 0.0, 0.0
            this.has_failed = False
        except Exception as error:
            asked = pause_asked_for(checked_answer(error))
            self._asked_until = asyncio.get_running_loop().time() + asked
            pause = max(pause, asked)
            raise
        finally:
            with self._sharing.lock:
                this.has_ended = True
                self._sharing.handing_on.discard(this)
                if handed:
                    self._keep(handed, since, this.loop.time() + pause)
        return others

    async def _give(self, handed: dict[Hashable, T]) -> None:
        """Hand on these items, and remove from them what was handed on."""
        then = self._then
        if isinstance(then, BatchQueue):
            # One by one: of `produce_many` only the number would be known.
            for key in list(handed):
                if not await then.produce(handed[key]):
                    msg = f"queue {then.name!r} refuses what is merged for it"
                    raise BatchQueueError(msg)
                del handed[key]
        elif handed:
            try:
                await self._call(then, list(handed.values()))
            except PartialFailure as answer:
                if _leave_failed(handed, answer):
                    raise
            handed.clear()

    @staticmethod
    async def _call(then: Callable[[list[T]], object], merged: list[T]) -> None:
        result = then(merged)
        if is_generated(result):
            refuse("then", "no generator function", then, TypeError)
        if inspect.isawaitable(result):
            await await_returned(await result)
        else:
            require_done(result)

    def _keep(self, rest: dict[Hashable, T], since: float, try_at: float) -> None:
        """Hold what was not handed on, in front of what has come since."""
        self._since, self._try_at = since, try_at
        newer, self._held = self._held, rest
        failed: Exception | None = None
        for key, item in newer.items():
            try:
                rest[key] = self._both(rest[key], item) if key in rest else item
            except Exception as error:  # noqa: BLE001 - raised when all are kept
                # The newer item's batch is handled: it goes on beside the older one.
                rest[object()] = item
                failed = error
        if failed is not None:
            raise failed

    def _both(self, older: T, newer: T) -> T:
        both = self._merge(older, newer)
        if both is None:
            _refuse_none(older, newer)
        return both

    def _tell(self, error: Exception) -> None:
        # For `consume` only: what `on_idle` raises is logged by its queue.
        if not self._is_failing:
            self._is_failing = True
            logger.error(
                "%d merged items are not handed on, and held",
                self.held,
                exc_info=error,
                items=self.held,
            )


def _leave_failed(handed: dict[Hashable, T], answer: PartialFailure) -> bool:
    """Remove what was handed on by this answer; returns whether anything is left."""
    error = checked_answer(answer)
    if error is not answer:
        raise error
    failed = sorted(set(answer.failed))
    if failed:
        require_within(len(handed), failed, answer)
    kept = set(failed)
    for position, key in enumerate(list(handed)):
        if position not in kept:
            del handed[key]
    return bool(handed)


def _refuse_none(older: object, newer: object) -> None:
    """Refuse a `merge` that returns nothing, as `dict.update` does: both were lost."""
    if older is not None and newer is not None:
        refuse("what merge returns", "what stands for both items", None, TypeError)
