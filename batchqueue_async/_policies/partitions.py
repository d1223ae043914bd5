"""How many partitions a queue has."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from batchqueue_async._validation import (
    refuse,
    require_int,
)

from .value import Value

if TYPE_CHECKING:
    from fractions import Fraction

MOST_PARTITIONS = 65_536
"""The most partitions of one queue. Each takes about a kilobyte and a look per cycle;
more of them, or a weight that asks for more, are a mistake. It bounds drain tasks, too,
since each needs a partition to be busy.
"""

# A sum of float weights may exceed the true sum by this much and still count as it.
_DRIFT = 1e-9


class PartitionPolicy(ABC):
    """How many partitions a queue has, given its drain tasks and its handlers."""

    __slots__ = ()

    grows: ClassVar[bool] = False
    """Whether later handlers may add partitions."""

    @staticmethod
    def fixed(n: int) -> PartitionPolicy:
        """Keep exactly `n` partitions, 65,536 at most."""
        return _Fixed(n)

    @staticmethod
    def per_drain_task(m: int) -> PartitionPolicy:
        """Keep `m` partitions for each drain task, 65,536 in all at most."""
        return _PerDrainTask(m)

    @staticmethod
    def adaptive(multiplier: int = 25) -> PartitionPolicy:
        """Grow with the handlers: one partition each while they are few.

        Beyond `multiplier` handlers per drain task, every second one adds a
        partition. A handler counts with its weight; the sum is rounded up, and a
        float sum that drifted up by 1e-9 or less counts as exact. Without handlers
        there is one partition per drain task. A queue has 65,536 at most: a handler
        with whose weight it would have more is refused.
        """
        return _Adaptive(multiplier)

    @abstractmethod
    def resolve(self, drain_tasks: int, weighted_handlers: float | Fraction) -> int:
        """Return the number of partitions: 1 or more.

        Args:
            drain_tasks: How many drain tasks the queue was declared with.
            weighted_handlers: The sum of the weights of its handlers.
        """


class _Fixed(Value, PartitionPolicy):
    n: int

    def __post_init__(self) -> None:
        require_int("n", self.n, at_least=1, at_most=MOST_PARTITIONS)

    def resolve(self, drain_tasks: int, weighted_handlers: float | Fraction) -> int:
        return self.n

    def __repr__(self) -> str:
        return f"PartitionPolicy.fixed({self.n})"


class _PerDrainTask(Value, PartitionPolicy):
    m: int

    def __post_init__(self) -> None:
        require_int("m", self.m, at_least=1, at_most=MOST_PARTITIONS)

    def resolve(self, drain_tasks: int, weighted_handlers: float | Fraction) -> int:
        return max(1, self.m * drain_tasks)

    def __repr__(self) -> str:
        return f"PartitionPolicy.per_drain_task({self.m})"


class _Adaptive(Value, PartitionPolicy):
    multiplier: int

    grows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_int("multiplier", self.multiplier, at_least=1, at_most=MOST_PARTITIONS)

    def resolve(self, drain_tasks: int, weighted_handlers: float | Fraction) -> int:
        handlers = max(0, math.ceil(weighted_handlers - _DRIFT))
        if handlers == 0:
            return max(1, drain_tasks)
        one_each = max(1, self.multiplier * drain_tasks)
        if handlers <= one_each:
            return handlers
        return one_each + (handlers - one_each) // 2

    def __repr__(self) -> str:
        return f"PartitionPolicy.adaptive(multiplier={self.multiplier})"


def require_policy(field: str, value: object, kind: type, *others: type) -> None:
    """Refuse what is no policy; an int gets the `fixed` factory suggested."""
    if isinstance(value, (kind, *others)):
        return
    rule = " or ".join(f"a {each.__name__}" for each in (kind, *others))
    if isinstance(value, int) and not isinstance(value, bool):
        rule = f"{rule} such as {kind.__name__}.fixed({value})"
    refuse(field, rule, value, TypeError)
