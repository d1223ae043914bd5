"""A small year of flights for the demo, and what its tables must hold of it."""

import csv
import shutil
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate, islice
from pathlib import Path

from examples.flights.data import input_files

EVERY_FLIGHT, EVERY_OBSERVATION = 100, 24
"""Of the real year's rows, one in so many."""

CANCELLATIONS = "cancellations"
"""The name under which the rows of that table are counted, beside the metrics'."""


class Year:
    """Files for the demo's `--data`, counted without Spark and without the demo.

    They have the first `months`: so many micro-batches are there.
    """

    def __init__(self, folder: Path, months: int = 12) -> None:
        self.folder = folder
        self.months = months
        folder.mkdir()
        with input_files(None, None) as whole:
            shutil.copy(whole.airlines, folder)
            for source, every in (
                (whole.flights, EVERY_FLIGHT),
                (whole.weather, EVERY_OBSERVATION),
            ):
                _thin_out(source, folder / source.name, every, months)
        counts = self._counts()
        sums = accumulate(counts, Counter.__add__, initial=Counter[str]())
        self._first = list(sums)

    def metrics(self, months: int) -> Counter[str]:
        """The events that each metric must have after so many months."""
        counts = Counter(self._first[months])
        del counts[CANCELLATIONS]
        return counts

    def cancelled(self, months: int) -> Counter[str]:
        """The rows that the table of cancellations must have after so many months."""
        return Counter({CANCELLATIONS: self._first[months][CANCELLATIONS]})

    def _counts(self) -> list[Counter[str]]:
        months: dict[str, Counter[str]] = {}
        for row in _rows(self.folder / "flights.csv"):
            month = months.setdefault(_month_of(row), Counter())
            left, came = row["dep_time"] != "NA", row["arr_time"] != "NA"
            month[CANCELLATIONS] += not left
            for event, happened in (
                ("Departure", left),
                ("Cancellation", not left),
                ("Arrival", came),
            ):
                for dimension in ("Carrier", "Origin", "Route"):
                    month[f"{dimension}{event}"] += happened
        for row in _rows(self.folder / "weather.csv"):
            month = months[_month_of(row)]
            for value in ("Temperature", "Precipitation", "Visibility"):
                month[f"Origin{value}"] += 1
        return [months[number] for number in sorted(months)]


def _thin_out(source: Path, target: Path, every: int, months: int) -> None:
    with source.open(newline="") as lines, target.open("w", newline="") as kept:
        rows = csv.DictReader(lines)
        writer = csv.DictWriter(kept, rows.fieldnames or ())
        writer.writeheader()
        few = islice(rows, 0, None, every)
        writer.writerows(row for row in few if int(_month_of(row)) <= months)


def _month_of(row: dict[str, str]) -> str:
    """The month, as the demo divides them: a flight's own, an observation's in UTC."""
    is_flight = "carrier" in row
    return f"{int(row['month']):02}" if is_flight else row["time_hour"][5:7]


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with path.open(newline="") as lines:
        yield from csv.DictReader(lines)
