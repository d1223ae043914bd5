"""Settings drawn from all that a queue may be given, by a seed."""

import random
from dataclasses import dataclass, field
from typing import Any

from batchqueue_async import (
    BatchQueueConfig,
    DrainTaskPolicy,
    IdleBackoff,
    PartitionPolicy,
    Rebalancing,
    Retry,
    ThroughputBalancer,
    WhenFull,
    by_key,
    by_type,
    fair_by,
    round_robin,
)
from batchqueue_async._policies.selectors import PartitionSelector
from tests.properties.mixed_scenario import Shuffler


@dataclass(frozen=True)
class Item:
    """Unique, and numbered by its producer; a key is one producer's."""

    producer: int
    number: int

    @property
    def key(self) -> int:
        return self.producer % 4

    @property
    def size(self) -> int:
        return 1 + self.number % 4


class Red(Item): ...


class Green(Item): ...


class Blue(Item): ...


KINDS = (Red, Green, Blue)

SELECTORS: dict[str, PartitionSelector[Item]] = {
    "by_type": by_type,
    "by_key": by_key(lambda item: item.key),
    "round_robin": round_robin,
    "fair_by": fair_by(lambda item: item.key, quantum=2),
    "weighed": fair_by(lambda item: item.key, weight=lambda key: 1 + key),
}
RETRIES = (
    Retry(attempts=3, wait_initial=0.002),
    Retry(attempts=3, wait_initial=0.002, split=True),
    Retry(attempts=5, wait_initial=0.002, deadline=0.01),
    Retry(split=True),
)


@dataclass
class AnySettings:
    """What a seed has drawn; `config` makes a queue's settings of it."""

    chance: random.Random
    selector: str = "by_type"
    settings: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, chance: random.Random) -> "AnySettings":
        drawn = cls(chance, chance.choice(["by_type", *SELECTORS]))
        drawn._draw_partitions()
        drawn._draw_sizes()
        drawn._draw_batches()
        drawn._draw_failures()
        drawn._draw_looks()
        return drawn

    @property
    def keeps_order(self) -> bool:
        """Whether a producer's items of one type stay in order."""
        return self.selector != "round_robin"

    @property
    def has_one_partition_each(self) -> bool:
        """Whether a type's items are in one partition, whatever their keys."""
        return self.selector not in {"round_robin", "by_key"}

    def config(self, **more: Any) -> BatchQueueConfig[Item]:  # noqa: ANN401
        return BatchQueueConfig[Item](**self.settings, **more)

    def _perhaps(self, probability: float, **alternatives: Any) -> None:  # noqa: ANN401
        for name, values in alternatives.items():
            if self.chance.random() < probability:
                self.settings[name] = self.chance.choice(values)

    def _draw_partitions(self) -> None:
        settings, choice = self.settings, self.chance.choice
        settings["selector"] = SELECTORS[self.selector]
        count = choice([1, 2, 5])
        if self.selector in {"fair_by", "weighed"}:
            count = 1
        settings["partitions"] = PartitionPolicy.fixed(count)
        if self.selector == "by_type" and choice([True, False]):
            settings["partitions"] = PartitionPolicy.adaptive(multiplier=choice([1, 3]))
        tasks = [*map(DrainTaskPolicy.fixed, (1, 2, 4)), DrainTaskPolicy.adaptive(1, 4)]
        settings["drain_tasks"] = choice(tasks)
        shuffled = Rebalancing(Shuffler(choice(range(99))), interval=0.003)
        rounds = [shuffled, Rebalancing(ThroughputBalancer(), interval=0.003)]
        self._perhaps(0.4, rebalancing=rounds)

    def _draw_sizes(self) -> None:
        self.settings["buffer_size"] = self.chance.choice([1, 2, 3, 7, 50, 1000])
        self.settings["when_full"] = self.chance.choice([WhenFull.WAIT, *WhenFull])
        if self.selector in {"fair_by", "weighed"} or self.chance.random() < 0.7:
            return
        self.settings["size_of"] = lambda item: item.size
        self.settings["max_batch_bytes"] = self.chance.choice([5, 12, 100])
        self._perhaps(0.7, buffer_bytes=[9, 20, 200])

    def _draw_batches(self) -> None:
        self._perhaps(0.6, max_batch=[1, 2, 3, 10, "auto"])
        self._perhaps(0.35, linger=[0.001, 0.02, 0.2])
        self._perhaps(0.3, idle=[IdleBackoff(1e-6, 0.001), IdleBackoff(0.001, 1.0)])

    def _draw_failures(self) -> None:
        self._perhaps(0.6, retry=RETRIES)
        self._perhaps(0.25, handler_timeout=[0.002, 0.05])
        self._perhaps(0.3, on_retry=[lambda *_: None])

    def _draw_looks(self) -> None:
        self._perhaps(0.2, slow_handler=[0.003])
        self._perhaps(0.3, measure_handlers=[True], audit=[True], threads=[True])
