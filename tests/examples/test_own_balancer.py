"""The example's balancer: its plans, its program, and its copy in the guide."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchqueue_async import DrainBalancer, Rebalancing
from examples.own_balancer import OneMoveAtATime, main
from tests.support.running import told

ROOT = Path(__file__).parents[2]

balancer: DrainBalancer = OneMoveAtATime()


def sums(loads: list[float], owners: list[int], drain_tasks: int) -> list[float]:
    totals = [0.0] * drain_tasks
    for load, owner in zip(loads, owners, strict=True):
        totals[owner] += load
    return totals


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 3)), min_size=1, max_size=20)
)
def test_a_plan_moves_one_partition_and_makes_the_busiest_less_busy(
    drawn: list[tuple[int, int]],
) -> None:
    loads, owners = [float(each[0]) for each in drawn], [each[1] for each in drawn]
    before = sums(loads, owners, 4)
    plan = balancer.assign(loads, owners, 4)
    if plan is None:
        return
    after = sums(loads, list(plan), 4)
    moved = [p for p in range(len(plan)) if plan[p] != owners[p]]
    assert len(moved) == 1
    assert owners[moved[0]] == before.index(max(before))
    assert after[owners[moved[0]]] < max(before)
    assert after[plan[moved[0]]] < max(before)


def test_it_takes_the_partition_that_closes_half_of_the_gap() -> None:
    assert balancer.assign([8, 1, 8, 1, 8, 1], [0, 1] * 3, 2) == [1, 1, 0, 1, 0, 1]
    assert balancer.assign([8, 1, 8, 1, 8, 1], [1, 1, 0, 1, 0, 1], 2) is None


def test_it_leaves_an_idle_queue_alone() -> None:
    assert balancer.assign([0.0] * 4, [0, 1, 0, 1], 2) is None


def test_it_is_accepted_and_measures_seconds() -> None:
    assert Rebalancing(balancer).measure == "seconds"


def test_the_program_ends_in_order() -> None:
    command = [sys.executable, "-W", "error", str(ROOT / "examples/own_balancer.py")]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=50, check=False
    )
    assert told(ended.stderr) == ""
    assert ended.returncode == 0
    lines = ended.stdout.splitlines()
    assert lines[0] == "owners: [0, 1, 0, 1, 0, 1]"
    assert re.fullmatch(r"after \d+ rounds: max/min load \S+", lines[-1])


async def test_the_program_ends_up_balanced(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """In virtual time: a busy machine's sleeps of 1 ms are as long as those of 4."""
    with caplog.at_level("INFO", "batchqueue_async"):
        await main()
    (moved,) = caplog.messages
    assert moved.startswith("sensors: moved 1 partition")
    last = capsys.readouterr().out.splitlines()[-1]
    ratio = re.fullmatch(r"after \d+ rounds: max/min load (\S+)", last)
    assert ratio is not None
    # In each step 12 ms against 3; with one partition moved, 8 against 7.
    assert float(ratio[1]) < 1.5


def test_the_guide_shows_the_same_balancer() -> None:
    guide = (ROOT / "docs" / "guides" / "rebalancing.md").read_text("utf-8")
    assert inspect.getsource(OneMoveAtATime) in guide
