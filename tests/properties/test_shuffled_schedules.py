"""Hundreds of seeded schedules of one mixed scenario; a seed reproduces what it finds.

`PROPERTY_EXAMPLES=20000` looks at more seeds.
"""

import asyncio
import gc
import logging
import random
from collections.abc import Iterable

import pytest

from batchqueue_async._engine.partitions.partition import Partition
from tests.properties.mixed_scenario import mixed_scenario
from tests.properties.profile import EXAMPLES
from tests.properties.test_planted_bugs import OF_THE_LINE
from tests.support.planted import PLANTED
from tests.support.shuffled_loop import ShuffledLoop
from tests.support.thorough import examples

ENOUGH = 300
SEEDS = EXAMPLES or examples(ENOUGH)


def play_all(seeds: Iterable[int]) -> None:
    for seed in seeds:
        try:
            play(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}: ShuffledLoop({seed}), mixed_scenario({seed})")
            raise


def play(seed: int) -> None:
    random.seed(seed)
    with asyncio.Runner(loop_factory=lambda: ShuffledLoop(seed)) as runner:
        runner.run(mixed_scenario(seed))


@pytest.mark.parametrize("part", range(3))
def test_no_schedule_loses_doubles_or_reorders(part: int) -> None:
    play_all(range(part, SEEDS, 3))


@pytest.mark.slow
def test_nor_where_all_who_wait_place_their_items_themselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Partition, "serves_on_loop", False)
    play_all(range(SEEDS))


# What a planted bug leaves in its queues is told as their loops end.
@pytest.mark.filterwarnings("ignore:the loop of queue:ResourceWarning")
@pytest.mark.slow
@pytest.mark.parametrize(
    "bug",
    [
        "lost wake-up",
        "new head is not woken",
        "LIFO instead of FIFO",
        "cancelled waiter keeps its slot",
        "newest first",
        "item lost in handoff",
    ],
)
def test_schedules_find_planted(
    bug: str, asyncio_errors: list[logging.LogRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Partition, "serves_on_loop", bug not in OF_THE_LINE)
    with PLANTED[bug](), pytest.raises((AssertionError, TimeoutError)):
        play_all(range(EXAMPLES or ENOUGH))
    for _ in range(3):
        gc.collect()  # again, for what a finalizer has held
    asyncio_errors.clear()  # of tasks that nobody waits for any more
