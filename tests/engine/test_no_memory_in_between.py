"""A1: where memory ends between two halves of one step, neither has been done."""

from typing import Any

import pytest

from batchqueue_async._engine.partitions.byte_budget import Measured


class Full(list[Any]):
    """There is no memory for one more."""

    def append(self, _: object) -> None:
        raise MemoryError


def test_an_item_without_its_size_is_not_kept() -> None:
    """`produce_many` waited for ever, with more items than sizes."""
    items = Measured(["a"], [1])
    items.sizes = Full([1])
    with pytest.raises(MemoryError):
        items.add("b", 1)
    assert (list(items), items.sizes) == (["a"], [1])
