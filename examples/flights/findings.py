"""What the report tells, asked from the database that the pipeline has filled."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

from .database import Connect, Row, connected

_NEW_YORK = ZoneInfo("America/New_York")
_EPOCH = date(1970, 1, 1)
_WORST = 10

_WINDOWS = """
    SELECT metric, key, hour, count, measured, total FROM metrics
    WHERE metric IN ('CarrierDeparture', 'CarrierCancellation')"""

_ROUTES = """
    SELECT metric, key, SUM(count), SUM(measured), SUM(total) FROM metrics
    WHERE metric = 'RouteArrival' GROUP BY metric, key"""

_VISIBILITY = """
    SELECT weather.total, flights.metric, flights.count, flights.measured,
        flights.total
    FROM metrics AS weather JOIN metrics AS flights
        ON flights.key = weather.key AND flights.hour = weather.hour
    WHERE weather.metric = 'OriginVisibility'
        AND flights.metric IN ('OriginDeparture', 'OriginCancellation')"""

_WORST_FLIGHTS = f"""
    SELECT day, delay, carrier, flight, origin, dest FROM top_delays
    WHERE kind = 'Departure' ORDER BY delay DESC, day, rank LIMIT {_WORST}"""


@dataclass(slots=True)
class Delays:
    """Flights whose delay is known, their minutes, and flights that never left."""

    measured: int = 0
    total: int = 0
    cancelled: int = 0

    @property
    def mean(self) -> float:
        """Minutes; NaN if nothing was measured."""
        return self.total / self.measured if self.measured else float("nan")

    @property
    def cancelled_share(self) -> float:
        """The cancelled among those that were scheduled, from 0.0 to 1.0."""
        scheduled = self.measured + self.cancelled
        return self.cancelled / scheduled if scheduled else float("nan")

    def add(self, metric: str, count: int, measured: int, total: int) -> None:
        """Take up a window."""
        if metric.endswith("Cancellation"):
            self.cancelled += count
        else:
            self.measured += measured
            self.total += total


def _none() -> defaultdict[Any, Delays]:
    return defaultdict(Delays)


@dataclass(frozen=True, slots=True)
class WorstFlight:
    """One of the longest delays of all."""

    day: date
    delay: int
    flight: str
    route: str


@dataclass(frozen=True, slots=True)
class Findings:
    """Delays by everything that the charts show; dates and hours are local.

    Attributes:
        carrier_hours: Departures by carrier and hour of the day.
        day_hours: Departures by date and hour of the day.
        visibilities: Departures by hundredths of a mile that one could see.
        routes: Arrivals by route.
        worst: The longest delays of all departures.
    """

    carrier_hours: defaultdict[tuple[str, int], Delays] = field(default_factory=_none)
    day_hours: defaultdict[tuple[date, int], Delays] = field(default_factory=_none)
    visibilities: defaultdict[int, Delays] = field(default_factory=_none)
    routes: defaultdict[str, Delays] = field(default_factory=_none)
    worst: list[WorstFlight] = field(default_factory=list)


async def find(connect: Connect) -> Findings:
    """Ask the database."""
    found = Findings()
    async with connected(connect) as database:
        async for metric, carrier, hour, *numbers in database.rows(_WINDOWS):
            day, hour_of_day = _local(hour)
            found.carrier_hours[carrier, hour_of_day].add(metric, *numbers)
            found.day_hours[day, hour_of_day].add(metric, *numbers)
        async for visibility, metric, *numbers in database.rows(_VISIBILITY):
            found.visibilities[visibility].add(metric, *numbers)
        async for metric, route, *numbers in database.rows(_ROUTES):
            # PostgreSQL's sums of BIGINT are of another type.
            found.routes[route].add(metric, *map(int, numbers))
        async for row in database.rows(_WORST_FLIGHTS):
            found.worst.append(_worst_flight(row))
    return found


def merged(delays: Iterable[Delays]) -> Delays:
    """Return several delays as one."""
    whole = Delays()
    for each in delays:
        whole.measured += each.measured
        whole.total += each.total
        whole.cancelled += each.cancelled
    return whole


@lru_cache(maxsize=10_000)
def _local(hour: int) -> tuple[date, int]:
    local = datetime.fromtimestamp(hour * 3600, UTC).astimezone(_NEW_YORK)
    return local.date(), local.hour


def _worst_flight(row: Row) -> WorstFlight:
    day, delay, carrier, flight, origin, dest = row
    return WorstFlight(
        _EPOCH + timedelta(days=day),
        delay,
        f"{carrier} {flight}",
        f"{origin}-{dest}",
    )
