"""Which faults there are, and a seeded plan of some."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

RANDOM = "at random"
WORKING = "at work"
"""At random, but not before the executors have Python workers."""

DEMO = "demo"
"""The way of the flights demo on executors, whose sources are its modes."""

MODES = ("batch", "stream")

_IN_TASKS = ("Python worker", "executor", "worker daemon", "driver", "database")
_IN_DRIVER = ("driver", "driver's Python", "driver's JVM", "database", "worker daemon")
_ANYTIME = ("Python worker", "executor", *_IN_DRIVER)
_OF_CLUSTER = ("Python worker", "executor", "machine")
_WITHIN = ("while publishing", "while committing")

_POINTS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "naive": {
        **dict.fromkeys(("in a task", "before write", "after commit"), _IN_TASKS),
        RANDOM: _ANYTIME,
    },
    "foreachBatch": {
        "in a task": _IN_TASKS,
        **dict.fromkeys(("before begin", "before write"), _IN_DRIVER),
        **dict.fromkeys(("while writing", "before commit"), _IN_DRIVER),
        **dict.fromkeys((*_WITHIN, "after commit"), _IN_DRIVER),
        RANDOM: _ANYTIME,
    },
    "data source": {
        "in a task": _IN_TASKS,
        **dict.fromkeys(("before staging", "while staging", "staged"), _IN_TASKS),
        **dict.fromkeys(
            ("before publishing", *_WITHIN), ("commit worker", *_IN_DRIVER)
        ),
        "after publishing": ("commit worker", *_IN_DRIVER),
        RANDOM: _ANYTIME,
    },
    DEMO: {
        WORKING: (*_OF_CLUSTER, "driver", "driver's Python", "driver's JVM"),
        **dict.fromkeys(_WITHIN, (*_IN_DRIVER, "machine")),
    },
}


@dataclass(frozen=True)
class Fault:
    """What is killed, and where the sink's work stands at that moment."""

    target: str
    point: str


def plan(way: str, kills: int, chance: random.Random) -> list[Fault]:
    """Draw this many faults, each target and each point about equally often."""
    points = _POINTS[way]
    rest = [Fault(target, point) for point in points for target in points[point]]
    drawn: list[Fault] = []
    seen: Counter[str] = Counter()
    for _ in range(kills):
        candidates = [fault for fault in rest if fault not in drawn] or rest
        chance.shuffle(candidates)
        fault = min(candidates, key=lambda each: seen[each.target] + seen[each.point])
        seen.update((fault.target, fault.point))
        drawn.append(fault)
    return drawn
