"""Gives batches to handlers, and decides what becomes of those that failed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from types import CoroutineType
from typing import Any, Generic, Literal, TypeVar

from batchqueue_async._engine.attempt import (
    GRACE,
    Unstoppable,
    attempt,
    finish,
    left_behind,
    own_error,
)
from batchqueue_async._engine.batch import Batch
from batchqueue_async._engine.doom import doom
from batchqueue_async._engine.failure_log import FailureLogs
from batchqueue_async._engine.gate import Stuck
from batchqueue_async._engine.log import logger
from batchqueue_async._engine.own_work import OwnWork
from batchqueue_async._engine.registration import Registration
from batchqueue_async._engine.stopwatch import Stopwatch
from batchqueue_async._policies.config import BatchQueueConfig
from batchqueue_async._policies.errors import BatchQueueError

T = TypeVar("T")

# How long `on_error` may take for what a shutdown left, beyond its deadline.
_LEFTOVER_TIME = 1.0


class Delivery(Generic[T]):
    """The way of a batch from being taken to being settled."""

    __slots__ = (
        "_failures",
        "_is_timed",
        "_name",
        "_on_error",
        "_on_release",
        "_own_work",
        "_reported",
        "_retry",
        "_timeout",
    )

    def __init__(
        self,
        own_work: OwnWork,
        name: str,
        config: BatchQueueConfig[T],
        failures: FailureLogs,
        on_release: Callable[[], None],
    ) -> None:
        self._own_work = own_work
        self._name = name
        self._retry = config.retry
        self._timeout = config.handler_timeout
        # Who asks what a handler costs; nobody else has to pay for looking.
        rebalancing = config.rebalancing
        self._is_timed = rebalancing is not None and rebalancing.measure == "seconds"
        self._on_error = config.on_error
        self._failures = failures
        self._on_release = on_release
        self._reported: dict[int, type] = {}

    async def deliver(self, batch: Batch[T], drain_task: int) -> BaseException | None:
        """Call the handler, or settle what has none; returns what it raised."""
        registration = batch.registration
        if registration is None:
            self._abandon(batch)
            return None
        batch.attempts += 1
        if self._retry.deadline is not None and batch.give_up_at is None:
            now = asyncio.get_running_loop().time()
            batch.give_up_at = now + self._retry.deadline
        gate, slot = registration.gate, registration.slot
        permit = self._own_work.permit
        # A handler that was cancelled while it waited has come back without the permit.
        has_lent = permit is not None and not permit.is_held
        if has_lent or not gate.try_enter(slot):
            await self._own_work.enter(gate, slot, drain_task)
        watch = Stopwatch() if self._is_timed else None
        error: BaseException | None = None
        left: asyncio.Future[Any] | None = None
        call = self._own_work.inside(drain_task, gate, slot)
        try:
            # As `attempt` does it, without the price of one coroutine more.
            result = registration.consume(batch.items.copy())
            if type(result) is CoroutineType and self._timeout is None:
                await result
            elif result is not None:
                await finish(registration.consume, result, self._timeout)
        except BaseException as raised:  # noqa: BLE001 - `own_error` tells what is ours
            left = left_behind(raised)
            error = own_error(raised, call)
        finally:
            call.end()
            if watch is not None:
                batch.charge(watch.seconds())
            if left is not None:
                self._outlive(left, batch, registration, drain_task)
            else:
                gate.leave(slot)
        if error is None:
            batch.settle("handled")
        return error

    async def fail(
        self, batch: Batch[T], error: BaseException, drain_task: int
    ) -> list[Batch[T]]:
        """Decide what becomes of a batch whose handler raised.

        Returns:
            What is still to be delivered of it, at `due`: the batch itself for another
            attempt, its halves to isolate what fails, or nothing.
        """
        registration = batch.registration
        if batch.is_settled or registration is None:
            return []
        try:
            rest = self._rest_of(batch, error)
        except Exception:  # noqa: BLE001 - no memory for its halves
            logger.exception("%s: a failed batch could not be split", self._name)
            rest = []
        if not rest:
            await self._give_up(batch, registration, error, drain_task)
        return rest

    def report_again(self, item_type: type) -> None:
        """The type had a handler: when it has none again, that is news."""
        self._reported.pop(id(item_type), None)

    def _rest_of(self, batch: Batch[T], error: BaseException) -> list[Batch[T]]:
        retry = self._retry
        if isinstance(error, Unstoppable) or not isinstance(error, retry.retry_on):
            return []
        if batch.attempts < retry.attempts:
            wait = retry.wait_before(batch.attempts + 1, random.random())
            batch.due = asyncio.get_running_loop().time() + wait
            if batch.give_up_at is None or batch.due <= batch.give_up_at:
                return [batch]
        if retry.split and len(batch) > 1:
            halves = list(batch.pieces((len(batch) + 1) // 2))
            for half in halves:
                # The whole batch has had the other attempts.
                half.attempts = retry.attempts - 1
            return halves
        return []

    async def _give_up(
        self,
        batch: Batch[T],
        registration: Registration,
        error: BaseException,
        drain_task: int,
    ) -> None:
        count = len(batch)
        try:
            if self._on_error is None:
                logger.error(
                    "%s: %d items failed in %s",
                    self._name,
                    count,
                    registration.label,
                    exc_info=error,
                )
            else:
                if (permit := self._own_work.permit) is not None:
                    await permit.regain()
                await self._tell_failed(batch, error, drain_task)
        except asyncio.CancelledError:
            logger.error(
                "%s: on_error was cut off at the deadline, for %d items",
                self._name,
                count,
                exc_info=error,
            )
            raise
        finally:
            self._note("failed", batch.items, error)
            batch.settle("failed")

    async def _tell_failed(
        self, batch: Batch[T], error: BaseException, drain_task: int
    ) -> None:
        try:
            items = list(batch.items)
        except MemoryError:
            # It gets the list itself, and may change it: what is in it is noted before.
            self._note("failed", batch.items, error)
            items, batch.items = batch.items, []
        with self._own_work.inside(drain_task):
            await self.tell(items, error)

    def _note(
        self,
        outcome: Literal["failed", "unhandled"],
        items: list[T],
        error: BaseException | None = None,
    ) -> None:
        """Keep what ended other than handled for the next flush; never raises."""
        try:
            self._failures.add(outcome, items, error)
        except Exception:  # noqa: BLE001 - the account must be right all the same
            logger.exception(
                "%s: the next flush will not tell all of %d items that ended as %s",
                self._name,
                len(items),
                outcome,
            )

    async def tell_leftovers(self, items: list[T]) -> None:
        """Log what a shutdown left, and give it to `on_error`, which has a second."""
        message = f"{len(items)} items of {self._name!r} were left at shutdown"
        logger.error(message)
        telling = asyncio.create_task(self.tell(items, BatchQueueError(message)))
        _, late = await asyncio.wait({telling}, timeout=_LEFTOVER_TIME)
        if late:
            logger.error("%s: on_error did not take them in time", self._name)
            doom(telling)
            await asyncio.wait({telling}, timeout=GRACE)

    async def tell(self, items: list[T], error: BaseException) -> None:
        """Call `on_error`; what it raises is logged, with the error that it got."""
        if self._on_error is None:
            return
        raised = await attempt(self._on_error, items, error, timeout=self._timeout)
        if raised is not None:
            logger.error(
                "%s: on_error raised %r for %d items that had failed with %r",
                self._name,
                raised,
                len(items),
                error,
                exc_info=raised,
            )

    def _abandon(self, batch: Batch[T]) -> None:
        # By identity: a metaclass may refuse to be hashed. The type is kept with it, so
        # that no other one gets its identity.
        for item_type in {id(each): each for each in map(type, batch.items)}.values():
            if id(item_type) not in self._reported:
                self._reported[id(item_type)] = item_type
                logger.error(
                    "%s: no handler for items of type %s; they count as unhandled",
                    self._name,
                    item_type.__qualname__,
                )
        self._note("unhandled", batch.items)
        batch.settle("unhandled")

    def _outlive(
        self,
        call: asyncio.Future[Any],
        batch: Batch[T],
        registration: Registration,
        drain_task: int,
    ) -> None:
        """Block the partitions of a handler that cannot be stopped, until it ends."""
        batch.hold()
        logger.error(
            "%s: %s cannot be stopped; its partitions are blocked until it ends",
            self._name,
            registration.label,
        )

        def ended() -> None:
            batch.release()
            self._on_release()

        stuck = Stuck(registration.slot, batch, drain_task)
        registration.gate.keep(stuck, call, ended)
