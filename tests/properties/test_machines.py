"""The state machines, each over its kind of queue.

`PROPERTY_EXAMPLES=5000` explores instead of repeating the same examples.
"""

import pytest
from hypothesis.stateful import run_state_machine_as_test

from batchqueue_async import Retry
from batchqueue_async._engine.draining import linger_and_nap as schedule
from tests.properties.gated_handler import A
from tests.properties.machines import MACHINES, CancellingMachine, SharedMachine
from tests.properties.profile import profile
from tests.properties.queue_machine import QueueMachine
from tests.properties.setup import Setup
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


def test_f3_no_timer_survives_a_flush_that_the_deadline_cuts_off() -> None:
    """Found by its machine: nobody was inside any more, but the timer was there."""
    machine = SharedMachine()
    setup = Setup(
        drain_tasks=1,
        buffer_size=1,
        max_batch=None,
        linger=0.0,
        retry=Retry(attempts=1),
        timeout=None,
        hooks=True,
        stubborn=False,
    )
    machine.start(setup=setup, first=[A])
    machine.flush(timeout=None)
    for _ in range(5):
        machine.produce(kind=A)
    machine.remove_handler(kind=A)
    machine.produce_a_mixture(of=[A] * 2)
    machine.produce_a_mixture(of=[A] * 6)
    machine.shutdown(timeout=30.0)
    machine.let_the_next_timer_fire()
    machine.teardown()
