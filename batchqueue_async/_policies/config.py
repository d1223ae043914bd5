"""One queue's declaration: every setting with its default, checked when it is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final, Generic, Literal, TypeAlias

from batchqueue_async._functions import require_function, require_sync_function
from batchqueue_async._validation import (
    refuse,
    require_at_least,
    require_instance,
    require_int,
    require_positive,
    require_timeout,
)

from .balancing import Rebalancing
from .choices import WhenFull
from .drain_tasks import DrainTaskPolicy, SharedDrainTasks
from .handler_checks import require_handler
from .handlers import ErrorFunction, HandlerLike, RetryFunction
from .idle_backoff import IdleBackoff
from .items import T
from .partitions import PartitionPolicy, require_policy
from .retry import Retry
from .selectors import (
    FairSelector,
    KeySelector,
    QueueSelector,
    Selector,
    by_key,
    by_type,
    fair_by,
)
from .value import Value

AUTO: Final = "auto"
"""A largest batch that is found by trying."""
BUFFER_SIZE: Final = 10_000
"""How many items wait in a partition at most, unless somebody says otherwise."""
MaxBatch: TypeAlias = int | Literal["auto"] | None
# Not all are near to a name of ours, and `batch_timeout` is to one that cuts calls off.
_WAITS: Final = (
    "flush_interval",
    "batch_timeout",
    "max_wait",
    "max_wait_time",
    "max_delay",
    "interval",
)


def require_options(  # noqa: PLR0913 - all that is declared for one handler
    *,
    max_batch: object = None,
    linger: object = None,
    retry: object = None,
    on_error: object = None,
    handler_timeout: object = None,
    max_batch_bytes: object = None,
) -> None:
    """Refuse what can't be declared for one handler; None stands for the queue's."""
    # Nothing else is compared: a DataFrame that is compared has no truth.
    if isinstance(max_batch, str):
        if max_batch != AUTO:
            refuse("max_batch", 'an int, "auto" or None', max_batch, TypeError)
    elif max_batch is not None:
        require_int("max_batch", max_batch, at_least=1)
    if linger is not None:
        require_at_least("linger", linger, 0)
    if retry is not None:
        require_instance(
            "retry", retry, Retry, "a Retry such as Retry(attempts=3), or None"
        )
    if on_error is not None:
        told = "two arguments, the batch and the error"
        require_function("on_error", on_error, 2, told)
    if handler_timeout is not None:
        require_positive("handler_timeout", handler_timeout)
    if max_batch_bytes is not None:
        require_positive("max_batch_bytes", max_batch_bytes)


class BatchQueueConfig(Value, Generic[T], kw_only=True):
    """What a queue is declared with; `dataclasses.replace` derives another one.

    Attributes:
        drain_tasks: How many drain tasks it runs, or the capacity that it shares.
        partitions: How many partitions it has.
        buffer_size: How many items wait in a partition at most; with `fair_by`, of each
            key.
        when_full: What happens to an item whose partition is full.
        selector: Which partition an item waits in.
        consumer: The one handler for everything; None for a handler per type.
        max_batch: How many items a batch has at most; None for no limit of its own;
            "auto" for one that is found by trying, from 1 to `buffer_size`: the
            smallest whose items per second are nearly the most that the handler does.
            It is lowered while the handler raises, or gets slower; see
            `stats().handlers`.
        size_of: What an item counts for in the next two, called once for each that is
            produced: bytes, or any other unit, such as rows or tokens. None for `len`,
            where items are bytes or str.
        max_batch_bytes: The sizes of a batch's items together, at most; a single item
            that is larger goes alone. None for no limit of its own.
        buffer_bytes: The sizes of the items that wait in all partitions together, at
            most. Handlers have room for one batch beside it, of `max_batch_bytes`, an
            eighth of this or one item, whichever is most; what they hold above that
            takes up room here. An item that is larger raises `ItemTooLarge`.
        linger: Seconds that the oldest item waits for its batch to fill. The call that
            is running, and its retries, come on top. Each partition has to fill its
            batch alone.
        idle: How long the naps are after which an idle handler's `on_idle` is called;
            the shortest is also how long a drain task gathers items of fast producers.
        rebalancing: When partitions change their drain task; None for never.
        retry: How often a failed batch is tried.
        handler_timeout: Seconds after which a call of a handler, of one of its hooks,
            of `on_error` or of `on_retry` is cancelled; None for never.
        slow_handler: Seconds after which a call of a handler or hook that is still
            inside is logged, once, with the place where it waits; None for never.
        on_error: Gets every batch that finally failed; without it that is logged.
        on_retry: Is told of every batch that will be tried again, which is logged, too.
        measure_handlers: Whether `stats().handlers` has sizes, seconds and cuts, which
            cost some 4 us per batch.
        audit: Whether items are also counted as they come in, so that one that is lost
            while it waits shows in `stats().unaccounted`. This turns the fastest ways
            in off: accepting an item costs some 1 us more.
        shutdown_timeout: Seconds until leaving `async with`, or `close`, cancels
            running handlers and gives up what is left; None for never.
        threads: Whether other threads may `offer` from the start on; else they may once
            there is a `SyncBatchQueue`. The loop's own producers then take a lock.

    Raises:
        TypeError: If a setting is of the wrong kind.
        ValueError: If a setting has a wrong value.
    """

    _called_elsewhere: ClassVar[dict[str, str]] = {
        "handler": "consumer",
        **dict.fromkeys(("maxsize", "max_queue_size", "capacity"), "buffer_size"),
        **dict.fromkeys(("batch_size", "flush_at", "max_items"), "max_batch"),
        **dict.fromkeys(_WAITS, "linger"),
        **dict.fromkeys(("workers", "concurrency"), "drain_tasks"),
        **dict.fromkeys(("retries", "max_retries"), "retry=Retry(attempts=...)"),
        "by_key": "selector=by_key(...)",
        "fair_by": "selector=fair_by(...)",
    }

    # The defaults are frozen values: one instance serves every queue.
    drain_tasks: DrainTaskPolicy | SharedDrainTasks = DrainTaskPolicy.fixed(1)
    partitions: PartitionPolicy = PartitionPolicy.fixed(1)
    buffer_size: int = BUFFER_SIZE
    when_full: WhenFull = WhenFull.WAIT
    selector: Selector[T] = by_type
    consumer: HandlerLike[T] | None = None
    max_batch: int | Literal["auto"] | None = None
    size_of: Callable[[T], float] | None = None
    max_batch_bytes: float | None = None
    buffer_bytes: float | None = None
    linger: float = 0.0
    idle: IdleBackoff = IdleBackoff()
    rebalancing: Rebalancing | None = None
    retry: Retry = Retry()
    handler_timeout: float | None = None
    slow_handler: float | None = 30.0
    on_error: ErrorFunction[T] | None = None
    on_retry: RetryFunction[T] | None = None
    measure_handlers: bool = False
    audit: bool = False
    shutdown_timeout: float | None = 30.0
    threads: bool = False

    def __post_init__(self) -> None:
        self._check_partitions()
        self._check_batches()
        self._check_handling()

    def _check_partitions(self) -> None:
        require_policy(
            "drain_tasks", self.drain_tasks, DrainTaskPolicy, SharedDrainTasks
        )
        require_policy("partitions", self.partitions, PartitionPolicy)
        require_int("buffer_size", self.buffer_size, at_least=1)
        rule = "WhenFull.WAIT, .DROP_NEWEST or .DROP_OLDEST"
        require_instance("when_full", self.when_full, WhenFull, rule)
        self._check_selector()

    def _check_selector(self) -> None:
        selector: object = self.selector
        if selector is by_key:
            refuse("selector", "by_key(function of an item)", selector, TypeError)
        if selector is fair_by:
            rule = "what fair_by returns, as in fair_by(lambda item: item.tenant)"
            refuse("selector", rule, selector, TypeError)
        if not isinstance(selector, QueueSelector):
            told = "two arguments, an item and the number of partitions"
            require_sync_function("selector", selector, 2, told)
        if isinstance(selector, FairSelector) and self.counts_sizes:
            rule = "by_key or another where sizes count, since fair_by shares out items"
            refuse("selector", rule, selector)
        if self.partitions.grows and isinstance(selector, KeySelector | FairSelector):
            name = "by_key" if isinstance(selector, KeySelector) else "fair_by"
            rule = f"of a fixed number with {name}, since growth would split keys"
            refuse("partitions", rule, self.partitions)

    @property
    def counts_sizes(self) -> bool:
        """Whether one of the settings that count by `size_of` is there."""
        declared = self.size_of, self.max_batch_bytes, self.buffer_bytes
        return any(each is not None for each in declared)

    def _check_batches(self) -> None:
        if self.size_of is not None:
            require_sync_function("size_of", self.size_of, 1, "one argument, an item")
        if self.buffer_bytes is not None:
            require_positive("buffer_bytes", self.buffer_bytes)
        require_at_least("linger", self.linger, 0)
        require_instance("idle", self.idle, IdleBackoff, "an IdleBackoff")
        if self.rebalancing is not None:
            require_instance(
                "rebalancing", self.rebalancing, Rebalancing, "a Rebalancing or None"
            )

    def _check_handling(self) -> None:
        if self.consumer is not None:
            require_handler("consumer", self.consumer)
        require_instance(
            "retry", self.retry, Retry, "a Retry such as Retry(attempts=3)"
        )
        require_options(
            max_batch=self.max_batch,
            max_batch_bytes=self.max_batch_bytes,
            handler_timeout=self.handler_timeout,
            on_error=self.on_error,
        )
        if self.slow_handler is not None:
            require_positive("slow_handler", self.slow_handler)
        if self.on_retry is not None:
            told = "four arguments: the batch, the error, the attempt, the wait"
            require_function("on_retry", self.on_retry, 4, told)
        for switch in ("measure_handlers", "audit", "threads"):
            require_instance(switch, getattr(self, switch), bool, "a bool")
        require_timeout("shutdown_timeout", self.shutdown_timeout)


# Frozen, so all queues that are declared with nothing can share it.
DEFAULTS: BatchQueueConfig[Any] = BatchQueueConfig()
