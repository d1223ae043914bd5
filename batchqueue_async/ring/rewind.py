"""How often, and when, a batch is delivered again."""

from __future__ import annotations

import math
from dataclasses import dataclass

from batchqueue_async._wording import shown

from .errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class Rewind:
    """What is done when a handler raises `RewindBatch`.

    Args:
        attempts: How often one batch may be rewound; then the exception handler gets
            the error for the event that raised it. None: for ever.
        pause: Seconds before the batch is delivered again; others run meanwhile.
    """

    attempts: int | None = None
    pause: float = 0.0

    def __post_init__(self) -> None:
        if self.attempts is not None and self.attempts < 0:
            msg = f"attempts must be >= 0 or None, got {shown(self.attempts)}"
            raise InvalidArgument(msg)
        if not (self.pause >= 0 and math.isfinite(self.pause)):
            msg = f"pause must be >= 0, got {shown(self.pause)}"
            raise InvalidArgument(msg)

    def allows(self, rewound: int) -> bool:
        """Whether a batch that was rewound so often may be rewound again."""
        return self.attempts is None or rewound < self.attempts
