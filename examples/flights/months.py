"""Divides the input into months: the files of a stream, a micro-batch each."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

from .data import InputFiles

_Row: TypeAlias = dict[str, str]


def divide(files: InputFiles, folder: Path) -> None:
    """Write `flights/<month>.csv` and `weather/<month>.csv` into a folder."""
    for path in (files.flights, files.weather):
        target = folder / path.stem
        target.mkdir()
        _divide(path, target)
        # Spark takes the oldest file first.
        for age, month in enumerate(sorted(target.iterdir())):
            os.utime(month, (age, age))


def _divide(path: Path, target: Path) -> None:
    writers: dict[str, csv.DictWriter[str]] = {}
    with ExitStack() as stack:
        rows = csv.DictReader(stack.enter_context(path.open(newline="")))
        columns = rows.fieldnames or ()
        month_of = _month_of(columns)
        for row in rows:
            month = month_of(row)
            if month not in writers:
                file = stack.enter_context((target / f"{month}.csv").open("w"))
                writers[month] = csv.DictWriter(file, columns, lineterminator="\n")
                writers[month].writeheader()
            writers[month].writerow(row)


def _month_of(columns: Any) -> Callable[[_Row], str]:  # noqa: ANN401
    if {"year", "month"} <= set(columns):
        return lambda row: f"{row['year']:0>4}-{row['month']:0>2}"
    return lambda row: row["time_hour"][:7]
