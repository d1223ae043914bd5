"""What is called later, maybe at night, is looked at when it is passed."""

import functools
import operator
import re
from collections.abc import Callable
from typing import Any

import pytest

from batchqueue_async import BatchQueueConfig, Merging, Retry, by_key, fair_by
from batchqueue_async.simulation import simulate


def _no_argument() -> None: ...


def _one(item: object) -> object:
    return item


def _two(first: object, _second: object) -> object:
    return first


async def _async_of_one(item: object) -> object:
    return item


async def _async_of_two(first: object, _second: object) -> object:
    return first


# A type checker refuses them, too.
no_argument: Any = _no_argument
one: Any = _one
two: Any = _two
async_of_one: Any = _async_of_one
async_of_two: Any = _async_of_two

CONFIGURED = {
    "on_error": "two arguments, the batch and the error",
    "on_retry": "four arguments: the batch, the error, the attempt, the wait",
    "selector": "two arguments, an item and the number of partitions",
    "size_of": "one argument, an item",
}


@pytest.mark.parametrize("field, told", CONFIGURED.items())
def test_a_setting_that_is_called_takes_what_it_is_called_with(
    field: str, told: str
) -> None:
    """An `on_error` of one argument would lose what failed first."""
    message = f"{field} must be callable with {told}, got the function _no_argument"
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        BatchQueueConfig(**{field: no_argument})


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: by_key(two), "key must be callable with one argument, an item, got"),
        (lambda: fair_by(no_argument), "key must be callable with one argument, an"),
        (
            lambda: fair_by(one, weight=no_argument),
            "weight must be callable with one argument, a key, got",
        ),
        (
            lambda: Merging(key=one, merge=one, then=print),
            "merge must be callable with two arguments, both items, got",
        ),
        (
            lambda: simulate(BatchQueueConfig(), (), two),
            "handler_cost must be callable with one argument, a batch, got",
        ),
    ],
)
def test_so_does_what_a_policy_calls(make: Callable[[], object], message: str) -> None:
    with pytest.raises(TypeError, match=f"^{message}"):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: by_key(async_of_one),
        lambda: fair_by(async_of_one),
        lambda: Merging(key=one, merge=async_of_two, then=print),
        lambda: BatchQueueConfig(size_of=async_of_one),
        lambda: BatchQueueConfig(selector=async_of_two),
    ],
    ids=["by_key", "fair_by", "merge", "size_of", "selector"],
)
def test_what_is_asked_for_a_value_is_not_async(make: Callable[[], object]) -> None:
    """A coroutine has a hash, so each item would be a key of its own."""
    with pytest.raises(TypeError, match="must be a plain function, not an async one"):
        make()


@pytest.mark.parametrize(
    "key",
    [operator.itemgetter(0), str, type, len, functools.partial(two, 1), one],
    ids=str,
)
def test_a_key_may_be_anything_that_takes_an_item(key: Callable[[Any], Any]) -> None:
    assert by_key(key)("item", 1) == 0


def test_errors_and_retries_may_be_told_to_async_functions() -> None:
    async def take(*_: object) -> None: ...

    config = BatchQueueConfig[int](
        on_error=take, on_retry=take, retry=Retry(attempts=2)
    )
    assert config.on_error is take
