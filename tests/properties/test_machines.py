"""The state machines, each over its kind of queue.

`PROPERTY_EXAMPLES=5000` explores instead of repeating the same examples.
"""

import pytest
from hypothesis.stateful import run_state_machine_as_test

from batchqueue_async._engine.draining import schedule
from tests.properties.machines import MACHINES, CancellingMachine
from tests.properties.profile import profile
from tests.properties.queue_machine import QueueMachine
from tests.support.thorough import examples


@pytest.mark.parametrize(
    "machine",
    [*MACHINES, CancellingMachine],
    ids=lambda each: each.__name__,
)
@pytest.mark.parametrize("number, steps", [(150, 14), (100, 35)])
def test_the_promises_hold_after_every_step(
    machine: type[QueueMachine], number: int, steps: int
) -> None:
    run_state_machine_as_test(machine, settings=profile(examples(number), steps))


@pytest.mark.parametrize(
    "machine",
    [*MACHINES, CancellingMachine],
    ids=lambda each: each.__name__,
)
def test_they_hold_where_a_cycle_takes_part_by_part(
    machine: type[QueueMachine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it does with hundreds of partitions."""
    monkeypatch.setattr(schedule, "PARTITIONS_AT_ONCE", 1)
    run_state_machine_as_test(machine, settings=profile(examples(100), 25))
