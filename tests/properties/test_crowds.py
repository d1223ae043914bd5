"""A1, B1, C1, C2, F1: producers by all ways in at once, with little room for them.

`PROPERTY_EXAMPLES=20000` looks at more seeds.
"""

import asyncio

import pytest

from batchqueue_async.testing import VirtualTimeLoop
from tests.properties.crowd import Crowd
from tests.properties.profile import EXAMPLES
from tests.support.thorough import examples

SEEDS = EXAMPLES or examples(600)
PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_nobody_stands_still_and_nothing_comes_twice(part: int) -> None:
    for seed in range(part, SEEDS, PARTS):
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            try:
                runner.run(Crowd(seed).play())
            except BaseException as error:
                error.add_note(f"seed {seed}")
                raise
