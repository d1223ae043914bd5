"""Queues whose handlers wait for each other: nothing hangs, only cycles are refused.

In virtual time a wait that never ends fails as `Deadlock`. `PROPERTY_EXAMPLES=20000`
looks at more seeds.
"""

import asyncio
import logging
import random

import pytest

from tests.properties.chains import Chains
from tests.properties.profile import EXAMPLES
from tests.support.shuffled_loop import ShuffledLoop
from tests.support.thorough import examples

SEEDS = EXAMPLES or examples(240)


def play(seed: int, *, cyclic: bool) -> Chains:
    random.seed(seed)
    chains = Chains(seed, cyclic=cyclic)
    try:
        with asyncio.Runner(loop_factory=lambda: ShuffledLoop(seed)) as runner:
            runner.run(chains.play())
    except BaseException as error:
        error.add_note(f"play({seed}, cyclic={cyclic})")
        raise
    return chains


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "batchqueue_async")


@pytest.mark.parametrize("part", range(3))
def test_no_chain_without_a_cycle_hangs_or_is_refused(part: int) -> None:
    delivered = 0
    for seed in range(part, SEEDS, 3):
        chains = play(seed, cyclic=False)
        assert not chains.refused, f"seed {seed}"
        delivered += chains.delivered
    assert delivered > 10 * SEEDS


@pytest.mark.parametrize("part", range(3))
def test_no_cycle_hangs(part: int) -> None:
    refused = sum(play(seed, cyclic=True).refused for seed in range(part, SEEDS, 3))
    assert refused > SEEDS / 10
