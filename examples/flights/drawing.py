"""How the report's charts look, and the shapes that they share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from typing import TYPE_CHECKING, TypeAlias

import matplotlib as mpl
import numpy as np
from matplotlib.colors import LinearSegmentedColormap, TwoSlopeNorm
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

Grid: TypeAlias = np.ndarray[tuple[int, int], np.dtype[np.float64]]

WIDTH, HALF = 10.4, 5.0
INK, FAINT, PAPER, LINE = "#1d2b36", "#6b7780", "#fdfcf9", "#e4e0d6"
EARLY, LATE, DEEP = "#3a7ca5", "#e07a3f", "#7a1f3d"

_EARLIEST = -10
_LATEST_AT_LEAST = 20
_COLOURS = LinearSegmentedColormap.from_list(
    "delays",
    [
        (0.00, EARLY),
        (0.50, "#f3efe4"),  # neither early nor late
        (0.65, "#f2c078"),
        (0.80, LATE),
        (0.92, "#b8324f"),
        (1.00, DEEP),
    ],
)
# Above this share of the scale a cell is too dark for dark text.
_DARK = 0.85


@contextmanager
def svg_figure(width: float, height: float) -> Iterator[tuple[Figure, StringIO]]:
    """Offer a figure of so many inches; it is drawn as SVG at the end."""
    drawn = StringIO()
    with mpl.rc_context(
        {
            "font.size": 10,
            "text.color": INK,
            "axes.edgecolor": LINE,
            "axes.labelcolor": FAINT,
            "axes.facecolor": PAPER,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "figure.facecolor": "none",
            "xtick.color": FAINT,
            "ytick.color": FAINT,
            # Text stays text, in the page's own font.
            "svg.fonttype": "none",
        }
    ):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure, drawn
        figure.savefig(drawn, format="svg")


def heat_map(axes: Axes, minutes: Grid) -> AxesImage:
    """Colour each cell by its minutes of delay; NaN stays empty."""
    known = minutes[np.isfinite(minutes)]
    latest = float(np.percentile(known, 98)) if known.size else 0.0
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return axes.imshow(
        minutes,
        cmap=_COLOURS,
        norm=TwoSlopeNorm(0, _EARLIEST, max(_LATEST_AT_LEAST, latest)),
        aspect="auto",
        interpolation="nearest",
    )


def write_minutes(axes: Axes, image: AxesImage, minutes: Grid) -> None:
    """Write its number into each cell of a heat map."""
    shades = np.asarray(image.norm(minutes))
    for (row, column), mean in np.ndenumerate(minutes):
        if np.isfinite(mean):
            axes.text(
                column,
                row,
                f"{round(mean)}",
                ha="center",
                va="center",
                color=PAPER if shades[row, column] > _DARK else INK,
                fontsize=8,
            )


def explain_colours(figure: Figure, image: AxesImage, axes: Sequence[Axes]) -> None:
    """Put the scale of a heat map beside it."""
    scale = figure.colorbar(image, ax=axes, pad=0.01, aspect=30, extend="both")
    scale.set_label("minutes late on departure, mean")
    scale.outline.set_visible(False)


def labelled_bars(
    axes: Axes, names: Sequence[str], values: Sequence[float], colour: str, text: str
) -> None:
    """Draw horizontal bars that end in their value; NaN has neither."""
    bars = axes.barh(names, np.nan_to_num(values), color=colour, height=0.7)
    labels = ["" if np.isnan(value) else text.format(value) for value in values]
    axes.bar_label(bars, labels, padding=3, fontsize=9)
    known = [value for value in values if np.isfinite(value)] or [1.0]
    room = 0.35 * (max(map(abs, known)) or 1.0)
    lowest = min(known)
    axes.set_xlim(lowest - room if lowest < 0 else 0, max(0.0, *known) + room)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
