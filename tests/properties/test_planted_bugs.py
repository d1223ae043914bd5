"""Bugs on purpose: a machine that finds none of them would be no test.

`FOUND_BY` tells for each bug what is said of it, and by which machines. That the same
machines find nothing without a bug is what `test_machines.py` shows. A bug that could
not be planted fails its test, too (`NothingPlanted`).
"""

import re
from pathlib import Path

import pytest
from hypothesis.stateful import run_state_machine_as_test

from batchqueue_async._engine.partitions.partition import Partition
from tests.properties.machines import (
    ConsumerMachine,
    CrowdedMachine,
    DropNewestMachine,
    DropOldestMachine,
    GrowingMachine,
    PartialMachine,
    RetryingMachine,
    SelectorMachine,
    SharedMachine,
)
from tests.properties.profile import profile
from tests.properties.queue_machine import QueueMachine
from tests.properties.sized_machines import (
    SizedMachine,
    SizedRetryingMachine,
    SizedSelectorMachine,
)
from tests.support.planted import PLANTED, NothingPlanted

EXAMPLES, STEPS = 1000, 25
"""Most are found by the first few examples."""

PATIENCE = 600
"""Seconds of a real clock: what ends a search is its number of examples."""

PROMISE = re.compile(r"[A-G]\d")
STUCK = "a lost wake-up"
UNKNOWN = "list assignment index"
"""The account is told of a share that it does not have."""
UNPAUSED = "<.*WaitingLine"
"""A partition is to go on for a line that did not pause it any more."""

FOUND_BY: dict[str, tuple[str, tuple[type[QueueMachine], ...]]] = {
    "lost wake-up": (STUCK, (GrowingMachine, CrowdedMachine)),
    "next one is not woken": (STUCK, (SizedMachine,)),
    "cancelled producer's item stays": (
        f"A1|C2|{STUCK}",
        (GrowingMachine, CrowdedMachine),
    ),
    "what was taken back serves nobody": ("C2", (GrowingMachine, CrowdedMachine)),
    "taken while it may be taken back": (
        f"A1|C2|list index|{UNPAUSED}",
        (GrowingMachine,),
    ),
    "closing wakes nobody": (f"F1|{STUCK}", (GrowingMachine, SharedMachine)),
    "LIFO instead of FIFO": ("B1", (CrowdedMachine, ConsumerMachine)),
    "cancelled waiter keeps its slot": (
        f"C1|{STUCK}",
        (GrowingMachine, CrowdedMachine),
    ),
    "cancelled waiter tells nobody": ("C2", (CrowdedMachine, ConsumerMachine)),
    "late comers overtake": ("B1|C1", (CrowdedMachine, SharedMachine)),
    "over-full partition": ("C1", (GrowingMachine, DropNewestMachine)),
    "take above max": ("C1", (GrowingMachine, DropOldestMachine)),
    "newest first": ("B1", (GrowingMachine, ConsumerMachine)),
    "leftovers are forgotten": ("A1", (SelectorMachine, DropOldestMachine)),
    "handled part is not booked": (f"A1|E3|{STUCK}|{UNKNOWN}", (PartialMachine,)),
    "flush does not wait": ("F5", (GrowingMachine, DropOldestMachine)),
    "double owner": ("E4", (GrowingMachine, ConsumerMachine)),
    "owner none": (f"E4|{STUCK}", (GrowingMachine, DropOldestMachine)),
    "growth forgets owners": ("E3|E4", (GrowingMachine, SelectorMachine)),
    "handoff without a fence": ("E3", (GrowingMachine, SelectorMachine)),
    "item lost in handoff": ("A1", (GrowingMachine, ConsumerMachine)),
    "new owner is not told": (f"D2|{STUCK}", (GrowingMachine, DropNewestMachine)),
    "arrivals end no nap": (f"D2|{STUCK}", (GrowingMachine, SharedMachine)),
    "deferred batch does not pause": ("C1|E3", (ConsumerMachine, RetryingMachine)),
    "deferred batch is overtaken": ("B1", (RetryingMachine,)),
    "on_idle beside consume": ("B3", (GrowingMachine, ConsumerMachine)),
    "growth moves types": ("B2", (GrowingMachine, DropNewestMachine)),
    "handlers keep the room of what they have handled": (
        f"C5|{STUCK}",
        (SizedMachine, SizedSelectorMachine),
    ),
    "batches are cut by their length alone": ("C5", (SizedRetryingMachine,)),
    "a deadline outlives its shutdown": ("F3", (GrowingMachine, ConsumerMachine)),
}

OF_THE_LINE = {
    "cancelled waiter keeps its slot",
    "cancelled waiter tells nobody",
    "late comers overtake",
    "new head is not woken",
    "next one is not woken",
    "LIFO instead of FIFO",
}
"""Of producers that place their items themselves, as those of handlers do, and all
where each key has its buffer: nobody else stands in line while there is room."""

FOUND_BY_SCHEDULES_ALONE = {"new head is not woken"}
"""In `test_shuffled_schedules.py`; it takes three wake-ups in an unusual order."""


def test_every_planted_bug_is_looked_for() -> None:
    assert FOUND_BY.keys() | FOUND_BY_SCHEDULES_ALONE == PLANTED.keys()


def test_each_promise_that_machines_look_at_is_broken_by_a_bug() -> None:
    sources = [each.read_text("utf-8") for each in Path(__file__).parent.glob("*.py")]
    looked_at = set(re.findall(r'"([A-G]\d): ', "".join(sources)))
    broken = {each for bug, _ in FOUND_BY.values() for each in PROMISE.findall(bug)}
    assert broken == looked_at


def test_a_bug_that_nobody_meets_says_so() -> None:
    with pytest.raises(NothingPlanted), PLANTED["take above max"]():
        pass


@pytest.mark.slow
# Up to a thousand examples, of which a busy machine runs a few in a second.
@pytest.mark.timeout(PATIENCE)
# A planted bug may keep a machine from tidying up.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "bug, machine, finding",
    [
        pytest.param(bug, machine, finding, id=f"{bug}-{machine.__name__}")
        for bug, (finding, machines) in FOUND_BY.items()
        for machine in machines
    ],
)
def test_the_machine_finds(
    bug: str,
    machine: type[QueueMachine],
    finding: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Partition, "serves_on_loop", bug not in OF_THE_LINE)
    settings = profile(EXAMPLES, STEPS, shrinks=False)
    errors = (AssertionError, IndexError, KeyError)
    finds = pytest.raises(errors, match=rf"^[\['\"]*({finding})")
    with PLANTED[bug](), finds:
        run_state_machine_as_test(machine, settings=settings)
