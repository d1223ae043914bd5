"""The argument that stands for the deadline which was declared."""

from __future__ import annotations

from enum import Enum
from typing import Final, Literal, TypeAlias


class Declared(Enum):
    """One value, because None is one of the deadlines that may be asked for."""

    SHUTDOWN_TIMEOUT = "shutdown_timeout"

    def __repr__(self) -> str:
        return self.value


SHUTDOWN_TIMEOUT: Final = Declared.SHUTDOWN_TIMEOUT
"""As declared: with `shutdown_timeout`."""

Timeout: TypeAlias = float | Literal[Declared.SHUTDOWN_TIMEOUT] | None
"""Seconds, None for no limit, or what was declared."""
