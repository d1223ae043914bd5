"""What happened, as Spark's rows tell it: one typed event each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(slots=True)
class _FlightEvent:
    """Fields that all events of a flight share.

    Attributes:
        carrier: The airline's code.
        flight: The flight number.
        origin: The airport in New York.
        dest: The airport of destination.
        day: The local date, in days since 1970.
        hour: When the flight was scheduled, in whole hours since 1970 (UTC).
    """

    carrier: str
    flight: int
    origin: str
    dest: str
    day: int
    hour: int


@dataclass(slots=True)
class Departure(_FlightEvent):
    """A flight left; `delay` in minutes, negative when it left early."""

    delay: int | None


@dataclass(slots=True)
class Arrival(_FlightEvent):
    """A flight came in; a diverted one has no `delay`."""

    delay: int | None


@dataclass(slots=True)
class Cancellation(_FlightEvent):
    """A flight that was scheduled never left."""


@dataclass(slots=True)
class Observation:
    """The weather at an airport in one hour, in hundredths.

    Whole numbers add up to the same sum in any order, which floats don't: only so
    can the database's sums equal Spark's exactly.

    Attributes:
        origin: The airport in New York.
        hour: Whole hours since 1970 (UTC).
        temperature: Hundredths of a degree Fahrenheit, if it was measured.
        precipitation: Hundredths of an inch, if it was measured.
        visibility: Hundredths of a mile, if it was measured.
    """

    origin: str
    hour: int
    temperature: int | None
    precipitation: int | None
    visibility: int | None


Event: TypeAlias = Departure | Arrival | Cancellation | Observation
