"""The settings of sizes, and the error of an item that can never fit."""

import pickle
from typing import Any

import pytest

from batchqueue_async import BatchQueueConfig, ItemTooLarge
from batchqueue_async._policies.config import require_options


def test_item_too_large_survives_pickling() -> None:
    again = pickle.loads(pickle.dumps(ItemTooLarge(11, 10.5)))
    assert (again.size, again.buffer_bytes) == (11, 10.5)
    assert str(again) == "size_of(item) must be <= buffer_bytes, which is 10.5, got 11"


@pytest.mark.parametrize(
    "setting", ["max_batch_bytes", "buffer_bytes"], ids=lambda each: each
)
@pytest.mark.parametrize("value", [0, -1, float("inf"), float("nan"), "1", True])
def test_a_bound_is_a_number_above_zero(setting: str, value: object) -> None:
    with pytest.raises((TypeError, ValueError), match=f"{setting} must be"):
        BatchQueueConfig[Any](**{setting: value})  # type: ignore[arg-type]


def test_size_of_is_callable() -> None:
    with pytest.raises(TypeError, match=r"size_of must be callable.*, got 3"):
        BatchQueueConfig[Any](size_of=3)  # type: ignore[arg-type]


def test_the_bound_of_one_handler_is_checked_as_well() -> None:
    with pytest.raises(ValueError, match="max_batch_bytes must be > 0, got 0"):
        require_options(max_batch_bytes=0)
