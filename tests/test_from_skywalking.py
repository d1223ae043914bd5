"""What the page for those who know SkyWalking gives as code does what it says."""

from __future__ import annotations

import re
import threading
from pathlib import Path

from batchqueue_async import BatchQueueConfig

PAGE = Path(__file__).parents[1] / "docs" / "from_skywalking.md"


def test_a_selector_by_thread_spreads_threads() -> None:
    """`get_ident` is an address: of any even number of partitions all got one."""
    found = re.search(r"`ProducerThreadPartitioner` \| `(.*)` \|", PAGE.read_text())
    assert found is not None
    made = eval(
        f"BatchQueueConfig({found[1]})",
        {"BatchQueueConfig": BatchQueueConfig, "threading": threading},
    )
    partitions: dict[int, set[int]] = {2: set(), 4: set(), 8: set()}
    all_are_here = threading.Barrier(16)

    def produce() -> None:
        all_are_here.wait()
        for count, chosen in partitions.items():
            chosen.add(made.selector(None, count))

    threads = [threading.Thread(target=produce) for _ in range(16)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert all(len(chosen) > 1 for chosen in partitions.values())
