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
    """Files for the demo's `--data`, counted without Spark and without the demo."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        with input_files(None, None) as whole:
            shutil.copy(whole.airlines, folder)
            _thin_out(whole.flights, folder / "flights.csv", EVERY_FLIGHT)
            _thin_out(whole.weather, folder / "weather.csv", EVERY_OBSERVATION)
        months = self._months()
        sums = accumulate(months, Counter.__add__, initial=Counter[str]())
        self._first = list(sums)

    @property
    def months(self) -> int:
        """How many months, and micro-batches, there are."""
        return len(self._first) - 1

    def metrics(self, months: int) -> Counter[str]:
        """The events that each metric must have after so many months."""
        counts = Counter(self._first[months])
        del counts[CANCELLATIONS]
        return counts

    def cancelled(self, months: int) -> Counter[str]:
        """The rows that the table of cancellations must have after so many months."""
        return Counter({CANCELLATIONS: self._first[months][CANCELLATIONS]})

    def _months(self) -> list[Counter[str]]:
        months: dict[str, Counter[str]] = {}
        for row in _rows(self.folder / "flights.csv"):
            month = months.setdefault(f"{int(row['month']):02}", Counter())
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
            # As the demo divides them: by the hour in UTC.
            month = months[row["time_hour"][5:7]]
            for value in ("Temperature", "Precipitation", "Visibility"):
                month[f"Origin{value}"] += 1
        return [months[number] for number in sorted(months)]


def _thin_out(source: Path, target: Path, every: int) -> None:
    with source.open() as lines, target.open("w") as kept:
        kept.write(next(lines))
        kept.writelines(islice(lines, 0, None, every))


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with path.open(newline="") as lines:
        yield from csv.DictReader(lines)
