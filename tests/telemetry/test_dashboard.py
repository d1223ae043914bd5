"""The Grafana dashboard: Grafana's own schema reads it, and its metrics exist."""

import importlib.resources
import json
import re
from typing import Any

from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_client import CollectorRegistry

from batchqueue_async import BatchQueue
from batchqueue_async.telemetry import PrometheusCollector

MONITORING = importlib.resources.files("batchqueue_async.telemetry") / "monitoring"
DASHBOARD: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text())
ALERTS = (MONITORING / "alerts.yml").read_text()
NAME = re.compile(r"\bbatchqueue_[a-z_]+")


def known_names() -> set[str]:
    registry = CollectorRegistry()
    names = set()
    collector = PrometheusCollector(BatchQueue[int]("q"))
    registry.register(collector)
    for family in collector.describe():
        ends = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}
        names |= {family.name + end for end in ends.get(family.type, [""])}
    return names


def expressions() -> list[str]:
    return [
        target["expr"]
        for panel in DASHBOARD["panels"]
        for target in panel.get("targets", [])
    ]


def test_grafana_s_schema_reads_it_and_loses_nothing() -> None:
    register_default_plugins()
    read = Dashboard.from_json(DASHBOARD)
    assert read.title == "batchqueue_async"
    assert read.panels is not None
    titles = [getattr(panel, "title", None) for panel in read.panels]
    assert titles == [panel["title"] for panel in DASHBOARD["panels"]]
    queries = [
        target.expr
        for panel in read.panels
        for target in getattr(panel, "targets", None) or []
    ]
    assert queries == expressions()


def test_panels_are_numbered_and_do_not_overlap() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        own = {
            (at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])
        }
        assert not own & cells, panel["title"]
        assert at["x"] + at["w"] <= 24
        cells |= own


def test_what_it_and_the_alerts_show_is_collected() -> None:
    known = known_names()
    used = set(NAME.findall(" ".join(expressions())))
    assert len(used) > 10
    assert used <= known
    assert set(NAME.findall(ALERTS)) <= known
