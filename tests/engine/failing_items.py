"""A sink that fails chosen items, and the order in which it got the others."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence

from batchqueue_async import PartialFailure

Item = tuple[str, int]
"""A key, and which of its items it is."""


class FailingItems:
    """Fails chosen items so often, and what is behind them of their keys.

    Args:
        bad: How often each is to fail.
        retry_after: As for `PartialFailure`.
    """

    def __init__(
        self, bad: dict[Item, int], *, retry_after: float | None = None
    ) -> None:
        self.bad = bad
        self.retry_after = retry_after
        self.stored: list[Item] = []

    async def consume(self, batch: list[Item]) -> None:
        await asyncio.sleep(0)
        failed: list[int] = []
        failed_keys: set[str] = set()
        for position, item in enumerate(batch):
            if self.bad.get(item, 0) > 0:
                self.bad[item] -= 1
                failed_keys.add(item[0])
            if item[0] in failed_keys:
                failed.append(position)
            else:
                self.stored.append(item)
        if failed:
            raise PartialFailure(failed, retry_after=self.retry_after)


def assert_in_order(items: Sequence[Item]) -> None:
    by_key: defaultdict[str, list[int]] = defaultdict(list)
    for key, number in items:
        by_key[key].append(number)
    assert by_key == {key: sorted(numbers) for key, numbers in by_key.items()}
