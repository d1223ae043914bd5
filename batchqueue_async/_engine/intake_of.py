"""Which way in a queue has, by what it asks of its items."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchqueue_async._engine.intake import Intake
from batchqueue_async._policies.selectors import FairSelector

if TYPE_CHECKING:
    from batchqueue_async._engine.queue_parts import Parts


def intake_of(parts: Parts) -> Intake:
    """Return the way into a queue; few programs need another than the first one."""
    if parts.byte_budget is not None:
        from batchqueue_async._engine import sized_intake  # noqa: PLC0415

        return sized_intake.SizedIntake(parts, parts.byte_budget)
    if isinstance(parts.config.selector, FairSelector):
        from batchqueue_async._engine import fair_intake  # noqa: PLC0415

        return fair_intake.FairIntake(parts, parts.config.selector)
    return Intake(parts)
