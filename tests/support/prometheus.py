"""A throw-away Prometheus server for the tests that want a real one."""

import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.ports import free_port

PATIENCE = 60.0

CONFIG = """
global: {{scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 200ms}}
rule_files: [{rules}]
scrape_configs:
  - job_name: program
    static_configs: [{{targets: ["127.0.0.1:{scraped}"]}}]
"""


def require_prometheus() -> str:
    """Return the server's program; skips where there is none."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("needs Prometheus: no prometheus on this machine")
    return program


def hastened(rules: str) -> str:
    """Return the rules with seconds instead of minutes, so that a test sees them fire.

    A minute and less become one second, five minutes two; only durations change.
    """
    rules = rules.replace("inside_seconds) > 300", "inside_seconds) > 2")
    faster = re.sub(r"\[5m\]", "[2s]", rules)
    faster = re.sub(r"\[1m\]", "[1s]", faster)
    return re.sub(r"\bfor: \w+", "for: 400ms", faster)


class Prometheus:
    """A running server, asked by HTTP."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1/"

    def get(self, path: str) -> Any:  # noqa: ANN401 - JSON
        with urllib.request.urlopen(self._url + path, timeout=PATIENCE) as answer:
            return json.load(answer)["data"]

    def firing(self) -> set[tuple[str, str]]:
        """The alerts that fire now, each with its queue."""
        return {
            (alert["labels"]["alertname"], alert["labels"]["queue"])
            for alert in self.get("alerts")["alerts"]
            if alert["state"] == "firing"
        }

    def until(self, condition: Callable[[], object]) -> None:
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, f"it never happened; firing: {self.firing()}"
            time.sleep(0.1)

    def _is_ready(self) -> bool:
        try:
            return bool(self.get("status/runtimeinfo"))
        except (OSError, urllib.error.URLError):
            return False


@contextmanager
def running_prometheus(home: Path, scraped: int, rules: str) -> Iterator[Prometheus]:
    """A server that scrapes a port of this machine, five times a second."""
    program, port = require_prometheus(), free_port()
    (home / "rules.yml").write_text(rules)
    config = CONFIG.format(rules=home / "rules.yml", scraped=scraped)
    (home / "prometheus.yml").write_text(config)
    command = [
        program,
        f"--config.file={home / 'prometheus.yml'}",
        f"--storage.tsdb.path={home / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (home / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        server = Prometheus(port)
        server.until(lambda: process.poll() is not None or server._is_ready())
        assert process.poll() is None, (home / "log").read_text()
        yield server
    finally:
        process.terminate()
        process.wait(PATIENCE)
