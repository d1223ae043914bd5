"""The state machines over queues that count in the sizes of items."""

import pytest
from hypothesis.stateful import run_state_machine_as_test

from tests.properties.profile import profile
from tests.properties.queue_machine import QueueMachine
from tests.properties.sized_machines import SIZED_MACHINES
from tests.support.thorough import examples


@pytest.mark.parametrize("machine", SIZED_MACHINES, ids=lambda each: each.__name__)
@pytest.mark.parametrize("number, steps", [(150, 14), (100, 35)])
def test_the_promises_hold_after_every_step(
    machine: type[QueueMachine], number: int, steps: int
) -> None:
    run_state_machine_as_test(machine, settings=profile(examples(number), steps))
