"""How many producers a ring has."""

from __future__ import annotations

from enum import Enum


class ProducerType(Enum):
    """Which sequencer a ring uses."""

    SINGLE = "single"
    """One producer, publishing in order; saves a little time per event."""
    MULTI = "multi"
    """Any number of producers, which may await between claim and publication."""
