"""What the soak found: counts by queue, errors that nobody caught, and memory."""

# ruff: noqa: T201  # a program prints

import logging
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Self

from tests.stress.memory import Memory

ENDS = (
    "accepted",
    "handled",
    "failed",
    "dropped",
    "returned",
    "unhandled",
    "rejected",
)
BAD = (
    "lost",
    "doubled",
    "reordered",
    "entered twice",
    "after close",
    "wrong accounts",
)

ALLOWED_GROWTH = 0.10
"""Of the resident set after the warm-up, to the end; 8 MB are never too much."""


class _Listener(logging.Handler):
    """asyncio logs what it cannot raise: lost exceptions, destroyed tasks."""

    def __init__(self, errors: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._errors = errors

    def emit(self, record: logging.LogRecord) -> None:
        self._errors.append(self.format(record))


@dataclass
class Verdict:
    """All is well if nothing bad was counted, no error seen, and memory is flat."""

    memory: Memory = field(default_factory=Memory)
    errors: list[str] = field(default_factory=list)
    queues: dict[str, Counter[str]] = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)

    @classmethod
    @contextmanager
    def watching(cls) -> Iterator[Self]:
        """Make one that sees the errors of tasks and of threads."""
        verdict = cls()
        listener = _Listener(verdict.errors)
        logging.getLogger("asyncio").addHandler(listener)
        former, threading.excepthook = threading.excepthook, verdict._thread_failed
        try:
            yield verdict
        except Exception:
            logging.getLogger("asyncio").exception("the soak ended early")
        finally:
            threading.excepthook = former
            logging.getLogger("asyncio").removeHandler(listener)

    def add(self, name: str, counts: Counter[str], examples: list[str]) -> None:
        self.queues[name] = counts
        self.examples += [f"{name}: {each}" for each in examples[:5]]

    def told(self) -> bool:
        """Print everything; returns whether all is well."""
        print(f"{'':10}" + "".join(f"{column:>11}" for column in ENDS))
        for name, counts in self.queues.items():
            print(f"{name:10}" + "".join(f"{counts[column]:>11}" for column in ENDS))
        total: Counter[str] = sum(self.queues.values(), Counter())
        print(f"queues made, fed and shut down by a deadline: {total['lives']}")
        print(f"left in cancel scopes and by cancellations: {total['ends']}")
        print(", ".join(f"{bad}: {total[bad]}" for bad in BAD))
        for finding in (*self.examples, *self.errors[:20]):
            print("   ", finding)
        first, last, slope = self.memory.growth()
        is_flat = last - first < max(8.0, ALLOWED_GROWTH * first)
        print(f"memory {first:.1f} -> {last:.1f} MB, {slope:+.2f} MB a minute")
        is_good = (
            is_flat
            and not self.errors
            and not any(total[bad] for bad in BAD)
            and total["accepted"] > 0
        )
        print("good" if is_good else "NOT GOOD")
        return is_good

    def _thread_failed(self, what: threading.ExceptHookArgs) -> None:
        name = what.thread.name if what.thread else "a thread"
        self.errors.append(f"{name} failed: {what.exc_value!r}")
