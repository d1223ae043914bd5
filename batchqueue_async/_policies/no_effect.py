"""Warns of settings that have no effect, where that is certain when a queue is made.

Not when a config is made, which `replace` may still change. What depends on the
machine, on later handlers or on what a function returns is left to
`docs/guides/settings.md`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Final

from batchqueue_async._functions import attribute_of, taker_of

from .config import AUTO, BUFFER_SIZE
from .drain_tasks import DrainTaskPolicy, FixedDrainTasks, SharedDrainTasks
from .handler_checks import HOOKS, warn
from .selectors import FairSelector, KeySelector

if TYPE_CHECKING:
    from .config import BatchQueueConfig

_ONE_DRAIN_TASK: Final = DrainTaskPolicy.fixed(1)
# What puts None there before a return: on Python 3.11, on 3.12, and from 3.15 on.
_CONSTANTS: Final = ("LOAD_CONST", "RETURN_CONST", "LOAD_COMMON_CONSTANT")


def warn_of_config(config: BatchQueueConfig[Any]) -> None:
    """Warn of what a queue with this config would never look at."""
    for setting, why in _unused(config):
        warn(f"{setting} has no effect {why}")
    if config.consumer is not None and config.handler_timeout is not None:
        warn_of_timeout(config.consumer, config.on_error, config.on_retry)


def warn_of_sharing(config: BatchQueueConfig[Any]) -> None:
    """Warn of what a queue with this config shares, where no manager has made it."""
    shared = config.drain_tasks
    if isinstance(shared, SharedDrainTasks):
        warn(
            f"drain_tasks={shared!r} has no effect in a queue that no manager makes: it"
            " is shared by the queues of one BatchQueueManager, or LoopThread"
        )


def warn_of_options(
    handler: object, options: Mapping[str, Any], config: BatchQueueConfig[Any]
) -> None:
    """Warn of what one handler of a queue with this config is declared with."""
    for setting, why in _beyond_the_buffer(options["max_batch"], config):
        warn(f"{setting} has no effect {why}")
    if options["handler_timeout"] is not None:
        warn_of_timeout(handler, options["on_error"])


def warn_of_concurrency(
    name: str, concurrency: int, config: BatchQueueConfig[Any]
) -> None:
    """Warn where a handler may be called more often at once than a queue ever does."""
    drain_tasks, partitions = config.drain_tasks, config.partitions
    if concurrency == 1 or isinstance(drain_tasks, SharedDrainTasks):
        return
    if drain_tasks.least is None and not isinstance(drain_tasks, FixedDrainTasks):
        # That depends on the machine.
        return
    most, of = drain_tasks.resolve(), "drain task"
    if not partitions.grows and (count := partitions.resolve(most, 0)) < most:
        most, of = count, "partition"
    if concurrency > most:
        warn(
            f"concurrency={concurrency} of {name} has no effect beyond {most} in this "
            f"queue: it has {most} {of}{'s' if most > 1 else ''}, and each makes one "
            "call at a time"
        )


def warn_of_timeout(handler: object, *others: object) -> None:
    """Warn where a timeout is declared, and there is nothing that it could end.

    Args:
        handler: What it is declared for.
        others: `on_error` and the like, or None; they have it, too.
    """
    calls = [taker_of(handler)]
    calls += [attribute_of(handler, name) for name in HOOKS]
    if all(call is None or _is_sync(call) for call in (*calls, *others)):
        warn(
            "handler_timeout has no effect on a sync handler: nothing else runs while "
            "it does (in_thread lets the loop go on)"
        )


def _unused(config: BatchQueueConfig[Any]) -> Iterator[tuple[str, str]]:
    selector, is_alone = config.selector, _has_one_partition(config)
    if is_alone and isinstance(selector, KeySelector):
        yield f"selector={selector!r}", "with one partition: there is no choice"
    policy = config.drain_tasks
    if is_alone and not isinstance(policy, SharedDrainTasks) and policy.least:
        why = "with one partition: there is nothing to give to a second drain task"
        yield f"drain_tasks={policy!r}", why
    if config.max_batch == AUTO and config.buffer_size == 1:
        yield f"max_batch={AUTO!r}", "with buffer_size=1: there is no choice"
    if config.rebalancing is not None and config.drain_tasks == _ONE_DRAIN_TASK:
        yield "rebalancing", "with one drain task: there is no other one"
    yield from _beyond_the_buffer(config.max_batch, config)


def _beyond_the_buffer(
    max_batch: object, config: BatchQueueConfig[Any]
) -> Iterator[tuple[str, str]]:
    # Who has chosen a size for the buffer knows what it bounds.
    if config.buffer_size != BUFFER_SIZE or not isinstance(max_batch, int):
        return
    # With `fair_by` each key has a buffer, and a batch comes from many keys.
    is_fair = isinstance(config.selector, FairSelector)
    if max_batch > BUFFER_SIZE and _has_one_partition(config) and not is_fair:
        bound = f"buffer_size={BUFFER_SIZE}"
        yield f"max_batch={max_batch}", f"beyond {bound}: one partition holds no more"


def _has_one_partition(config: BatchQueueConfig[Any]) -> bool:
    # It is one however many drain tasks there are: two stand for any number.
    return not config.partitions.grows and config.partitions.resolve(2, 0) == 1


def _is_sync(call: object) -> bool:
    """Whether it is certain that what it returns cannot be awaited."""
    if isinstance(call, MethodType):
        call = call.__func__
    if isinstance(call, BuiltinFunctionType):
        # Such as `list.extend`.
        return True
    if not isinstance(call, FunctionType) or inspect.iscoroutinefunction(call):
        return False
    return _returns_nothing(call)


def _returns_nothing(function: FunctionType) -> bool:
    """Whether each way out of a function returns None, as its bytecode says."""
    import dis  # noqa: PLC0415 - milliseconds, which few programs need

    before = None
    for step in dis.get_instructions(function):
        if step.opname.startswith("RETURN_"):
            value = before if step.opname == "RETURN_VALUE" else step
            if value and (value.opname not in _CONSTANTS or value.argval is not None):
                return False
        before = step
    return not function.__code__.co_flags & inspect.CO_GENERATOR
