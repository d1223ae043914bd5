"""The charts of the report, as SVG to put into a page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from datetime import date, timedelta
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from .drawing import (
    DEEP,
    EARLY,
    FAINT,
    HALF,
    LATE,
    WIDTH,
    Grid,
    explain_colours,
    heat_map,
    labelled_bars,
    svg_figure,
    write_minutes,
)
from .findings import Delays, Findings, merged

if TYPE_CHECKING:
    from matplotlib.axes import Axes

K = TypeVar("K", bound=Hashable)

# Hundredths of a mile; the weather stations see 10 miles at most.
_VISIBILITIES = {
    "under 1": range(100),
    "1 to 3": range(100, 300),
    "3 to 6": range(300, 600),
    "6 to 10": range(600, 1_000),
    "10 miles": range(1_000, 1_001),
}
_ROUTES = 8
_NAMED_DAYS = 4
_FEW_DAYS = 45


def carriers_by_hour(findings: Findings, airlines: Mapping[str, str]) -> str:
    """Return a heat map: who is late, and when."""
    cells = _frequent(findings.carrier_hours, 0.01)
    hours = _hours(cells)
    flights = _together((carrier, each) for (carrier, _), each in cells.items())
    carriers = sorted(flights, key=lambda carrier: -flights[carrier].measured)
    minutes = _means(cells, carriers, hours)
    with svg_figure(WIDTH, 0.8 + 0.34 * len(carriers)) as (figure, drawn):
        axes = figure.subplots()
        image = heat_map(axes, minutes)
        write_minutes(axes, image, minutes)
        names = [airlines.get(carrier, carrier) for carrier in carriers]
        axes.set_yticks(range(len(names)), names)
        axes.set_xticks(range(len(hours)), [f"{hour}h" for hour in hours])
        explain_colours(figure, image, [axes])
    return drawn.getvalue()


def year_by_hour(findings: Findings) -> str:
    """Return a calendar: every hour of every day, and the cancellations above."""
    cells = findings.day_hours
    hours, days = _hours(cells), _days(cells)
    by_day = _together((day, each) for (day, _), each in cells.items())
    cancelled = [100 * by_day.get(day, Delays()).cancelled_share for day in days]
    with svg_figure(WIDTH, 3.9) as (figure, drawn):
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(1, 3))
        above.bar(range(len(days)), cancelled, width=1.0, color=DEEP)
        above.set_ylabel("cancelled %")
        above.set_facecolor("none")
        if len(days) > _FEW_DAYS:
            _name_worst_days(above, cancelled, days)
        image = heat_map(below, _means(cells, days, hours).T)
        below.set_yticks(range(0, len(hours), 3), [f"{hour}h" for hour in hours[::3]])
        _name_dates(below, days)
        explain_colours(figure, image, [above, below])
    return drawn.getvalue()


def delays_by_visibility(findings: Findings) -> str:
    """Return what bad weather does to delays and to cancellations."""
    groups = {
        name: merged(each for at, each in findings.visibilities.items() if at in seen)
        for name, seen in _VISIBILITIES.items()
    }
    means = [each.mean for each in groups.values()]
    shares = [100 * each.cancelled_share for each in groups.values()]
    with svg_figure(HALF, 3.0) as (figure, drawn):
        left, right = figure.subplots(1, 2, sharey=True)
        left.set_title("mean delay", loc="left", color=FAINT, fontsize=10)
        labelled_bars(left, list(groups), means, LATE, "{:.0f} min")
        right.set_title("cancelled", loc="left", color=FAINT, fontsize=10)
        labelled_bars(right, list(groups), shares, DEEP, "{:.1f} %")
        left.invert_yaxis()
    return drawn.getvalue()


def slowest_and_fastest_routes(findings: Findings) -> str:
    """Return the routes that arrive latest, and earliest, on average."""
    routes = _frequent(findings.routes, 0.2)
    ranked = sorted(routes, key=lambda name: -routes[name].mean)
    shown = ranked[:_ROUTES] + ranked[_ROUTES:][-_ROUTES:]
    minutes = [routes[name].mean for name in shown]
    with svg_figure(HALF, 3.0) as (figure, drawn):
        axes = figure.subplots()
        colours = [LATE if mean > 0 else EARLY for mean in minutes]
        axes.barh(range(len(shown)), minutes, color=colours, height=0.7)
        axes.set_yticks(range(len(shown)), shown, fontsize=8)
        axes.axvline(0, color=FAINT, linewidth=0.8)
        axes.set_xlabel("minutes late on arrival, mean")
        axes.invert_yaxis()
    return drawn.getvalue()


def _name_worst_days(axes: Axes, shares: Sequence[float], days: Sequence[date]) -> None:
    named: list[int] = []
    for index in np.argsort(np.nan_to_num(shares))[::-1].tolist():
        # The names of days that are close would cover each other.
        is_apart = all(abs(index - other) > len(days) / 15 for other in named)
        if shares[index] > 0 and is_apart and len(named) < _NAMED_DAYS:
            named.append(index)
            axes.annotate(
                f"{days[index].day} {days[index]:%b}",
                (index, shares[index]),
                (4, 2),
                textcoords="offset points",
                fontsize=8,
                va="top",
            )


def _name_dates(axes: Axes, days: Sequence[date]) -> None:
    if len(days) > _FEW_DAYS:
        at = [index for index, day in enumerate(days) if day.day == 1]
        axes.set_xticks(at, [f"{days[index]:%b}" for index in at], ha="left")
    else:
        at = list(range(0, len(days), 1 + len(days) // 12))
        axes.set_xticks(at, [f"{days[index].day} {days[index]:%b}" for index in at])


def _means(
    cells: Mapping[tuple[K, int], Delays], rows: Sequence[K], hours: Sequence[int]
) -> Grid:
    nothing = Delays()
    means = [[cells.get((row, hour), nothing).mean for hour in hours] for row in rows]
    return np.array(means, dtype=np.float64)


def _together(delays: Iterable[tuple[K, Delays]]) -> dict[K, Delays]:
    groups: defaultdict[K, list[Delays]] = defaultdict(list)
    for key, each in delays:
        groups[key].append(each)
    return {key: merged(group) for key, group in groups.items()}


def _frequent(delays: Mapping[K, Delays], share: float) -> dict[K, Delays]:
    """Leave out what has so few flights, next to the average, that it is chance."""
    average = sum(each.measured for each in delays.values()) / max(1, len(delays))
    return {
        key: each for key, each in delays.items() if each.measured >= share * average
    }


def _hours(cells: Mapping[tuple[K, int], Delays]) -> list[int]:
    by_hour = _together((hour, each) for (_, hour), each in cells.items())
    used = _frequent(by_hour, 0.02)
    return list(range(min(used), max(used) + 1))


def _days(cells: Mapping[tuple[date, int], Delays]) -> list[date]:
    first, last = min(cells)[0], max(cells)[0]
    return [first + timedelta(days=n) for n in range((last - first).days + 1)]
