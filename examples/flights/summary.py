"""Tables for the terminal: what the queues do, and what the proof came to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from batchqueue_async import BatchQueueStats, SyncBatchQueue
from batchqueue_async.telemetry import open_view

from .loads import LoadRecorder
from .proof import Check

# What a table needs where no terminal says how wide it is.
_WIDTH = 120


def open_console() -> Console:
    """Return a console for standard output, be it a terminal or a file."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(width=_WIDTH, highlight=False)


@contextmanager
def live_view(console: Console, recorder: LoadRecorder) -> Iterator[None]:
    """Show the queues while they work; silent where output is no terminal."""
    if not console.is_terminal:
        yield
        return
    with Live(
        get_renderable=lambda: _live_table(recorder),
        console=console,
        refresh_per_second=8,
        transient=True,
    ):
        yield


@contextmanager
def shown_at(
    path: Path | None, queues: Mapping[str, SyncBatchQueue[Any]]
) -> Iterator[None]:
    """Let `batchqueue top PATH` look at them while they work, if there is a path."""
    if path is None:
        yield
        return
    with open_view(list(queues.values()), path):
        yield


def queue_table(recorder: LoadRecorder) -> Table:
    """Return what each queue did."""
    table = _table(
        "Queue",
        "Items",
        "Partitions",
        "Drain tasks",
        "Cycles",
        "Peak waiting",
        "Dropped",
        "Failed",
    )
    for name, stats in recorder.latest.queues.items():
        table.add_row(
            name,
            f"{stats.handled:,}",
            str(len(stats.partitions)),
            str(len(stats.drain_tasks)),
            f"{sum(task.cycles for task in stats.drain_tasks):,}",
            f"{recorder.peak(name):,}",
            _alarming(stats.dropped + stats.rejected),
            _alarming(stats.failed + stats.unhandled + stats.returned),
        )
    return table


def proof_table(checks: Iterable[Check]) -> Table:
    """Return the comparison with Spark, a line for each metric."""
    table = _table("Proof: by Spark SQL", "Groups", "Count", "Sum", "Differing")
    for check in checks:
        table.add_row(
            check.name,
            f"{check.rows:,}",
            f"{check.count:,}",
            "" if check.total is None else f"{check.total:,}",
            _alarming(check.differing),
        )
    return table


def _live_table(recorder: LoadRecorder) -> Group:
    table = _table("Queue", "", "Waiting", "Handled", "Items/s", "Cycles", "Dropped")
    for name, stats in recorder.latest.queues.items():
        table.add_row(
            name,
            _fill_bar(stats),
            f"{stats.waiting:,}",
            f"{stats.handled:,}",
            f"{recorder.rate(name):,.0f}",
            f"{sum(task.cycles for task in stats.drain_tasks):,}",
            _alarming(stats.dropped + stats.rejected),
        )
    elapsed = Text(f"{recorder.latest.at:6.1f} s   Ctrl-C drains and stops", "dim")
    return Group(table, elapsed)


def _fill_bar(stats: BatchQueueStats) -> ProgressBar:
    fullest = stats.top(1)[0]
    return ProgressBar(fullest.capacity, fullest.waiting, width=14)


def _table(first: str, *columns: str) -> Table:
    table = Table(box=None, pad_edge=False, collapse_padding=True, header_style="bold")
    table.add_column(first, no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _alarming(number: int) -> Text:
    return Text(f"{number:,}", "bold red" if number else "")
