"""The settings that examples differ in, and a balancer that does as it is told."""

from collections.abc import Sequence
from dataclasses import dataclass

import hypothesis.strategies as st

from batchqueue_async import IdleBackoff, Retry

INTERVAL = 1.0
IDLE = IdleBackoff(0.001, 0.5)


class Plans:
    """A balancer that gives each partition the owner that was drawn, once."""

    def __init__(self) -> None:
        self.plan: Sequence[int] = ()

    def assign(
        self, loads: Sequence[float], owners: Sequence[int], drain_tasks: int
    ) -> Sequence[int] | None:
        plan, self.plan = self.plan, ()
        if not plan:
            return None
        return [plan[p % len(plan)] % drain_tasks for p in range(len(owners))]


@dataclass(frozen=True)
class Setup:
    """What differs between two examples of one machine."""

    drain_tasks: int
    buffer_size: int
    max_batch: int | None
    linger: float
    retry: Retry
    timeout: float | None
    hooks: bool
    stubborn: bool


setups = st.builds(
    Setup,
    drain_tasks=st.integers(1, 3),
    buffer_size=st.integers(1, 4),
    max_batch=st.sampled_from([None, 1, 2, 3]),
    linger=st.sampled_from([0.0, 0.0, 0.01]),
    retry=st.sampled_from(
        [Retry(), Retry(attempts=2), Retry(attempts=2, split=True), Retry(split=True)]
    ),
    timeout=st.sampled_from([None, None, 0.2]),
    hooks=st.booleans(),
    stubborn=st.booleans(),
)
