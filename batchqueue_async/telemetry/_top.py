"""The live view in a terminal: one sample, drawn with rich."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from rich.bar import Bar
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from batchqueue_async.telemetry._feed import Sample, fullest

MOST_ROWS: Final = 20
MOST_LIMITS: Final = 3
"""The most handlers for which the reason of their batch limit is shown."""
_FULL, _HIGH = 0.9, 0.6
_LOSSES: Final = ("rejected", "dropped", "failed", "retried")
_WIDE: Final = 110
"""From so many columns on, those without any figure are shown, too."""
_TALL: Final = 40
"""From so many lines on, more than the last two events are shown."""
_LATE: Final = 3.0
"""A sample is late if the last one is older than so many intervals and seconds."""
_SLOW: Final = 10
"""Rates below so many items per second are shown with a tenth."""

# Of ASCII and of Latin 1, ends of lines, and what turns the direction of writing.
_COMMANDS: Final = {
    each: ascii(chr(each))[1:-1]
    for numbers in (
        range(32),
        range(127, 160),
        range(0x2028, 0x202F),
        range(0x2066, 0x206A),
    )
    for each in numbers
}


def show(samples: Iterable[Sample], console: Console, *, once: bool = False) -> None:
    """Draw samples as they come, until they end; only the second one if `once`."""
    if once:
        # The first sample has no rates; a process that ends has no second one.
        for latest in deque(islice(samples, 2), maxlen=1):
            console.print(Picture(latest))
        return
    picture = None
    is_live = console.is_terminal
    # Drawn anew without news, too: of a process that is stopped none come.
    with Live(
        console=console, screen=is_live, auto_refresh=is_live, refresh_per_second=1
    ) as live:
        for sample in samples:
            came = time.monotonic() if is_live else math.inf
            picture = Picture(sample, _detailed(sample, picture), is_live, came)
            live.update(picture, refresh=True)
    if picture is not None:
        # What was on the live screen is gone, so the last picture is printed.
        if console.is_terminal:
            console.print(Picture(picture.sample, picture.detailed))
        at = _clock(picture.sample["time"])
        console.print(f"The process shows its queues no more; the last look: {at}")


@dataclass(frozen=True, slots=True)
class Picture:
    """One sample, as wide and, if it has to fit, as high as the terminal."""

    sample: Sample
    detailed: int | None = None
    """The key of the queue whose details are shown; None for the fullest."""
    fits: bool = False
    came: float = math.inf
    """When, by the machine's clock, where another one is to follow."""

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> RenderResult:
        """Draw the queues, what happened, and one queue in detail."""
        sample, width = _printable(self.sample), options.max_width
        queues = sample["queues"]
        key = _detailed(self.sample) if self.detailed is None else self.detailed
        count, events = sample["queue_count"], sample["events"]
        height = console.height if self.fits else 100
        rows = min(MOST_ROWS, max(3, height // 2 - 3))
        shown = fullest(queues, rows)
        yield _queues(shown, count, wide=width >= _WIDE, title=self._title)
        told = events[-8:] if height >= _TALL else events[-2:]
        yield _events(told)
        for queue in queues:
            if queue["key"] == key:
                taken = len(shown) + (count > len(shown)) + 3 + max(1, len(told)) + 2
                yield _details(queue, max(3, height - taken - 3))

    @property
    def _title(self) -> Text:
        late = _LATE * (1 + self.sample["interval"])
        if time.monotonic() - self.came <= late:
            return Text("queues")
        since = f"no news since {_clock(self.sample['time'])}"
        return Text.assemble("queues, ", (since, "bold red"))


def _printable(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Return it without what a terminal would do instead of showing it.

    Names come from programs, which may have them from anywhere.
    """
    if isinstance(value, str):
        return value.translate(_COMMANDS)
    if isinstance(value, dict):
        return {key: _printable(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_printable(each) for each in value]
    return value


def _detailed(sample: Sample, before: Picture | None = None) -> int | None:
    """Return the key of the queue to detail: the last one while half as full as any."""
    waiting = {each["key"]: each["waiting"] for each in sample["queues"]}
    if not waiting:
        return None
    most = max(waiting, key=waiting.__getitem__)
    key = None if before is None else before.detailed
    # Otherwise two queues that are about equally full would take turns each second.
    return key if key in waiting and 2 * waiting[key] >= waiting[most] else most


def _queues(
    queues: Sequence[Any], count: int, *, wide: bool, title: Text
) -> RenderableType:
    table = Table(expand=True, box=None, header_style="bold")
    table.add_column("queue", ratio=3, min_width=10, no_wrap=True)
    has_oldest = wide or any(map(_oldest, queues))
    for name in ("in/s", "out/s", "waiting", *(("oldest",) if has_oldest else ())):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("fullest", ratio=1, min_width=7)
    # Names need the room more than columns of zeros do.
    keys = [key for key in _LOSSES if wide or any(queue[key] for queue in queues)]
    for key in keys:
        name = "refused" if key == "rejected" else key
        table.add_column(name, justify="right", no_wrap=True)
    for queue in queues:
        part = max((cell[0] for cell in queue["cells"]), default=0.0)
        table.add_row(
            _name(queue),
            _rate(queue["rates"]["accepted"]),
            _rate(queue["rates"]["handled"]),
            f"{queue['waiting']:,}",
            *((_oldest(queue),) if has_oldest else ()),
            _bar(part),
            *(
                Text(f"{queue[key]:,}", style="red" if queue["rates"][key] else "")
                for key in keys
            ),
        )
    if not queues:
        table.add_row(Text("no queues", style="dim"))
    if count > len(queues):
        table.caption = f"and {count - len(queues)} more with less waiting"
    return Panel(table, title=title, title_align="left")


def _oldest(queue: Any) -> str:  # noqa: ANN401 - JSON
    """Return how long the oldest item waits; earlier versions don't tell."""
    return _seconds(queue.get("oldest_age") or None)


def _name(queue: Any) -> Text:  # noqa: ANN401 - JSON
    if queue["blocked"]:
        return Text.assemble((queue["name"], "bold red"), " loop blocked")
    if queue["unaccounted"]:
        return Text.assemble((queue["name"], "bold red"), " items lost")
    state = f" {queue['state']}" if queue["state"] else ""
    return Text.assemble((queue["name"], "bold"), (state, "dim"))


def _details(queue: Any, rows: int) -> RenderableType:  # noqa: ANN401 - JSON
    partitions = Table(expand=True, box=None, header_style="bold")
    for name in ("partition", "of task", "waiting"):
        partitions.add_column(name, justify="right", no_wrap=True)
    partitions.add_column("", ratio=1, min_width=4)
    for index, waiting, capacity, owner in queue["fullest"][:rows]:
        moving = "moves" if owner is None else str(owner)
        bar = _bar(waiting / capacity)
        partitions.add_row(str(index), moving, f"{waiting:,}", bar)
    drain_tasks = _drain_tasks(queue, max(1, rows // 2 - 1))
    # Both tables have a heading.
    left = rows - drain_tasks.row_count - 1 - len(_told_of_drain_tasks(queue))
    left -= len(_told_of_limits(queue))
    grid = Table.grid(expand=True, padding=(0, 1))
    grid.add_column(ratio=5)
    grid.add_column(ratio=6)
    grid.add_row(partitions, Group(drain_tasks, _handlers(queue, max(1, left))))
    return Panel(grid, title=escape(queue["name"]), title_align="left")


def _drain_tasks(queue: Any, rows: int) -> Table:  # noqa: ANN401 - JSON
    table = Table(expand=True, box=None, header_style="bold")
    for name in ("task", "owns", "cycles"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("load", ratio=1, min_width=6)
    most = max((each["load"] for each in queue["drain_tasks"]), default=0) or 1
    for each in queue["drain_tasks"][: min(rows, MOST_ROWS)]:
        table.add_row(
            str(each["index"]),
            str(each["partitions"]),
            f"{each['cycles']:,}",
            _bar(each["load"] / most, style="cyan"),
        )
    return _captioned(table, _told_of_drain_tasks(queue))


def _told_of_drain_tasks(queue: Any) -> list[str]:  # noqa: ANN401 - JSON
    says = []
    if active := queue.get("drain_task_limit"):
        says.append(f"{active['drain_tasks']} at work: {active['why']}")
    if last := queue["last_round"]:
        last = last.replace(" of rebalancing", "")
        says.append(last.replace(" partitions moved", " moved"))
    return says


def _told_of_limits(queue: Any) -> list[str]:  # noqa: ANN401 - JSON
    """Return why the adaptive limits of the busiest handlers are what they are."""
    found = [each for each in queue["handlers"] if each.get("limit")]
    is_alone = len(queue["handlers"]) == 1
    return [
        f"{'limit' if is_alone else each['name']}: {each['limit']['why']}"
        for each in found[:MOST_LIMITS]
    ]


def _captioned(table: Table, lines: Sequence[str]) -> Table:
    if lines:
        text = "\n".join(lines)
        table.caption = Text(text, overflow="ellipsis", no_wrap=True)
    return table


def _handlers(queue: Any, rows: int) -> RenderableType:  # noqa: ANN401 - JSON
    handlers = queue["handlers"][: min(rows, MOST_ROWS)]
    is_timed = any(each["mean_seconds"] is not None for each in handlers)
    is_limited = any(each.get("limit") for each in handlers)
    table = Table(expand=True, box=None, header_style="bold")
    table.add_column("handler", ratio=1, min_width=10, no_wrap=True)
    wanted = {"items": True, "per call": is_timed, "limit": is_limited}
    for name in (name for name, is_wanted in wanted.items() if is_wanted):
        table.add_column(name, justify="right", no_wrap=True)
    for each in handlers:
        cells = [f"{each['items']:,}"]
        if is_timed:
            cells.append(_seconds(each["mean_seconds"]))
        if is_limited:
            limit = each.get("limit")
            cells.append(f"{limit['max_batch']:,}" if limit else "")
        table.add_row(Text(each["name"]), *cells)
    return _captioned(table, _told_of_limits(queue))


def _events(events: Sequence[Any]) -> RenderableType:
    text = Text(no_wrap=True, overflow="ellipsis")
    for event in events:
        style = "" if event["kind"] == "rebalanced" else "red"
        text.append(f"{_clock(event['time'])} {event['queue']}: ", style="dim")
        text.append(f"{event['text']}\n", style=style)
    text.rstrip()
    return Panel(text or Text("nothing so far"), title="events", title_align="left")


def _bar(part: float, style: str | None = None) -> Bar:
    if style is None:
        style = "red" if part >= _FULL else "yellow" if part >= _HIGH else "green"
    return Bar(1.0, 0.0, min(part, 1.0), color=style)


def _clock(seconds: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(seconds))


def _rate(per_second: float) -> str:
    # With "0" a slow queue would seem to stand still.
    return f"{per_second:.1f}" if 0 < per_second < _SLOW else f"{per_second:,.0f}"


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return ""
    for unit, of_a_second in (("s", 1), ("ms", 1e3)):
        if seconds * of_a_second >= 1:
            return f"{seconds * of_a_second:,.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"
