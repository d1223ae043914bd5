"""One plan of a balancer: loads that all differ, on owners that take turns."""

import random
import statistics
import time

from batchqueue_async import CostBalancer

PARTITIONS = 500
DRAIN_TASKS = 8
_TIMES = 51


def loads(partitions: int = PARTITIONS) -> list[float]:
    """Return one load per partition, some of them far above the others."""
    found = [100_000 / (rank + 50) for rank in range(partitions)]
    random.Random(3).shuffle(found)
    return found


def owners(partitions: int = PARTITIONS) -> list[int]:
    """Return who drains each partition before the plan."""
    return [number % DRAIN_TASKS for number in range(partitions)]


def milliseconds() -> float:
    """Return what one plan takes, during which the loop stands still: the median."""
    balancer, before, now = CostBalancer(1), loads(), owners()
    took = []
    for _ in range(_TIMES):
        started = time.perf_counter()
        balancer.assign(before, now, DRAIN_TASKS)
        took.append(time.perf_counter() - started)
    return statistics.median(took) * 1e3
