"""What queues do, for the tools that watch programs.

* `instrument`: metrics by OpenTelemetry's API.
* `PrometheusCollector`: the same metrics for `prometheus_client`.
* `with_links`, `traceparent`: spans of batches, linked to those of their producers.
* `open_view`: lets `batchqueue top PATH` look at this process.
* `web_view`: a live page, as an ASGI app.

A target is one or more of: a queue, what manages queues, an object that reports
`QueuesElsewhere`, such as `batchqueue_async.spark.SparkJobs`.

The first three load their package when they are used: `batchqueue-async[opentelemetry]`
or `batchqueue-async[prometheus]`; the command needs `batchqueue-async[top]`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from batchqueue_async._extras import missing
from batchqueue_async.telemetry._source import QueuesElsewhere, Target, Watched

if TYPE_CHECKING:
    from batchqueue_async.telemetry._opentelemetry import Instrumentation, instrument
    from batchqueue_async.telemetry._prometheus import PrometheusCollector
    from batchqueue_async.telemetry._socket import OpenView, open_view
    from batchqueue_async.telemetry._spans import traceparent, with_links
    from batchqueue_async.telemetry._web import web_view

__all__ = [
    "Instrumentation",
    "OpenView",
    "PrometheusCollector",
    "QueuesElsewhere",
    "Target",
    "Watched",
    "instrument",
    "open_view",
    "traceparent",
    "web_view",
    "with_links",
]

_MODULES = {
    "Instrumentation": "_opentelemetry",
    "OpenView": "_socket",
    "PrometheusCollector": "_prometheus",
    "instrument": "_opentelemetry",
    "open_view": "_socket",
    "traceparent": "_spans",
    "web_view": "_web",
    "with_links": "_spans",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any of them
    module = _MODULES.get(name)
    if module is None:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    from importlib import import_module  # noqa: PLC0415 - at first use

    try:
        return getattr(import_module(f"{__name__}.{module}"), name)
    except ModuleNotFoundError as error:
        extra = "prometheus" if module == "_prometheus" else "opentelemetry"
        raise missing(error, f"{__name__}.{name}", extra) from error
