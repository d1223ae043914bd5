"""Draws a run before and after: python -m benchmarks.rebalancing_picture file.svg.

A queue starts with partitions dealt out in turn; a round moves them by what they cost;
later other types become hot. Needs matplotlib.
"""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator, StrMethodFormatter

from batchqueue_async import CostBalancer
from benchmarks.rebalancing import DEAR, SKIP_BELOW, Run, Sample
from benchmarks.skewed_load import DRAIN_TASKS, with_other_hot_types, zipf

INTERVAL = 3.0
CHANGE_AT = 8.0
WINDOW = 0.5
# From Okabe and Ito's palette, which the colour-blind can tell apart, too.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7")
GREY = "#666666"


async def record() -> list[Sample]:
    """Run before, after, and through a change of the hot types."""
    run = Run(CostBalancer(SKIP_BELOW), INTERVAL)
    first = zipf(DEAR)
    workloads = [first, with_other_hot_types(first, seed=1)]
    await run.under(workloads, CHANGE_AT, every=0.05)
    return run.samples


def draw(samples: Sequence[Sample]) -> Figure:
    """Draw the loads, and below them what they allow."""
    figure = Figure(figsize=(8, 5.2), layout="constrained")
    loads, rate = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    draw_loads(loads, samples)
    draw_rate(rate, samples)
    mark_rounds([loads, rate], samples)
    for axes in (loads, rate):
        axes.axvline(CHANGE_AT, color="black", linewidth=1)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_ylim(bottom=0)
        axes.set_xlim(0, samples[-1].at)
    rate.set_xlabel("seconds")
    return figure


def draw_loads(axes: Axes, samples: Sequence[Sample]) -> None:
    """One line per drain task; 1 is a fair share."""
    times = [each.at for each in samples]
    loads = [each.workload.loads(each.owners) for each in samples]
    for number, colour in enumerate(COLOURS):
        axes.step(
            times,
            [DRAIN_TASKS * each[number] for each in loads],
            where="post",
            color=colour,
            linewidth=2,
            label=f"drain task {number}",
        )
    axes.set_ylabel("load\n(1 = a fair share)")
    axes.yaxis.set_major_locator(MultipleLocator(0.5))
    axes.set_ylim(top=1.15 * DRAIN_TASKS * max(map(max, loads)))
    axes.legend(
        ncols=DRAIN_TASKS, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1)
    )
    top = axes.get_ylim()[1]
    axes.text(0.1, top, "before", va="top", color=GREY)
    behind = {"facecolor": "white", "edgecolor": "none", "pad": 1}
    label = "other types become hot"
    axes.text(CHANGE_AT + 0.1, top, label, va="top", bbox=behind)


def draw_rate(axes: Axes, samples: Sequence[Sample]) -> None:
    """Items per second over a moving window, and the perfect split's."""
    times, rates = [], []
    for last in samples:
        first = next(each for each in samples if each.at >= last.at - WINDOW)
        if last.at - first.at > WINDOW / 2:
            written = sum(last.written) - sum(first.written)
            times.append((first.at + last.at) / 2)
            rates.append(written / (last.at - first.at))
    axes.plot(times, rates, color="black", linewidth=1.5)
    axes.fill_between(times, rates, color="#DDDDDD")
    axes.step(
        [each.at for each in samples],
        [each.workload.bound for each in samples],
        where="post",
        color="#D55E00",
        linestyle="--",
    )
    bound = samples[0].workload.bound
    axes.text(0.1, 1.03 * bound, "perfect split", va="bottom", color="#D55E00")
    axes.set_ylabel("items per second")
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set_ylim(top=1.3 * max(rates))


def mark_rounds(both: Sequence[Axes], samples: Sequence[Sample]) -> None:
    """A line per round that moved something, with how many."""
    done = 0
    for sample in samples:
        if sample.rounds > done and sample.moved:
            for axes in both:
                axes.axvline(sample.at, color=GREY, linewidth=1, linestyle=":")
            both[0].annotate(
                f" {sample.moved} moved",
                (sample.at, 0.87 * both[0].get_ylim()[1]),
                color=GREY,
            )
        done = sample.rounds


def main() -> None:
    """Run, draw, and save to the file that is named."""
    match sys.argv[1:]:
        case [name]:
            target = Path(name)
        case _:
            sys.exit("usage: python -m benchmarks.rebalancing_picture FILE")
    # Text stays text, and the same data make the same file.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "rebalancing"}):
        figure = draw(asyncio.run(record()))
        metadata = {"Date": None} if target.suffix == ".svg" else None
        figure.savefig(target, metadata=metadata, facecolor="white", dpi=130)
    print(f"saved {target}")


if __name__ == "__main__":
    main()
