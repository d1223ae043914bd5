"""An exporter of spans and measurements that says how it is doing.

OpenTelemetry ends a span in the middle of other work, so it is only offered: without
room it is refused, and counted. A measurement waits for room. Both have a queue, and
one of the two exports at a time. What the collector does not take is sent again.

    python -m examples.exporter
"""

import itertools
import json
import signal
import sys
from collections import Counter
from contextlib import closing
from dataclasses import asdict
from http import HTTPStatus
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, NamedTuple

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.trace import Tracer

from batchqueue_async import (
    BatchQueueConfig,
    BatchQueueError,
    DrainTaskPolicy,
    LoopThread,
    Retry,
    SharedDrainTasks,
    SyncBatchQueue,
    drain_on_signals,
    in_thread,
)

SHOWN = (
    *("accepted", "rejected", "waiting", "in_flight", "handled", "retried"),
    *("waiting_producers", "oldest_age"),
)


class Measurement(NamedTuple):
    name: str
    value: float

    def to_json(self) -> str:
        return json.dumps(self._asdict())


class OfferedSpans(SpanProcessor):
    """Puts spans into a queue; nobody ever waits for it."""

    def __init__(self, queue: SyncBatchQueue[ReadableSpan]) -> None:
        self._queue = queue

    def on_end(self, span: ReadableSpan) -> None:
        self._queue.offer(span)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        try:
            self._queue.flush(timeout_millis / 1000)
        except (BatchQueueError, TimeoutError):
            return False
        return True


def exporting(port: int, path: str) -> BatchQueueConfig[Any]:
    def post(batch: list[ReadableSpan] | list[Measurement]) -> None:
        body = f"[{','.join(item.to_json() for item in batch)}]"
        with closing(HTTPConnection("127.0.0.1", port)) as connection:
            connection.request("POST", path, body)
            status = connection.getresponse().status
        if status != HTTPStatus.OK:
            raise ConnectionError(status)

    return BatchQueueConfig(
        consumer=in_thread(post),
        buffer_size=2000,
        max_batch=500,
        linger=0.2,
        retry=Retry(attempts=10),
        drain_tasks=SharedDrainTasks("exports", DrainTaskPolicy.fixed(1)),
        measure_handlers=True,
    )


def report(queue: SyncBatchQueue[Any]) -> str:
    """Say how a queue is doing: what came of its items, and why batches were cut."""
    stats = queue.stats()
    counts = [f"{name} {getattr(stats, name):g}" for name in SHOWN]
    for handler in stats.handlers:
        if handler.cuts is not None:
            counts += [f"{why} {n}" for why, n in asdict(handler.cuts).items() if n]
    return f"{stats.name}: {', '.join(counts)}"


received: Counter[str] = Counter()
requests = itertools.count(1)


class Collector(BaseHTTPRequestHandler):
    """Stands for the other side, and fails now and then."""

    def do_POST(self) -> None:
        items = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if next(requests) % 3:
            received[self.path] += len(items)
            self.send_response(HTTPStatus.OK)
        else:
            self.send_response(HTTPStatus.SERVICE_UNAVAILABLE)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def work(tracer: Tracer, measurements: SyncBatchQueue[Measurement]) -> None:
    for number in range(2100):
        with tracer.start_as_current_span("request"):
            measurements.produce(Measurement("seconds", number / 1000))


def run(port: int, queues: list[SyncBatchQueue[Any]]) -> None:
    with LoopThread() as loop_thread:
        drain_on_signals(loop_thread, (signal.SIGTERM, signal.SIGINT))
        queues.append(loop_thread.open("spans", exporting(port, "/spans")))
        queues.append(
            loop_thread.open("measurements", exporting(port, "/measurements"))
        )
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(OfferedSpans(queues[0]))
        tracer = provider.get_tracer("shop")
        threads = [Thread(target=work, args=[tracer, queues[1]]) for _ in range(4)]
        for thread in threads:
            thread.start()
        print(*map(report, queues), sep="\n")
        for thread in threads:
            thread.join()
        provider.force_flush()


def main() -> None:
    queues: list[SyncBatchQueue[Any]] = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as collector:
        Thread(target=collector.serve_forever).start()
        try:
            run(collector.server_port, queues)
        finally:
            collector.shutdown()
            print(*map(report, queues), sep="\n")
            if any(q.stats().accepted != received[f"/{q.name}"] for q in queues):
                sys.exit("the account is wrong")


if __name__ == "__main__":
    main()
