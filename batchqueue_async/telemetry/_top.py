"""The live view in a terminal: one sample, drawn with rich."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any, Final

from rich.bar import Bar
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from batchqueue_async.telemetry._feed import Sample

MOST_ROWS: Final = 20
_FULL, _HIGH = 0.9, 0.6


def show(samples: Iterable[Sample], console: Console, *, once: bool = False) -> None:
    """Draw samples as they come, until they end; only the second one if `once`."""
    if once:
        # The first one knows no rates.
        for number, sample in enumerate(samples):
            if number == 1:
                console.print(drawn(sample))
                return
        return
    with Live(console=console, screen=console.is_terminal, auto_refresh=False) as live:
        for sample in samples:
            live.update(drawn(sample), refresh=True)


def drawn(sample: Sample) -> RenderableType:
    """Return the picture of one sample."""
    queues: Sequence[Any] = sample["queues"]
    parts: list[RenderableType] = [_queues(queues, sample["queue_count"])]
    if queues:
        # The one with the most items waiting.
        parts.append(_details(queues[0]))
    parts.append(_events(sample["events"]))
    return Group(*parts)


def _queues(queues: Sequence[Any], count: int) -> RenderableType:
    table = Table(expand=True, box=None, header_style="bold")
    table.add_column("queue", ratio=2, min_width=10, no_wrap=True)
    for name in ("in/s", "out/s", "waiting"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("fullest", ratio=2, min_width=7)
    for name in ("refused", "dropped", "failed", "retried"):
        table.add_column(name, justify="right", no_wrap=True)
    for queue in queues[:MOST_ROWS]:
        fullest = max((cell[0] for cell in queue["cells"]), default=0.0)
        table.add_row(
            _name(queue),
            _rate(queue["rates"]["accepted"]),
            _rate(queue["rates"]["handled"]),
            f"{queue['waiting']:,}",
            _bar(fullest),
            *(
                Text(f"{queue[key]:,}", style="red" if queue["rates"][key] else "")
                for key in ("rejected", "dropped", "failed", "retried")
            ),
        )
    if count > MOST_ROWS:
        table.caption = f"and {count - MOST_ROWS} more"
    return Panel(table, title="queues", title_align="left")


def _name(queue: Any) -> Text:  # noqa: ANN401 - JSON
    if queue["blocked"]:
        return Text.assemble((queue["name"], "bold red"), " loop blocked")
    if queue["unaccounted"]:
        return Text.assemble((queue["name"], "bold red"), " items lost")
    return Text(queue["name"], style="bold")


def _details(queue: Any) -> RenderableType:  # noqa: ANN401 - JSON
    partitions = Table(expand=True, box=None, header_style="bold")
    for name in ("partition", "of task", "waiting"):
        partitions.add_column(name, justify="right", no_wrap=True)
    partitions.add_column("", ratio=1, min_width=6)
    for index, waiting, capacity, owner in queue["fullest"]:
        moving = "moves" if owner is None else str(owner)
        bar = _bar(waiting / capacity)
        partitions.add_row(str(index), moving, f"{waiting:,}", bar)
    drain_tasks = Table(expand=True, box=None, header_style="bold")
    for name in ("task", "owns", "cycles"):
        drain_tasks.add_column(name, justify="right", no_wrap=True)
    drain_tasks.add_column("load", ratio=1, min_width=6)
    most = max((each["load"] for each in queue["drain_tasks"]), default=0) or 1
    for each in queue["drain_tasks"][:MOST_ROWS]:
        drain_tasks.add_row(
            str(each["index"]),
            str(each["partitions"]),
            f"{each['cycles']:,}",
            _bar(each["load"] / most, style="cyan"),
        )
    drain_tasks.caption = queue["last_round"]
    grid = Table.grid(expand=True, padding=(0, 2))
    grid.add_column(ratio=1)
    grid.add_column(ratio=1)
    grid.add_row(partitions, Group(drain_tasks, _handlers(queue)))
    return Panel(grid, title=escape(queue["name"]), title_align="left")


def _handlers(queue: Any) -> RenderableType:  # noqa: ANN401 - JSON
    table = Table(expand=True, box=None, header_style="bold")
    table.add_column("handler", ratio=1, min_width=10, no_wrap=True)
    for name in ("items", "s/call"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in queue["handlers"][:6]:
        seconds = each["mean_seconds"]
        table.add_row(
            Text(each["name"]),
            f"{each['items']:,}",
            "" if seconds is None else f"{seconds:.4f}",
        )
    return table


def _events(events: Sequence[Any]) -> RenderableType:
    text = Text()
    for event in events[-8:]:
        at = time.strftime("%H:%M:%S", time.localtime(event["time"]))
        style = "" if event["kind"] == "rebalanced" else "red"
        text.append(f"{at} {event['queue']}: ", style="dim")
        text.append(f"{event['text']}\n", style=style)
    return Panel(text or Text("nothing so far"), title="events", title_align="left")


def _bar(part: float, style: str | None = None) -> Bar:
    if style is None:
        style = "red" if part >= _FULL else "yellow" if part >= _HIGH else "green"
    return Bar(1.0, 0.0, min(part, 1.0), color=style)


def _rate(per_second: float) -> str:
    return f"{per_second:,.0f}"
