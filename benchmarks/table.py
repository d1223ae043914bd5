"""What was measured, as tables: one form for terminal, JSON, page and goals."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

Value = float | str | None


def _rounded(value: float, digits: int, whole_from: float) -> str:
    """Return three or four digits: more would be noise."""
    return f"{value:,.{0 if value >= whole_from else digits}f}"


FORMATS: dict[str, Callable[[Any], str]] = {
    "text": str,
    "percent": lambda value: f"{value:.1%}",
    "times": lambda value: f"{_rounded(value, 2, 20)} x",
    "millions": lambda value: f"{value / 1e6:#.4g}",
    "seconds": lambda value: _rounded(value, 2, 100),
    "micros": lambda value: f"{value * 1e6:,.0f}",
    "millis": lambda value: f"{value * 1e3:,.2f}",
    "nanos": lambda value: f"{value * 1e9:,.0f}",
    "bytes": lambda value: _rounded(value, 1, 100),
    "count": lambda value: f"{value:,.0f}",
}


@dataclass(frozen=True)
class Column:
    """A heading, and how the values below it are written."""

    name: str
    format: str = "text"

    def write(self, value: Value) -> str:
        """Return the value as people read it; nothing for what was not measured."""
        return "" if value is None else FORMATS[self.format](value)


@dataclass
class Table:
    """Rows that belong together; the first column names them."""

    key: str
    title: str
    columns: list[Column]
    rows: list[list[Value]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    samples: dict[str, list[float]] = field(default_factory=dict)
    """What the rows' medians are of, turn by turn, where a goal compares two rows."""

    def add(self, *values: Value) -> None:
        """Add a row."""
        assert len(values) == len(self.columns)
        self.rows.append([*values])

    def value(self, row: str, column: str) -> float:
        """Return one number.

        Raises:
            LookupError: It was not measured.
        """
        at = [each.name for each in self.columns].index(column)
        for values in self.rows:
            if values[0] == row and isinstance(found := values[at], int | float):
                return found
        msg = f"{self.key} has no {column} of {row}"
        raise LookupError(msg)

    def written(self) -> list[list[str]]:
        """Return the rows as people read them."""
        return [
            [
                column.write(value)
                for column, value in zip(self.columns, row, strict=True)
            ]
            for row in self.rows
        ]

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Return what `as_json` was made of."""
        columns = [Column(**column) for column in data["columns"]]
        return cls(**{**data, "columns": columns})


def show(table: Table) -> None:
    """Print a table for people."""
    widths = [
        max(map(len, cells))
        for cells in zip(
            [column.name for column in table.columns], *table.written(), strict=True
        )
    ]
    print(f"\n{table.title}")
    for cells in [[column.name for column in table.columns], *table.written()]:
        print(line(table.columns, cells, widths))
    for note in table.notes:
        print(f"  ({note})")


def line(columns: Sequence[Column], cells: Sequence[str], widths: Sequence[int]) -> str:
    """Return one line; text stands on the left, numbers on the right."""
    return "  ".join(
        cell.ljust(width) if column.format == "text" else cell.rjust(width)
        for column, cell, width in zip(columns, cells, widths, strict=True)
    ).rstrip()
