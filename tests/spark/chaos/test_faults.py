import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.spark.chaos.campaign import divide
from tests.spark.chaos.checkpoint import SOURCES
from tests.spark.chaos.faults import plan
from tests.spark.chaos.halts import FOLDER, Halts, async_halt, halt
from tests.spark.chaos.ways import WAYS


@pytest.mark.parametrize("way", WAYS)
def test_a_plan_has_every_target_and_point_and_is_the_same_again(way: str) -> None:
    faults = plan(way, 18, random.Random(7))
    assert faults == plan(way, 18, random.Random(7))
    everything = plan(way, 1000, random.Random(7))
    for name in ("target", "point"):
        counts = Counter(getattr(fault, name) for fault in faults)
        assert set(counts) == {getattr(fault, name) for fault in everything}


def test_all_kills_are_dealt_out() -> None:
    parts = divide(["foreachBatch", "data source"], SOURCES, 31, random.Random(7))
    assert sum(len(part.faults) for part in parts) == 31
    assert len(parts) == 4


async def test_one_process_stops_at_an_armed_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    halts = Halts(tmp_path)
    halt("staged")
    halts.arm("staged")
    assert halts.halted("staged") is None
    waiting = asyncio.create_task(async_halt("staged"))
    await asyncio.sleep(1)
    assert halts.halted("staged") is not None
    halt("staged")  # the second that comes there passes
    assert not waiting.done()
    halts.release()
    await waiting
