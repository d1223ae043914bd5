"""Draws a run's figures: python -m benchmarks.picture file.svg. Needs matplotlib."""

import sys
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from benchmarks.report import Report
from benchmarks.table import Table

# From Okabe and Ito's palette, which the colour-blind can tell apart, too.
OURS, FLOOR, PEER, OTHER = "#0072B2", "#999999", "#E69F00", "#009E73"


def draw(report: Report) -> Figure:
    """Draw what there is: items per second above, growth below."""
    figure = Figure(figsize=(11, 9), layout="constrained")
    (in_loop, bridge), (types, drain_tasks) = figure.subplots(
        2, 2, height_ratios=(5, 3)
    )
    tables = report.tables
    draw_rates(in_loop, tables.get("in loop/asyncio/100"), "In the loop, 100 types")
    draw_rates(bridge, tables.get("bridge/asyncio/1"), "From 1 thread")
    draw_growth(
        types,
        tables.get("growth/types"),
        {
            "ns per item, adaptive partitions": ("adaptive partitions", OURS),
            "ns per item, one partition": ("one partition", OTHER),
            "ns per item, floor": ("floor", FLOOR),
        },
    )
    draw_growth(
        drain_tasks,
        tables.get("growth/drain tasks"),
        {"ns per item": ("a partition per type", OURS)},
    )
    return figure


def draw_rates(axes: Axes, table: Table | None, title: str) -> None:
    """A bar per contender, on a logarithmic scale, the fastest above."""
    axes.set_title(title, loc="left", fontsize=11)
    if table is None:
        return
    column = [each.name for each in table.columns].index("million/s")
    bars = sorted((float(row[column] or 0), str(row[0])) for row in table.rows)
    names = [name for _, name in bars]
    rates = [rate for rate, _ in bars]
    axes.barh(names, rates, color=[colour_of(name) for name in names])
    axes.set_xscale("log")
    axes.set_xlabel("items per second")
    axes.xaxis.set_major_formatter(FuncFormatter(in_words))
    axes.tick_params(axis="y", labelsize=8)
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.spines[["top", "right"]].set_visible(False)


def colour_of(name: str) -> str:
    """Return the colour of the library, its floor, or somebody else."""
    if name.startswith("floor"):
        return FLOOR
    is_ours = name.startswith(("produce", "await produce"))
    return OURS if is_ours else PEER


def in_words(rate: float, _: object = None) -> str:
    """Return 3M for three million, and 20k for twenty thousand."""
    return f"{rate / 1e6:g}M" if rate >= 1e6 else f"{rate / 1e3:g}k"  # noqa: PLR2004 - a million


def draw_growth(
    axes: Axes, table: Table | None, curves: dict[str, tuple[str, str]]
) -> None:
    """A curve per column; flat is good."""
    if table is None:
        return
    numbers = [str(row[0]) for row in table.rows]
    for column, (label, colour) in curves.items():
        costs = [table.value(number, column) * 1e9 for number in numbers]
        axes.plot(numbers, costs, color=colour, marker="o", label=label)
    axes.set_xlabel(table.columns[0].name)
    axes.set_ylabel("ns per item")
    axes.set_ylim(0, 1.1 * axes.get_ylim()[1])
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


def save(report: Report, file: Path) -> None:
    """Draw into a file."""
    # Text stays text, and the same data make the same file.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "benchmarks"}):
        metadata = {"Date": None} if file.suffix == ".svg" else None
        draw(report).savefig(file, metadata=metadata, facecolor="white", dpi=130)


def main() -> None:
    """Draw the last run's figures into the file that is named."""
    match sys.argv[1:]:
        case [name]:
            save(Report.load(), Path(name))
        case _:
            sys.exit("usage: python -m benchmarks.picture FILE")
    print(f"saved {name}")


if __name__ == "__main__":
    main()
