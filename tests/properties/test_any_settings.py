"""All settings at once, under a scheduler that shuffles, to each kind of end.

Other tests look at a setting alone, or at few. A seed reproduces what it finds;
`PROPERTY_EXAMPLES=20000` looks at more.
"""

import asyncio
import contextlib
import gc
import logging
import random
from collections.abc import Iterable

import pytest

from tests.properties.any_life import ENDS, AnyLife
from tests.properties.profile import EXAMPLES
from tests.support.planted import PLANTED
from tests.support.shuffled_loop import ShuffledLoop
from tests.support.thorough import examples

# Some loops end with a queue left open, and say so.
pytestmark = pytest.mark.filterwarnings("ignore:the loop of queue:ResourceWarning")

ENOUGH = 1500
SEEDS = EXAMPLES or examples(ENOUGH)


def play_all(seeds: Iterable[int]) -> set[str]:
    """Play them; returns how they ended."""
    ends = set()
    for seed in seeds:
        random.seed(seed)
        life = AnyLife(seed)
        try:
            play(life, seed)
        except BaseException as error:
            error.add_note(f"seed {seed}: {life.end}, {life.config}")
            raise
        ends.add(life.end)
    return ends


def play(life: AnyLife, seed: int) -> None:
    with asyncio.Runner(loop_factory=lambda: ShuffledLoop(seed)) as runner:
        expected = {
            "all cancelled": asyncio.CancelledError,
            "interrupted": KeyboardInterrupt,
        }
        with contextlib.suppress(*filter(None, [expected.get(life.end)])):
            runner.run(life.live())
    life.check()


@pytest.mark.parametrize("part", range(3))
def test_any_settings_keep_the_promises_to_any_end(part: int) -> None:
    ends = play_all(range(part, SEEDS, 3))

    assert ends == {*ENDS}


@pytest.mark.slow
@pytest.mark.parametrize(
    "bug", ["closing wakes nobody", "newest first", "item lost in handoff"]
)
def test_any_settings_find_planted(
    bug: str, asyncio_errors: list[logging.LogRecord]
) -> None:
    with PLANTED[bug](), pytest.raises((AssertionError, TimeoutError)):
        play_all(range(EXAMPLES or ENOUGH))
    for _ in range(3):
        gc.collect()  # again, for what a finalizer has held
    asyncio_errors.clear()  # of tasks that nobody waits for any more
