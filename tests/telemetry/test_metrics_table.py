"""The guide's table of metrics is that of the code."""

import re
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest

from batchqueue_async import BatchQueue, BatchQueueConfig
from batchqueue_async.telemetry import PrometheusCollector
from batchqueue_async.telemetry._metric_table import HISTOGRAMS, METRICS

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "telemetry.md"
ROW = re.compile(
    r"^\| `(batchqueue\.[\w.]+)` \| `(\w+)` \| .* \| (.*) \| (.*) \|$", re.MULTILINE
)


def test_each_metric_has_its_row() -> None:
    rows = {name: (labels, text) for name, _, labels, text in ROW.findall(text_of())}
    for metric in METRICS:
        labels = ", ".join(f"`{each}`" for each in metric.labels)
        assert rows.pop(metric.name) == (labels, metric.description)
    for histogram in HISTOGRAMS:
        assert rows.pop(histogram.name) == ("`handler`", histogram.description)
    assert not rows


async def test_prometheus_calls_them_so() -> None:
    config = BatchQueueConfig[int](consumer=lambda _: None, measure_handlers=True)
    async with BatchQueue("q", config) as queue:
        await queue.produce(1)
        await queue.flush()
        registry = CollectorRegistry()
        registry.register(PrometheusCollector(queue))
        page = generate_latest(registry).decode()
    for _, name, _, _ in ROW.findall(text_of()):
        help_name = name.removesuffix("_total")
        assert re.search(rf"^# HELP {help_name}(_total)? ", page, re.MULTILINE), name


def text_of() -> str:
    return GUIDE.read_text("utf-8")
