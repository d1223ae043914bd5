"""What the benchmarks of uses measure is what their goals and the page look for."""

import math
from collections.abc import Callable

import pytest

from benchmarks import (
    bridge_cpu,
    bridge_uses,
    crowd,
    importing,
    lone_items,
    room,
    small_batches,
)
from benchmarks.goal import Goal
from benchmarks.goals import GOALS
from benchmarks.page import ABOUT, HEADINGS, written
from benchmarks.report import Report
from benchmarks.scale import Scale, loops
from benchmarks.table import Table
from benchmarks.turns import Samples, Turns

pytestmark = pytest.mark.real_time

SKETCH = Scale(is_quick=True)
LOOP = loops()["asyncio"]

MEASURED: dict[str, Callable[[Turns], Table]] = {
    "a lone item, ping-pong": lambda it: lone_items.table(
        lone_items.PING_PONG, LOOP, SKETCH, it
    ),
    "a lone item, 2 ms apart": lambda it: lone_items.table(
        lone_items.RARE, LOOP, SKETCH, it
    ),
    "CPU per item from a thread": lambda it: bridge_cpu.table(LOOP, SKETCH, it),
    "waiting for room": lambda it: room.table(LOOP, SKETCH, it),
    f"{crowd.PRODUCERS:,} producers": lambda it: crowd.table(LOOP, SKETCH, it),
    "import": lambda it: importing.table(SKETCH, it),
}


def goals_of(beginning: str) -> list[Goal]:
    return [goal for goal in GOALS if goal.what.startswith(beginning)]


@pytest.mark.parametrize("what", MEASURED)
def test_a_goal_finds_its_figure_and_the_page_its_heading(what: str) -> None:
    pytest.importorskip("janus")
    table = MEASURED[what](Turns(1, is_quick=True))
    (goal,) = goals_of(what)

    figure = goal.measured({table.key: table})
    # A difference of two programs, of one sample each, may have either sign.
    assert figure > 0 or (what == "import" and math.isfinite(figure))
    assert table.key.partition("/")[0] in HEADINGS


def test_each_use_of_the_bridge_has_a_goal_beside_janus() -> None:
    names = {use.name for use in bridge_uses.uses()}
    goals = {goal.what for goal in GOALS}

    assert names == set(bridge_uses.NAMES)
    assert {f"bridge, {name}, beside janus" for name in names} <= goals


def test_small_batches_have_one_item_per_call() -> None:
    table = small_batches.table(LOOP, SKETCH, Turns(1, is_quick=True))

    sizes = {row[0]: table.value(str(row[0]), "items per batch") for row in table.rows}
    assert set(sizes.values()) == {1}


def test_the_page_says_what_a_heading_is_about() -> None:
    assert set(ABOUT) <= set(HEADINGS.values())
    machine = {"date": "today", "python": "3", "system": "x", "processor": "y"}
    noise = {"others' cores": 0.0, "samples": 1.0, "retaken": 0.0, "disturbed": 0.0}
    spreads = {"spread, median": 0.0, "spread, 9 of 10": 0.0}
    report = Report(machine, {}, is_quick=True, noise={**noise, **spreads})
    report.tables = {"room": Table("room", "Waiting for room", [])}

    page = written(report, has_picture=False)

    assert page.index(ABOUT["Little room"]) < page.index("**Waiting for room**")


def test_what_is_beyond_another_is_the_median_of_the_turns_own() -> None:
    disturbed = Samples([5.0, 105.0, 6.0]), Samples([1.0, 100.0, 2.0])

    assert disturbed[0].beyond(disturbed[1]) == 4
