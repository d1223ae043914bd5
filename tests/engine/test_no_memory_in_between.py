"""A1: where memory ends between two halves of one step, neither has been done."""

from typing import Any

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig, PartitionPolicy, round_robin
from batchqueue_async._engine.partitions.byte_budget import Measured

# Of CPython alone.
testcapi = pytest.importorskip("_testcapi")


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


@pytest.mark.asyncio(loop_factories=["virtual"])
async def test_accepted_is_exact_wherever_memory_ends() -> None:
    """What was counted already was counted as missing, too."""
    raised = 0
    for point in range(45):
        config = BatchQueueConfig[str](
            consumer=lambda _: None,
            partitions=PartitionPolicy.fixed(3),
            selector=round_robin,
        )
        async with BatchQueue("q", config) as queue:
            producing = queue.produce_many(list("abc"))
            said: int | None = None
            testcapi.set_nomemory(point, point + 1)
            try:
                producing.send(None)
            except StopIteration as end:
                testcapi.remove_mem_hooks()
                said = end.value
            except MemoryError as error:
                testcapi.remove_mem_hooks()
                where = error.__traceback__
                if where is None or where.tb_next is None:
                    break  # It has returned.
                raised += 1
                said = getattr(error, "accepted", 0)
            assert said == queue.stats().accepted, f"at allocation {point}"
    assert raised > 5
