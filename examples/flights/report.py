"""The report: one page that needs nothing else, for anyone's browser."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from string import Template

from . import charts
from .database import Run
from .findings import Findings
from .load_chart import queue_loads
from .loads import LoadRecorder
from .proof import Check

_PAGE = Template(Path(__file__).with_name("report.html").read_text(encoding="utf-8"))


def render_report(
    findings: Findings,
    run: Run,
    recorder: LoadRecorder,
    checks: list[Check],
    airlines: Mapping[str, str],
) -> str:
    """Return the page as HTML."""
    return _PAGE.substitute(
        _headline(run, recorder, checks),
        carriers=charts.carriers_by_hour(findings, airlines),
        year=charts.year_by_hour(findings),
        visibility=charts.delays_by_visibility(findings),
        routes=charts.slowest_and_fastest_routes(findings),
        loads=queue_loads(recorder.loads) if recorder.latest.queues else "",
        worst=_worst(findings, airlines),
        queues=_queues(recorder),
        proof=_proof(checks),
    )


def _headline(run: Run, recorder: LoadRecorder, checks: list[Check]) -> dict[str, str]:
    items = sum(stats.handled for stats in recorder.latest.queues.values())
    differing = sum(check.differing for check in checks)
    return {
        "events": f"{run.events:,}",
        "departures": f"{run.departures:,}",
        "arrivals": f"{run.arrivals:,}",
        "cancellations": f"{run.cancellations:,}",
        "observations": f"{run.observations:,}",
        "items": f"{items:,}" if recorder.latest.queues else "not counted",
        "seconds": f"{recorder.latest.at:.1f}",
        "rows": f"{sum(check.rows for check in checks):,}",
        "differing": f"{differing:,}",
        "verdict": "wrong" if differing else "right",
        "finished": escape(run.finished or ""),
    }


def _worst(findings: Findings, airlines: Mapping[str, str]) -> str:
    return _table_rows(
        (
            f"{flight.day:%d %b %Y}",
            airlines.get(flight.flight.split()[0], ""),
            flight.flight,
            flight.route,
            f"{flight.delay // 60} h {flight.delay % 60:02} min",
        )
        for flight in findings.worst
    )


def _queues(recorder: LoadRecorder) -> str:
    return _table_rows(
        (
            name,
            f"{stats.handled:,}",
            f"{len(stats.partitions)}",
            f"{len(stats.drain_tasks)}",
            f"{sum(task.cycles for task in stats.drain_tasks):,}",
            f"{recorder.peak(name):,}",
            f"{stats.dropped + stats.rejected:,}",
            f"{stats.failed + stats.unhandled + stats.returned:,}",
        )
        for name, stats in recorder.latest.queues.items()
    )


def _proof(checks: Iterable[Check]) -> str:
    return _table_rows(
        (
            check.name,
            f"{check.rows:,}",
            f"{check.count:,}",
            "" if check.total is None else f"{check.total:,}",
            f"{check.differing:,}",
        )
        for check in checks
    )


def _table_rows(rows: Iterable[Iterable[str]]) -> str:
    return "\n".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>"
        for row in rows
    )
