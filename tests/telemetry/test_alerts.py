"""The alert rules, in a real Prometheus that scrapes a running program."""

import asyncio
import importlib.resources
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, start_http_server

from batchqueue_async import BatchQueueConfig, LoopThread, Retry, WhenFull
from batchqueue_async.telemetry import PrometheusCollector
from tests.support.ports import free_port
from tests.support.prometheus import (
    hastened,
    require_prometheus,
    running_prometheus,
)

RULES = (
    importlib.resources.files("batchqueue_async.telemetry") / "monitoring/alerts.yml"
).read_text("utf-8")
NAME = re.compile(r"- alert: (\w+)")


def test_the_rules_are_rules(tmp_path: Path) -> None:
    require_prometheus()
    promtool = shutil.which("promtool")
    assert promtool is not None
    path = tmp_path / "alerts.yml"
    path.write_text(RULES)
    subprocess.run([promtool, "check", "rules", path], check=True, capture_output=True)


LONG_PAUSES = """
rule_files: [alerts.yml]
evaluation_interval: 1m
tests:
- interval: 1m
  input_series:
  - series: 'batchqueue_items_retried_total{queue="down"}'
    values: '0+0x9 5+0x29 10+0x29 15+0x29'
  - series: 'batchqueue_items_in_flight{queue="down"}'
    values: '0+0x9 5+0x89'
  - series: 'batchqueue_items_oldest_age_seconds{queue="down"}'
    values: '0+0x9 0+60x89'
  - series: 'batchqueue_items_settled_total{queue="down",outcome="handled"}'
    values: '7+0x99'
  - series: 'batchqueue_items_retried_total{queue="quiet"}'
    values: '0+0x9 5+0x89'
  - series: 'batchqueue_items_in_flight{queue="quiet"}'
    values: '0+0x9 0+0x89'
  - series: 'batchqueue_items_oldest_age_seconds{queue="quiet"}'
    values: '0+0x9 0+60x89'
  - series: 'batchqueue_items_settled_total{queue="quiet",outcome="handled"}'
    values: '7+0x9 12+0x89'
  promql_expr_test:
"""
ONLY_DOWN_FIRES = """
  - expr: count by (queue) (ALERTS{{alertname="{alert}", alertstate="firing"}})
    eval_time: {minute}m
    exp_samples: [{{labels: '{{queue="down"}}', value: 1}}]
"""


def test_pauses_of_half_an_hour_do_not_end_an_alert(tmp_path: Path) -> None:
    """It ended five minutes after each attempt, while nothing was handled."""
    require_prometheus()
    (tmp_path / "alerts.yml").write_text(RULES)
    path = tmp_path / "test.yml"
    cases = (
        ONLY_DOWN_FIRES.format(alert="BatchQueueRetryingOnly", minute=minute)
        for minute in range(18, 99, 6)
    )
    path.write_text(LONG_PAUSES + "".join(cases))
    ran = subprocess.run(
        ["promtool", "test", "rules", path], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@contextmanager
def scraped(loop_threads: list[LoopThread]) -> Iterator[int]:
    registry, port = CollectorRegistry(), free_port()
    registry.register(PrometheusCollector(loop_threads, patience=0.1))
    server, thread = start_http_server(port, "127.0.0.1", registry)
    try:
        yield port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Unclosing:
    """Can't write in the end what it holds."""

    async def consume(self, batch: list[int]) -> None:
        pass

    async def on_close(self) -> None:
        message = "the disk is full"
        raise OSError(message)


class Faults:
    """Queues of which each has one fault."""

    def __init__(self, loop_thread: LoopThread) -> None:
        self.is_over = threading.Event()
        self._release = asyncio.Event()
        self._loop_thread = loop_thread
        self._unblocked = threading.Event()

    async def block(self, _: list[int]) -> None:
        self._unblocked.wait()

    async def store(self, _: list[int]) -> None:
        pass

    async def hang(self, _: list[int]) -> None:
        await self._release.wait()

    async def refuse(self, _: list[int]) -> None:
        message = "the sink is down"
        raise OSError(message)

    def end(self) -> None:
        self.is_over.set()
        self._unblocked.set()
        self._loop_thread.portal.start_task_soon(self._end)

    async def _end(self) -> None:
        self._release.set()

    def open(self, blocked: LoopThread) -> None:
        config = BatchQueueConfig[int]
        opened = self._loop_thread.open
        self.healthy = opened("healthy", config(consumer=self.store))
        drop = config(consumer=self.hang, buffer_size=2, when_full=WhenFull.DROP_NEWEST)
        self.dropping = opened("dropping", drop)
        retry = Retry(attempts=100_000, wait_initial=0.05, wait_max=0.05)
        self.dead_sink = opened("dead_sink", config(consumer=self.refuse, retry=retry))
        self.stuck = opened("stuck", config(consumer=self.hang))
        self.losing = opened(
            "losing", config(consumer=self.store, audit=True, linger=3600.0)
        )
        self.failing = opened("failing", config(consumer=self.refuse))
        self.full = opened("full", config(consumer=self.hang, buffer_size=2))
        self.cut_off = opened("cut_off", handlers={int: Unclosing()})
        self.blocked = blocked.open("blocked", config(consumer=self.block))

    def feed(self) -> None:
        """What goes on all the time."""
        while not self.is_over.wait(0.05):
            self.healthy.produce(1)
            self.failing.produce(1)
            for _ in range(3):
                self.dropping.offer(1)
                self.full.offer(1)

    def strike(self) -> None:
        self.dead_sink.produce(1)
        self.stuck.produce(1)
        self.blocked.produce(1)
        self.cut_off.produce(1)
        self.cut_off.flush()
        self.cut_off.remove_handler(int)
        self.losing.produce_many([1, 2, 3])
        # The planted bug: one that waits is lost.
        self.losing.queue._parts.partitions[0].items.pop()


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_each_fault_fires_its_alert_and_health_none(tmp_path: Path) -> None:
    require_prometheus()
    with (
        LoopThread(shutdown_timeout=0.2) as loop_thread,
        LoopThread(shutdown_timeout=0.2) as other,
    ):
        faults = Faults(loop_thread)
        faults.open(other)
        feeding = threading.Thread(target=faults.feed)
        feeding.start()
        try:
            with (
                scraped([loop_thread, other]) as port,
                running_prometheus(tmp_path, port, hastened(RULES)) as prometheus,
            ):
                faults.strike()
                expected = {
                    ("BatchQueueDropping", "dropping"),
                    ("BatchQueueRetryingOnly", "dead_sink"),
                    ("BatchQueueStuck", "stuck"),
                    ("BatchQueueItemLost", "losing"),
                    ("BatchQueueFailing", "failing"),
                    ("BatchQueueNearlyFull", "full"),
                    ("BatchQueueLoopBlocked", "blocked"),
                    ("BatchQueueNotClosed", "cut_off"),
                }
                # Each of the rules.
                assert {alert for alert, _ in expected} == set(NAME.findall(RULES))
                prometheus.until(lambda: expected <= prometheus.firing())
                queues = {queue for _, queue in prometheus.firing()}
                assert "healthy" not in queues
        finally:
            faults.end()
            feeding.join()
