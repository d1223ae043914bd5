"""A config has the promised defaults and refuses what cannot work."""

from __future__ import annotations

import copy
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from batchqueue_async._policies.balancing import Rebalancing
from batchqueue_async._policies.choices import WhenFull
from batchqueue_async._policies.config import BatchQueueConfig
from batchqueue_async._policies.drain_tasks import DrainTaskPolicy, SharedDrainTasks
from batchqueue_async._policies.idle_backoff import IdleBackoff
from batchqueue_async._policies.partitions import PartitionPolicy
from batchqueue_async._policies.retry import Retry
from batchqueue_async._policies.selectors import by_key, by_type, fair_by, round_robin

NAN, INFINITY = float("nan"), float("inf")


class Frame:
    """As a DataFrame: what comes of comparing it is neither true nor false."""

    def __eq__(self, other: object) -> Frame:  # type: ignore[override]
        return self

    def __hash__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        msg = "the truth value of a Frame is ambiguous"
        raise ValueError(msg)


class Recorder:
    """A handler as an object."""

    async def consume(self, batch: list[object]) -> None:
        """Take a batch."""


def test_the_defaults() -> None:
    """One drain task, one partition, 10,000 items, waiting, by type."""
    config = BatchQueueConfig()
    assert vars(config) == {
        "drain_tasks": DrainTaskPolicy.fixed(1),
        "partitions": PartitionPolicy.fixed(1),
        "buffer_size": 10_000,
        "when_full": WhenFull.WAIT,
        "selector": by_type,
        "consumer": None,
        "max_batch": None,
        "size_of": None,
        "max_batch_bytes": None,
        "buffer_bytes": None,
        "linger": 0.0,
        "idle": IdleBackoff(0.001, 0.050),
        "rebalancing": None,
        "retry": Retry(attempts=1),
        "handler_timeout": None,
        "slow_handler": 30.0,
        "on_error": None,
        "on_retry": None,
        "measure_handlers": False,
        "audit": False,
        "shutdown_timeout": 30.0,
        "threads": False,
    }


@pytest.mark.parametrize(
    "settings",
    [
        {"drain_tasks": SharedDrainTasks("io", DrainTaskPolicy.fixed(2))},
        {"partitions": PartitionPolicy.adaptive(), "selector": round_robin},
        {"partitions": PartitionPolicy.adaptive(), "selector": lambda item, n: n - 1},
        {"partitions": PartitionPolicy.per_drain_task(2), "selector": by_key(str)},
        {"partitions": PartitionPolicy.per_drain_task(2), "selector": fair_by(str)},
        {"buffer_size": 1, "max_batch": 1, "linger": 0.5},
        {"size_of": len, "max_batch_bytes": 1e6, "buffer_bytes": 64 * 2**20},
        {"consumer": Recorder()},
        {"consumer": print, "on_error": print},
        {"rebalancing": Rebalancing(), "handler_timeout": 2},
    ],
)
def test_what_makes_sense_is_accepted(settings: dict[str, Any]) -> None:
    """Objects and callables, marks and functions, all policies."""
    config = BatchQueueConfig(**settings)
    assert {name: getattr(config, name) for name in settings} == settings


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"buffer_size": 0}, r"^buffer_size must be >= 1, got 0$"),
        ({"max_batch": 0}, r"^max_batch must be >= 1, got 0$"),
        ({"linger": -0.1}, r"^linger must be >= 0, got -0.1$"),
        ({"linger": NAN}, r"^linger must be finite, got nan$"),
        ({"linger": INFINITY}, r"^linger must be finite, got inf$"),
        ({"handler_timeout": 0}, r"^handler_timeout must be > 0, got 0$"),
        ({"handler_timeout": INFINITY}, r"^handler_timeout must be finite, got inf$"),
        (
            {"partitions": PartitionPolicy.adaptive(), "selector": by_key(str)},
            (
                r"^partitions must be of a fixed number with by_key, since growth "
                r"would split keys, got PartitionPolicy\.adaptive\(multiplier=25\)$"
            ),
        ),
        (
            {"partitions": PartitionPolicy.adaptive(), "selector": fair_by(str)},
            r"^partitions must be of a fixed number with fair_by, since growth would ",
        ),
    ],
)
def test_a_wrong_value_is_a_value_error(settings: dict[str, Any], message: str) -> None:
    """The message names the field, its rule and the value."""
    with pytest.raises(ValueError, match=message):
        BatchQueueConfig(**settings)


@pytest.mark.parametrize(
    "settings, message",
    [
        (
            {"drain_tasks": 4},
            (
                r"^drain_tasks must be a DrainTaskPolicy or a SharedDrainTasks such as "
                r"DrainTaskPolicy\.fixed\(4\), got 4$"
            ),
        ),
        (
            {"drain_tasks": None},
            r"^drain_tasks must be a DrainTaskPolicy or a SharedDrainTasks, got None$",
        ),
        (
            {"partitions": 8},
            (
                r"^partitions must be a PartitionPolicy such as "
                r"PartitionPolicy\.fixed\(8\), got 8$"
            ),
        ),
        ({"buffer_size": True}, r"^buffer_size must be an int, got True$"),
        ({"buffer_size": 1e4}, r"^buffer_size must be an int, got 10000\.0$"),
        ({"when_full": "wait"}, r"^when_full must be WhenFull.WAIT, .*, got 'wait'$"),
        (
            {"selector": fair_by},
            (
                r"^selector must be what fair_by returns, as in "
                r"fair_by\(lambda item: item\.tenant\), got the function fair_by$"
            ),
        ),
        ({"selector": "by_type"}, r"^selector must be callable.*, got 'by_type'$"),
        ({"consumer": 3}, r"^consumer must be callable or have a consume method"),
        ({"consumer": Recorder}, r"^consumer must be a handler, not its class, got"),
        ({"max_batch": "9"}, r"^max_batch must be an int, \"auto\" or None, got '9'$"),
        ({"max_batch": Frame()}, r"^max_batch must be an int, got a Frame$"),
        ({"linger": None}, r"^linger must be a number, got None$"),
        ({"idle": 0.05}, r"^idle must be an IdleBackoff, got 0\.05$"),
        ({"rebalancing": True}, r"^rebalancing must be a Rebalancing or None, got"),
        ({"retry": 3}, r"^retry must be a Retry such as Retry\(attempts=3\), got 3$"),
        ({"handler_timeout": "1s"}, r"^handler_timeout must be a number, got '1s'$"),
        ({"slow_handler": "1s"}, r"^slow_handler must be a number, got '1s'$"),
        ({"selector": by_key}, r"^selector must be by_key\(function of an item\), got"),
        ({"on_error": "log"}, r"^on_error must be callable.*, got 'log'$"),
        ({"on_retry": "log"}, r"^on_retry must be callable.*, got 'log'$"),
        ({"measure_handlers": 1}, r"^measure_handlers must be a bool, got 1$"),
    ],
)
def test_a_wrong_kind_is_a_type_error(settings: dict[str, Any], message: str) -> None:
    """A bare int for a policy gets the right call suggested."""
    with pytest.raises(TypeError, match=message):
        BatchQueueConfig(**settings)


def test_a_config_is_frozen_and_takes_keywords_only() -> None:
    """Another config is derived, and checked again."""
    config = BatchQueueConfig(buffer_size=5)
    with pytest.raises(FrozenInstanceError):
        config.buffer_size = 6  # type: ignore[misc]
    with pytest.raises(TypeError):
        BatchQueueConfig(DrainTaskPolicy.fixed(1))  # type: ignore[call-arg]
    assert replace(config, linger=1.0).buffer_size == 5
    with pytest.raises(ValueError, match=r"^buffer_size must be >= 1, got 0$"):
        replace(config, buffer_size=0)


def test_equal_settings_are_equal_configs() -> None:
    """So that a manager can tell whether settings differ."""
    assert BatchQueueConfig(linger=0.5) == BatchQueueConfig(linger=0.5)
    assert BatchQueueConfig(linger=0.5) != BatchQueueConfig()
    assert hash(BatchQueueConfig()) == hash(BatchQueueConfig())
    assert copy.deepcopy(BatchQueueConfig()) == BatchQueueConfig()


def test_a_config_can_name_its_item_type() -> None:
    """The subscript is for type checkers and changes nothing."""
    assert BatchQueueConfig[int]() == BatchQueueConfig()
