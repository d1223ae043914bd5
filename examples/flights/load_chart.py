"""The chart of the queues' load, as SVG to put into a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from batchqueue_async import BatchQueueStats

from .drawing import EARLY, FAINT, INK, LATE, WIDTH, svg_figure
from .loads import Load

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# A rate is the mean over this many samples.
_SAMPLES = 5


def queue_loads(loads: Sequence[Load]) -> str:
    """Return how full every queue was, and how much it handled, over time."""
    names = list(loads[-1].queues)
    at = [load.at for load in loads]
    with svg_figure(WIDTH, 1.15 * len(names) + 0.4) as (figure, drawn):
        rows = figure.subplots(len(names), 2, sharex=True, squeeze=False)
        for name, (left, right) in zip(names, rows, strict=True):
            stats = [load.queues[name] for load in loads]
            _draw_fill(left, at, stats)
            left.set_title(name, loc="left", fontsize=9, color=INK)
            right.plot(at, _rates(at, stats), color=LATE, linewidth=1.3)
            right.set_ylim(bottom=0)
            right.set_title("thousand items/s", loc="left", fontsize=9, color=FAINT)
        for axes in rows[-1]:
            axes.set_xlabel("seconds")
    return drawn.getvalue()


def _draw_fill(
    axes: Axes, at: Sequence[float], stats: Sequence[BatchQueueStats]
) -> None:
    fullest = [100 * each.top(1)[0].used_fraction for each in stats]
    axes.fill_between(at, fullest, step="post", color=EARLY, alpha=0.75, linewidth=0)
    axes.set_ylim(0, 105)
    axes.set_yticks([0, 100], ["0", "100 %"])


def _rates(at: Sequence[float], stats: Sequence[BatchQueueStats]) -> list[float]:
    handled = [each.handled / 1_000 for each in stats]
    before = [max(0, now - _SAMPLES) for now in range(len(at))]
    return [
        (handled[now] - handled[then]) / (at[now] - at[then]) if now > then else 0.0
        for now, then in enumerate(before)
    ]
