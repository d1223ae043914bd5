"""What is measured: windows of one hour that combine, and how events become them.

A measurement is a window of one. The same type therefore goes from the producer
through L1 and L2 into the database, and merging is the same step everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, Self

from .events import Arrival, Cancellation, Departure, Event, Observation


@dataclass(slots=True)
class Window:
    """What one key (a carrier, an airport, a route) did in one hour.

    Attributes:
        key: Whose window it is.
        hour: Whole hours since 1970 (UTC).
        count: How many events fell into it.
        measured: How many of them came with a value.
        total: The sum of the values.
        smallest: The smallest value, if there was one.
        largest: The largest value, if there was one.
    """

    key: str
    hour: int
    count: int
    measured: int
    total: int
    smallest: int | None
    largest: int | None

    @classmethod
    def of(cls, key: str, hour: int, value: int | None = None) -> Self:
        """Return the window of a single event."""
        if value is None:
            return cls(key, hour, 1, 0, 0, None, None)
        return cls(key, hour, 1, 1, value, value, value)

    def combine(self, other: Window) -> None:
        """Take up another window of the same key and hour."""
        self.count += other.count
        self.measured += other.measured
        self.total += other.total
        if other.smallest is not None and other.largest is not None:
            if self.smallest is None or other.smallest < self.smallest:
                self.smallest = other.smallest
            if self.largest is None or other.largest > self.largest:
                self.largest = other.largest


class CarrierDeparture(Window):
    """Departures of a carrier: its delays in minutes."""

    __slots__ = ()


class OriginDeparture(Window):
    """Departures from an airport: their delays in minutes."""

    __slots__ = ()


class RouteDeparture(Window):
    """Departures on a route: their delays in minutes."""

    __slots__ = ()


class CarrierArrival(Window):
    """Arrivals of a carrier: its delays in minutes."""

    __slots__ = ()


class OriginArrival(Window):
    """Arrivals of flights from an airport: their delays in minutes."""

    __slots__ = ()


class RouteArrival(Window):
    """Arrivals on a route: their delays in minutes."""

    __slots__ = ()


class CarrierCancellation(Window):
    """Cancellations of a carrier."""

    __slots__ = ()


class OriginCancellation(Window):
    """Cancellations at an airport."""

    __slots__ = ()


class RouteCancellation(Window):
    """Cancellations on a route."""

    __slots__ = ()


class OriginTemperature(Window):
    """Temperatures at an airport, in hundredths of a degree Fahrenheit."""

    __slots__ = ()


class OriginPrecipitation(Window):
    """Rain and snow at an airport, in hundredths of an inch."""

    __slots__ = ()


class OriginVisibility(Window):
    """Visibility at an airport, in hundredths of a mile."""

    __slots__ = ()


METRICS: tuple[type[Window], ...] = (
    CarrierDeparture,
    OriginDeparture,
    RouteDeparture,
    CarrierArrival,
    OriginArrival,
    RouteArrival,
    CarrierCancellation,
    OriginCancellation,
    RouteCancellation,
    OriginTemperature,
    OriginPrecipitation,
    OriginVisibility,
)


def metrics_of(events: Iterable[Event]) -> Iterator[Window]:
    """Return what the events add to each metric: the fan-out, before the queue."""
    return chain.from_iterable(_FAN_OUT[type(event)](event) for event in events)


def _of_departure(event: Departure) -> tuple[Window, ...]:
    hour, delay = event.hour, event.delay
    return (
        CarrierDeparture.of(event.carrier, hour, delay),
        OriginDeparture.of(event.origin, hour, delay),
        RouteDeparture.of(f"{event.origin}-{event.dest}", hour, delay),
    )


def _of_arrival(event: Arrival) -> tuple[Window, ...]:
    hour, delay = event.hour, event.delay
    return (
        CarrierArrival.of(event.carrier, hour, delay),
        OriginArrival.of(event.origin, hour, delay),
        RouteArrival.of(f"{event.origin}-{event.dest}", hour, delay),
    )


def _of_cancellation(event: Cancellation) -> tuple[Window, ...]:
    return (
        CarrierCancellation.of(event.carrier, event.hour),
        OriginCancellation.of(event.origin, event.hour),
        RouteCancellation.of(f"{event.origin}-{event.dest}", event.hour),
    )


def _of_observation(event: Observation) -> tuple[Window, ...]:
    return (
        OriginTemperature.of(event.origin, event.hour, event.temperature),
        OriginPrecipitation.of(event.origin, event.hour, event.precipitation),
        OriginVisibility.of(event.origin, event.hour, event.visibility),
    )


_FAN_OUT: dict[type[Event], Callable[[Any], tuple[Window, ...]]] = {
    Departure: _of_departure,
    Arrival: _of_arrival,
    Cancellation: _of_cancellation,
    Observation: _of_observation,
}
