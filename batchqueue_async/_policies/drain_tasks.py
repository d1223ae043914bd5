"""How many drain tasks empty a queue."""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod

from batchqueue_async._policies.partitions import MOST_PARTITIONS, require_policy
from batchqueue_async._validation import (
    refuse,
    require_instance,
    require_int,
    require_positive,
)

from .value import Value


class DrainTaskPolicy(ABC):
    """How many drain tasks a queue runs; resolved once, when the queue is built.

    All of them share one event loop: they overlap the time that handlers spend
    waiting, not the time they spend computing.
    """

    __slots__ = ()

    @staticmethod
    def fixed(n: int) -> DrainTaskPolicy:
        """Run exactly `n` drain tasks, 65,536 at most: as many as partitions."""
        return FixedDrainTasks(n)

    @staticmethod
    def cpu_cores(multiplier: float) -> DrainTaskPolicy:
        """Run `multiplier` drain tasks per usable CPU, rounded half up, at least 1."""
        return _CpuCores(0, multiplier)

    @staticmethod
    def cpu_cores_with_base(base: int, multiplier: float) -> DrainTaskPolicy:
        """Run `base` drain tasks more than `cpu_cores(multiplier)` rounds to."""
        return _CpuCores(base, multiplier)

    @staticmethod
    def adaptive(least: int, most: int) -> DrainTaskPolicy:
        """Run as many as help: from `least` to `most`, 65,536 at most.

        This starts the rebalancer with a round each second, which gives all partitions
        to as many drain tasks as are at work. While these are busy it tries more, and
        keeps them if items per second grow by it. It takes one away if they are idle
        for half of the time, and half of them where items have to be tried again and
        fewer are handled; then it finds by bisection (BIC) how many are not refused.
        `stats().drain_task_limit` has the number. It helps where items spread over
        partitions, at least `most`; partitions per drain task count for all `most`.
        """
        return _AdaptiveDrainTasks(least, most)

    @property
    def least(self) -> int | None:
        """How many an adaptive policy starts with; None if the number is fixed."""
        return None

    @abstractmethod
    def resolve(self) -> int:
        """Return the number of drain tasks on this machine: 1 or more."""


class FixedDrainTasks(Value, DrainTaskPolicy):
    n: int

    def __post_init__(self) -> None:
        require_int("n", self.n, at_least=1, at_most=MOST_PARTITIONS)

    def resolve(self) -> int:
        return self.n

    def __repr__(self) -> str:
        return f"DrainTaskPolicy.fixed({self.n})"


class _CpuCores(Value, DrainTaskPolicy):
    base: int
    multiplier: float

    def __post_init__(self) -> None:
        require_int("base", self.base, at_least=0, at_most=MOST_PARTITIONS)
        require_positive("multiplier", self.multiplier)
        count = self.base + self.multiplier * usable_cpus()
        if count > MOST_PARTITIONS:
            rule = f"for at most {MOST_PARTITIONS} drain tasks on {usable_cpus()} CPUs"
            refuse("multiplier", rule, self.multiplier)

    def resolve(self) -> int:
        # Half up: the built-in round() would take 0.5 to 0.
        scaled = math.floor(self.multiplier * usable_cpus() + 0.5)
        return min(max(1, self.base + scaled), MOST_PARTITIONS)

    def __repr__(self) -> str:
        if self.base == 0:
            return f"DrainTaskPolicy.cpu_cores({self.multiplier})"
        return f"DrainTaskPolicy.cpu_cores_with_base({self.base}, {self.multiplier})"


class _AdaptiveDrainTasks(Value, DrainTaskPolicy):
    # Not called `least`, which is a property of all policies.
    at_least: int
    most: int

    def __post_init__(self) -> None:
        require_int("least", self.at_least, at_least=1)
        require_int("most", self.most, at_least=1, at_most=MOST_PARTITIONS)
        if self.most < self.at_least:
            refuse("most", f">= least ({self.at_least})", self.most)

    @property
    def least(self) -> int:
        return self.at_least

    def resolve(self) -> int:
        return self.most

    def __repr__(self) -> str:
        return f"DrainTaskPolicy.adaptive({self.at_least}, {self.most})"


class SharedDrainTasks(Value):
    """Drain capacity that several queues of one manager, or `LoopThread`, share.

    A queue that is started by itself shares it with nobody, which is warned of. The
    first queue that names it creates it and its policy holds; it ends with the
    last queue that uses it.

    Attributes:
        name: What the queues that share it have in common.
        policy: How many queues may drain at the same time. One whose handler waits for
            a queue lends its turn meanwhile.
    """

    name: str
    policy: DrainTaskPolicy

    def __post_init__(self) -> None:
        require_instance("name", self.name, str, "a str")
        if not self.name:
            refuse("name", "a non-empty str", self.name)
        require_policy("policy", self.policy, DrainTaskPolicy)
        if self.policy.least is not None:
            refuse("policy", "of a number that stays, where it is shared", self.policy)


def count_of(policy: DrainTaskPolicy) -> int:
    """Return what a policy resolves to, which may be a user's own."""
    count = policy.resolve()
    require_int("what drain_tasks resolves to", count, at_least=1)
    return count


def usable_cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
