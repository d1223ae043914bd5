"""How often, and after which waits, a failed batch is tried again."""

from __future__ import annotations

from dataclasses import dataclass

from .backoff import doubled
from .validation import (
    refuse,
    require_at_least,
    require_instance,
    require_int,
    require_positive,
)
from .value import Value


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Retry(Value):
    """When a batch whose handler raised is given to it again.

    With more than one attempt a handler may see items twice: delivery is at least
    once. The default tries once: at most once.

    Attributes:
        attempts: How many times a batch is given to its handler at most.
        wait_initial: Longest wait in seconds before the second attempt; it doubles
            for each further one.
        wait_max: Seconds that no wait exceeds.
        deadline: Seconds from the first attempt after which none starts, or None.
        retry_on: Exceptions worth another attempt; any other fails at once.
        split: Halve a batch that failed for good, until what fails is isolated and
            every other item is handled.
    """

    attempts: int = 1
    wait_initial: float = 0.1
    wait_max: float = 5.0
    deadline: float | None = None
    retry_on: tuple[type[Exception], ...] = (Exception,)
    split: bool = False

    def __post_init__(self) -> None:
        require_int("attempts", self.attempts, at_least=1)
        require_at_least("wait_initial", self.wait_initial, 0)
        require_at_least("wait_max", self.wait_max, 0)
        if self.wait_max < self.wait_initial:
            refuse("wait_max", f">= wait_initial ({self.wait_initial})", self.wait_max)
        if self.deadline is not None:
            require_positive("deadline", self.deadline)
        if not _are_exceptions(self.retry_on):
            rule = "a tuple of Exception classes"
            refuse("retry_on", rule, self.retry_on, TypeError)
        require_instance("split", self.split, bool, "a bool")

    def wait_before(self, attempt: int, random: float) -> float:
        """Return the seconds to wait before an attempt: exponential, fully jittered.

        Args:
            attempt: The attempt that follows the wait; 2 is the first retry.
            random: A random number from 0 up to, not including, 1.
        """
        require_int("attempt", attempt, at_least=2)
        return random * doubled(self.wait_initial, attempt - 2, self.wait_max)


def _are_exceptions(value: object) -> bool:
    # Not BaseException: a retried cancellation would keep a queue from closing.
    return isinstance(value, tuple) and all(
        isinstance(each, type) and issubclass(each, Exception) for each in value
    )
