"""Handlers that are out of use, and may still be at work."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from batchqueue_async._engine.handlers.registry import Registration

InFlight: TypeAlias = "Callable[[], Iterable[Registration | None]]"

SLACK: Final = 16
"""So many that are out of use are remembered, however few are in use."""


class LetGo:
    """Registrations that were replaced or removed, as long as anything of them runs."""

    __slots__ = ("_at_work", "known")

    def __init__(self) -> None:
        # Seldom are there any, and never many: an empty tuple takes no memory.
        self.known: Sequence[Registration] = ()
        # How many of them were at work when somebody looked.
        self._at_work = 0

    def add(self, gone: Registration, in_flight: InFlight) -> None:
        """Remember one more; amortised, those that are at rest are forgotten."""
        self.known = (*self.known, gone)
        if len(self.known) > 2 * self._at_work + SLACK:
            self.forget_at_rest({*in_flight()})

    def forget_at_rest(self, in_flight: Collection[Registration | None]) -> None:
        """Keep those that are at work only."""
        self.known = [each for each in self.known if is_at_work(each, in_flight)]
        self._at_work = len(self.known)


def is_at_work(
    registration: Registration, in_flight: Collection[Registration | None]
) -> bool:
    """Whether anything of it is taken and not settled, or somebody is inside."""
    return registration in in_flight or not registration.lock.is_free
