"""Settings that have no effect are warned of, at the line that makes the queue."""

import asyncio
import linecache
import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, cast

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueManager,
    CostBalancer,
    DrainTaskPolicy,
    PartitionPolicy,
    Rebalancing,
    Retry,
    SharedDrainTasks,
    SyncBatchQueue,
    by_key,
    fair_by,
    in_process,
    in_thread,
)

rebalancing = Rebalancing(CostBalancer(), 1.0)
two = DrainTaskPolicy.fixed(2)
four = PartitionPolicy.fixed(4)


def returns_nothing(batch: list[int]) -> None:
    if not batch:
        return
    list(batch)


def returns_a_coroutine(batch: list[int]) -> Any:  # noqa: ANN401
    return asyncio.sleep(len(batch))


async def is_async(batch: list[int]) -> None: ...


class Sync:
    def consume(self, batch: list[int]) -> None: ...

    def on_close(self) -> None: ...


class SyncWithAnAsyncHook(Sync):
    async def on_flush(self) -> None: ...


class ToldOfFailures:
    async def __call__(self, batch: list[int], error: BaseException) -> None: ...


received: list[int] = []
SYNC: list[Any] = [returns_nothing, received.extend, Sync()]

NO_EFFECT: list[tuple[str, dict[str, Any]]] = [
    (
        "selector=by_key(len) has no effect with one partition",
        {"selector": by_key(len)},
    ),
    ("rebalancing has no effect with one drain task", {"rebalancing": rebalancing}),
    (
        "drain_tasks=DrainTaskPolicy.adaptive(1, 8) has no effect with one partition",
        {"drain_tasks": DrainTaskPolicy.adaptive(1, 8)},
    ),
    (
        "max_batch='auto' has no effect with buffer_size=1: there is no choice",
        {"max_batch": "auto", "buffer_size": 1},
    ),
    (
        "max_batch=100000 has no effect beyond buffer_size=10000: one partition holds",
        {"max_batch": 100_000},
    ),
    (
        "concurrency=9 of in_thread(returns_nothing) has no effect beyond 4",
        {
            "consumer": in_thread(returns_nothing, concurrency=9),
            "drain_tasks": DrainTaskPolicy.adaptive(1, 4),
            "partitions": PartitionPolicy.fixed(8),
        },
    ),
    (
        "rebalancing has no effect with one drain task",
        {"rebalancing": rebalancing, "partitions": four},
    ),
    *(
        (
            "handler_timeout has no effect on a sync handler",
            {"consumer": each, "handler_timeout": 1.0},
        )
        for each in SYNC
    ),
    (
        "concurrency=4 of in_thread(returns_nothing) has no effect beyond 1 in this",
        {"consumer": in_thread(returns_nothing, concurrency=4)},
    ),
    (
        "no effect beyond 1 in this queue: it has 1 partition, and each makes one call",
        {
            "consumer": in_process(returns_nothing, concurrency=2),
            "drain_tasks": two,
            "partitions": PartitionPolicy.fixed(1),
        },
    ),
]


@pytest.mark.parametrize("message, settings", NO_EFFECT)
def test_it_is_said_when_the_queue_is_made(
    message: str, settings: dict[str, Any]
) -> None:
    config = BatchQueueConfig[Any](**settings)
    with pytest.warns(UserWarning, match=re.escape(message)) as caught:
        BatchQueue("q", config)
    (warning,) = caught
    line = linecache.getline(warning.filename, warning.lineno)
    assert line.strip() == 'BatchQueue("q", config)'


EFFECT: list[dict[str, Any]] = [
    {},
    {"selector": by_key(len), "partitions": four},
    {"rebalancing": rebalancing, "drain_tasks": SharedDrainTasks("io", two)},
    {"selector": by_key(len), "partitions": PartitionPolicy.per_drain_task(1)},
    {"rebalancing": rebalancing, "drain_tasks": two, "partitions": four},
    {
        "rebalancing": rebalancing,
        "drain_tasks": two,
        "partitions": PartitionPolicy.adaptive(),
    },
    {"max_batch": 10_000},
    {"max_batch": 1_000, "buffer_size": 10},
    {"max_batch": 100_000, "buffer_size": 200_000},
    {"max_batch": 100_000, "partitions": four},
    {"max_batch": 100_000, "partitions": PartitionPolicy.adaptive()},
    {"max_batch": 100_000, "selector": fair_by(len)},
    # It may be one on this machine, and several on the next one.
    {
        "rebalancing": rebalancing,
        "drain_tasks": DrainTaskPolicy.cpu_cores(0.01),
        "partitions": four,
    },
    {"retry": Retry(wait_initial=1.0)},
    {
        "consumer": in_thread(returns_nothing, concurrency=2),
        "drain_tasks": two,
        "partitions": four,
    },
    {
        "consumer": in_thread(returns_nothing, concurrency=2),
        "drain_tasks": DrainTaskPolicy.cpu_cores(0.01),
    },
    {
        "consumer": in_thread(returns_nothing, concurrency=2),
        "drain_tasks": SharedDrainTasks("io", two),
    },
    {"handler_timeout": 1.0},
    *(
        {"handler_timeout": 1.0, "consumer": each}
        for each in (
            is_async,
            returns_a_coroutine,
            lambda batch: asyncio.sleep(len(batch)),
            SyncWithAnAsyncHook(),
            in_thread(returns_nothing),
            partial(is_async),
        )
    ),
    {
        "handler_timeout": 1.0,
        "consumer": returns_nothing,
        "on_error": ToldOfFailures(),
    },
]


@pytest.mark.parametrize("settings", EFFECT)
def test_what_may_have_one_is_not_warned_of(settings: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BatchQueue("q", BatchQueueConfig[Any](**settings))


async def test_a_timeout_of_one_handler_is_warned_of_when_that_is_registered() -> None:
    async with BatchQueue[Any]("q") as queue:
        with pytest.warns(UserWarning, match="handler_timeout has no effect") as caught:
            queue.add_handler(int, returns_nothing, handler_timeout=1.0)
        assert caught[0].filename == __file__
        queue.add_handler(int, is_async, handler_timeout=1.0)
        queue.add_handler(int, in_thread(returns_nothing), handler_timeout=1.0)


async def test_a_batch_beyond_the_buffer_is_warned_of_with_its_handler() -> None:
    async with BatchQueue[Any]("q") as queue:
        with pytest.warns(UserWarning, match="no effect beyond buffer_size") as caught:
            queue.add_handler(int, returns_nothing, max_batch=10_001)
        assert caught[0].filename == __file__
        queue.add_handler(int, returns_nothing, max_batch=10_000)
        queue.add_handler(int, returns_nothing, max_batch="auto")


async def test_a_manager_says_it_at_the_users_line_too() -> None:
    config = BatchQueueConfig[Any](selector=by_key(len))
    async with BatchQueueManager() as manager:
        with pytest.warns(UserWarning, match="one partition") as caught:
            await manager.create("q", config)
        assert caught[0].filename == __file__


def test_a_config_alone_is_not_warned_of() -> None:
    """It may be changed before a queue is made of it."""
    config = BatchQueueConfig[Any](selector=by_key(len), rebalancing=rebalancing)
    BatchQueue("q", replace(config, partitions=four, drain_tasks=two))


def handler(batch: list[int]) -> None: ...


CONFUSED: list[tuple[Callable[[], object], str]] = [
    (
        lambda: BatchQueue(BatchQueueConfig()),  # type: ignore[arg-type]
        r'name must be a str, as in BatchQueue\("name", config\), got BatchQueueConfig',
    ),
    (
        lambda: BatchQueue(handler),  # type: ignore[arg-type]
        r'name must be a str, as in BatchQueue\("name", config\), got the function',
    ),
    (
        lambda: BatchQueue("q", handler),  # type: ignore[arg-type]
        (
            r"config must be a BatchQueueConfig, as in "
            r"BatchQueueConfig\(consumer=handler\), or None, got the function handler"
        ),
    ),
    (
        # As `Any`: mypy refuses it or not, by what it has in its cache.
        lambda: BatchQueueConfig(selector=cast("Any", by_key)),
        r"selector must be by_key\(function of an item\), got the function by_key",
    ),
    (
        lambda: SyncBatchQueue("q"),  # type: ignore[arg-type]
        r"queue must be a BatchQueue that runs, got 'q'",
    ),
]


def test_a_name_that_no_exporter_could_write_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^name must be text that UTF-8 can write"):
        BatchQueue("caf\ud8e9")
    BatchQueue("café \N{TEST TUBE}\n")


@pytest.mark.parametrize("call, message", CONFUSED)
def test_what_is_easily_confused_is_refused_in_one_sentence(
    call: Callable[[], object], message: str
) -> None:
    with pytest.raises(TypeError, match=f"^{message}") as raised:
        call()
    assert "\n" not in str(raised.value)


async def test_a_manager_refuses_it_and_keeps_nothing() -> None:
    async with BatchQueueManager() as manager:
        with pytest.raises(TypeError, match=r"^config must be a BatchQueueConfig"):
            await manager.create("q", handler)  # type: ignore[arg-type]
        assert manager.get("q") is None
