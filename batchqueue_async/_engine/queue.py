"""The queue: produce into it, and it drains itself into its handlers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, Literal, Self, TypeVar

from batchqueue_async import _validation
from batchqueue_async._chunks import LENGTH, chunks
from batchqueue_async._engine.admission import NOWHERE
from batchqueue_async._engine.handlers.registration import concurrency_of
from batchqueue_async._engine.intake import intake_of
from batchqueue_async._engine.lifecycle.flush import Flush
from batchqueue_async._engine.lifecycle.state import State
from batchqueue_async._engine.partitions.undoing import undo_append
from batchqueue_async._engine.partitions.wait_for_room import Tally
from batchqueue_async._engine.queue_parts import Parts
from batchqueue_async._engine.stats import BatchQueueStats, now_of, overview
from batchqueue_async._one_process import OfOneProcess
from batchqueue_async._policies import no_effect
from batchqueue_async._policies.choices import SHUTDOWN_TIMEOUT, Offer, Timeout
from batchqueue_async._policies.config import (
    DEFAULTS,
    BatchQueueConfig,
    require_options,
)
from batchqueue_async._policies.errors import BatchQueueError, with_accepted
from batchqueue_async._policies.handlers import ErrorFunction, HandlerLike
from batchqueue_async._policies.items import T, require_item_type
from batchqueue_async._policies.retry import Retry

S = TypeVar("S")


class BatchQueue(OfOneProcess, Generic[T]):
    """A partitioned queue on one event loop that hands its items over in batches.

    May be built outside of a loop; `start` binds it to the loop that runs then. Use it
    as `async with BatchQueue(...) as queue`, or through a `BatchQueueManager`.

    Args:
        name: Stands in logs, errors and statistics.
        config: The queue's settings; policies are resolved now.

    Raises:
        TypeError: The name is no str, or the config no `BatchQueueConfig`.
        ValueError: The name has half of a surrogate pair: UTF-8 cannot write it.
    """

    def __init__(self, name: str, config: BatchQueueConfig[T] | None = None) -> None:
        rule = 'a str, as in BatchQueue("name", config)'
        _validation.require_text("name", name, rule)
        config = DEFAULTS if config is None else config
        rule = "a BatchQueueConfig, as in BatchQueueConfig(consumer=handler), or None"
        _validation.require_instance("config", config, BatchQueueConfig, rule)
        self._parts = parts = Parts(name, config)
        no_effect.warn_of_config(config)
        no_effect.warn_of_concurrency(*concurrency_of(config.consumer), config)
        self._intake = intake_of(parts)
        self._log = parts.failures.new_log()
        # The registry keeps `lifecycle`, and so a queue that its user no longer keeps.
        parts.lifecycle.queue = self
        # For the hot paths, which have nothing to look at where a selector is asked.
        self._sole = NOWHERE if parts.placement.choose else parts.placement.sole
        self._routes = parts.placement.routes

    @property
    def name(self) -> str:
        """What it is called in logs, errors and statistics."""
        return self._parts.name

    @property
    def config(self) -> BatchQueueConfig[T]:
        """The settings that it was made with."""
        return self._parts.config

    @property
    def is_running(self) -> bool:
        """Whether it accepts items: from `start` until shutdown begins."""
        return self._parts.state is State.RUNNING

    async def start(self) -> None:
        """Start draining on the running loop; a second call does nothing.

        Raises:
            BatchQueueError: It was shut down, or runs on another loop.
            RuntimeError: No asyncio loop runs here.
        """
        if self._parts.detector.permit is None:
            no_effect.warn_of_sharing(self._parts.config)
        await self._parts.lifecycle.start()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def add_handler(  # noqa: PLR0913 - all that is declared for one handler
        self,
        item_type: type[S],
        handler: HandlerLike[S],
        weight: float = 1.0,
        *,
        max_batch: int | Literal["auto"] | None = None,
        linger: float | None = None,
        retry: Retry | None = None,
        on_error: ErrorFunction[S] | None = None,
        handler_timeout: float | None = None,
        max_batch_bytes: float | None = None,
    ) -> None:
        """Register the handler of a type and of its subclasses without their own.

        May be called at any time; items that wait already go to the new handler. A
        second call for a type replaces its handler.

        Args:
            item_type: The class of the items.
            handler: An object with `consume(batch)`, or a callable; sync or async.
            weight: How much it counts for adaptive partitions, of which a queue has
                65,536 at most.
            max_batch: As in `BatchQueueConfig`, whose value holds if this is None;
                so for the next four. A partition of several types goes by the smallest.
            linger: In seconds. In a partition that types share, all are taken when the
                first of them is due, so the shortest linger counts there.
            retry: How often its batches are tried.
            on_error: Gets its batches that finally failed; what a shutdown leaves goes
                to that of the queue.
            handler_timeout: In seconds; for its hooks and its `on_error`, too.
            max_batch_bytes: In the unit of `size_of`. For a queue that counts sizes:
                with `size_of`, `max_batch_bytes` or `buffer_bytes` in its config.

        Raises:
            BatchQueueError: The queue has a consumer, or is closed.
            TypeError, ValueError: An argument is wrong; nothing has changed then.
        """
        self._require_handler_mode()
        require_item_type(item_type)
        options: dict[str, Any] = {
            "max_batch": max_batch,
            "linger": linger,
            "retry": retry,
            "on_error": on_error,
            "handler_timeout": handler_timeout,
            "max_batch_bytes": max_batch_bytes,
        }
        require_options(**options)
        if max_batch_bytes is not None and self._parts.byte_budget is None:
            rule = "None where the queue's config has none of size_of and the like"
            _validation.refuse("max_batch_bytes", rule, max_batch_bytes)
        no_effect.warn_of_options(handler, options, self._parts.config)
        no_effect.warn_of_concurrency(*concurrency_of(handler), self._parts.config)
        settings = self._parts.handlers.settings.but(**options)
        self._parts.layout.register(item_type, handler, weight, settings)
        self._handlers_changed(item_type)

    def remove_handler(self, item_type: type) -> bool:
        """Take a type's handler out; returns whether there was one.

        Its waiting items go to the nearest base's handler, else count as unhandled.
        Its `on_close` is called after its last batch.

        Raises:
            BatchQueueError: The queue has a consumer, or is closed.
        """
        self._require_handler_mode()
        is_removed = self._parts.layout.unregister(item_type)
        self._handlers_changed(item_type)
        return is_removed

    async def produce(self, item: T) -> bool:
        """Accept an item; returns True when it was accepted.

        On a full partition it waits for room in order of arrival (`WAIT`), returns
        False (`DROP_NEWEST`) or displaces the oldest item (`DROP_OLDEST`). Returns
        False once shutdown has begun, also if it was waiting. Cancelled, it leaves
        nothing behind.

        Raises:
            BatchQueueError: Not started, or called from another loop or thread.
            WouldDeadlock: A handler would wait for itself.
        """
        partition = self._sole
        if partition is None:
            try:
                partition = self._routes[type(item)]
            except KeyError:
                partition = NOWHERE
        if len(partition.items) < partition.limit:
            try:
                partition.items.append(item)
            except BaseException as error:
                undo_append(partition.items, item, error)
                raise
            return True
        rest = self._intake.try_put(item)
        if rest is None:
            return True
        waiting = self._intake.waiting_one(*rest)
        if waiting is not None and await waiting:
            return True
        rest[0].reject(1)
        return False

    def produce_nowait(self, item: T) -> bool:
        """Accept an item if that needs no waiting; returns whether it was accepted.

        While producers wait for room in the partition it returns False, whatever room
        shows: nobody is overtaken.

        Raises:
            BatchQueueError: Not started, or called from another loop or thread.
        """
        partition = self._sole
        if partition is None:
            try:
                partition = self._routes[type(item)]
            except KeyError:
                partition = NOWHERE
        if len(partition.items) < partition.limit:
            try:
                partition.items.append(item)
            except BaseException as error:
                undo_append(partition.items, item, error)
                raise
            return True
        rest = self._intake.try_put(item)
        if rest is not None:
            rest[0].reject(1)
        return rest is None

    def offer(self, item: T) -> Offer:
        """Accept an item if that needs no waiting, wherever the caller is.

        On the loop and, once there is a `SyncBatchQueue` or with the config's
        `threads`, on any thread; there also in `logging` handlers, signal handlers and
        `__del__`, which run in the middle of anything. A full partition refuses it, or
        displaces the oldest item (`DROP_OLDEST`).

        Returns:
            Whether it was accepted, as a truth value; `Offer.FULL` or `Offer.CLOSED`
            say why not, as of the same moment.

        Raises:
            BatchQueueError: Not started; in a forked child; or on another thread, and
                the queue is not open to threads.
        """
        return self._intake.offer(item)

    def partition_of(self, item: T) -> int:
        """Return the index of the partition that the item would wait in.

        Nothing is accepted, placed or counted by it. With `by_type`, also of a queue
        with a consumer, that is the partition of the item's type; of a type that has
        not come yet, that of the handler it would go to, else the one that would be
        chosen if it came next. With `round_robin` it is the next one's; any other
        selector is asked. It says the same before the start and after closing.

        May be called on the loop and, once threads may produce, on any thread.

        Raises:
            InvalidSelection: The selector returned no index.
            TypeError: The key of `by_key` is not hashable.
        """
        return self._parts.placement.look(item).index

    async def produce_many(self, items: Iterable[T]) -> int:
        """Accept the items of an iterable in order; returns how many were accepted.

        Not atomic: cancelled or raising midway, what was placed stays accepted, and
        what it raises says how many in its attribute `accepted` (a `TimeoutError` of
        `asyncio.timeout`: in that of its `__cause__`, before Python 3.11.3 of its
        `__context__`). With one partition, under `WAIT`, those are the first ones.
        Under `WAIT` it accepts all, unless shutdown begins.

        Raises:
            BatchQueueError: Not started, or called from another loop or thread.
            WouldDeadlock: A handler would wait for itself.
        """
        intake = self._intake
        if type(items) is list and (count := len(items)) and intake.put_whole(items):
            return count  # No call in between.
        placed = Tally()
        try:
            is_open = intake.admits()
            if type(items) is list and len(items) <= LENGTH and is_open:
                await intake.put_many(items, placed)
                return placed.count
            for chunk in chunks(items, intake.chunk_length):
                if intake.admits():
                    await intake.put_many(chunk, placed)
                else:
                    intake.refuse(chunk)
        except BaseException as error:
            with_accepted(error, placed.count)
            raise
        return placed.count

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until everything accepted before this call is settled.

        Ends naps and linger; then it calls the handlers' `on_flush`. If shutdown has
        begun, it waits for their `on_close` instead. Called by a handler of this queue,
        it leaves out what waits for that handler.

        Args:
            timeout: Seconds to wait at most.

        Raises:
            DeliveryError: Items ended other than handled since the last flush.
            TimeoutError: Not all was settled in time.
            BatchQueueError: Called from another loop or thread.
            WouldDeadlock: Another queue's handler would wait for itself.
            TypeError, ValueError: The timeout is invalid.
        """
        _validation.require_timeout("timeout", timeout)
        await Flush(self._parts, self._log).run(timeout)

    async def shutdown(self, timeout: float | None = 30.0) -> list[T]:
        """Refuse new items, have the waiting ones handled, and stop.

        Idempotent; of concurrent calls one gets the list, and the earliest deadline
        counts. Cancelled or refused, it goes on in the background. From a handler of
        this queue it only begins, and returns [] at once.

        Args:
            timeout: Seconds until running handlers are cancelled; None for never.

        Returns:
            The items that the deadline left unhandled. [] says that there are none: not
            that they were handled without failures, nor that each `on_close` completed.
            `stats()` says that: `failed`, `unhandled`, `dropped` and `not_closed`.

        Raises:
            BatchQueueError: Called from another loop or thread.
            WouldDeadlock: Another queue's handler would wait for itself.
            TypeError, ValueError: The timeout is invalid; nothing is closed.
        """
        return await self._parts.lifecycle.shutdown(timeout)

    async def close(self, timeout: Timeout = SHUTDOWN_TIMEOUT) -> None:
        """Shut down as leaving `async with` does: leftovers go to `on_error`.

        Cancel scopes of anyio around it do not cut it short. It takes `timeout`
        seconds at most, 0.1 s for handlers that are cancelled then, and a second for
        `on_error`. Cancelled by `Task.cancel`, it goes on in the background.

        Args:
            timeout: Seconds until running handlers are cancelled; None for never. By
                default the config's `shutdown_timeout`.

        Raises:
            BatchQueueError: Called from another loop or thread.
            TypeError, ValueError: The timeout is invalid; nothing is closed.
        """
        await self._parts.lifecycle.close(timeout)

    def stats(self) -> BatchQueueStats:
        """Return the queue's statistics of this moment, whatever its state."""
        return overview(self._parts).stats

    def __repr__(self) -> str:
        parts = self._parts
        return f"<BatchQueue {parts.name!r} {parts.state.value} {now_of(self.stats())}>"

    def _handlers_changed(self, item_type: type) -> None:
        self._parts.unhandled_types.forget(item_type)
        self._parts.tasks.wake()

    def _require_handler_mode(self) -> None:
        if self._parts.config.consumer is not None:
            msg = f"queue {self._parts.name!r} has a consumer, so it takes no handlers"
            raise BatchQueueError(msg)
        if self._parts.state.refuses_items:
            msg = f"queue {self._parts.name!r} is shut down, so it takes no handlers"
            raise BatchQueueError(msg)


def parts_of(queue: BatchQueue[T]) -> Parts:
    """Return the queue's parts for other modules of the library; not for users."""
    return queue._parts  # noqa: SLF001
