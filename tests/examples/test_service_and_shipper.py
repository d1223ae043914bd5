"""The service and the shipper by themselves, as they would be deployed."""

import asyncio
import json
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from examples.service import app, serving
from tests.bridge.background import until

SHIPPER = Path(__file__).parents[2] / "examples" / "shipper.py"

# `test_programs.py` stops both programs with SIGTERM in any run.
both_signals = pytest.mark.parametrize(
    "sign", [pytest.param(signal.SIGTERM, marks=pytest.mark.slow), signal.SIGINT]
)


@pytest.mark.real_time
@both_signals
async def test_the_service_keeps_every_row_that_it_accepted(
    tmp_path: Path, sign: signal.Signals
) -> None:
    database = tmp_path / "events.db"
    accepted: set[int] = set()
    unanswered: set[int] = set()
    answers = {202: accepted, 429: set()}  # 429: the disk is slow, the queue is full
    enough = asyncio.Event()

    with serving(database) as (url, service):
        async with aiohttp.ClientSession(url) as session:

            async def send(numbers: Iterator[int]) -> None:
                for number in numbers:
                    event = {"id": number, "page": "/"}
                    try:
                        async with session.post("/events", json=event) as response:
                            status = response.status
                    except aiohttp.ClientError:
                        unanswered.add(number)
                        return
                    answers[status].add(number)
                    if len(accepted) == 500:
                        enough.set()

            numbers = count()
            async with asyncio.TaskGroup() as clients:
                for _ in range(8):
                    clients.create_task(send(numbers))
                await enough.wait()
                async with session.get("/stats") as response:
                    stats = await response.json()
                assert stats["accepted"] >= 500
                assert stats["handlers"][0]["items"] == stats["handled"]
                # In the middle of the traffic.
                service.send_signal(sign)
        await asyncio.to_thread(service.wait, 20)

    with closing(sqlite3.connect(database)) as connection:
        rows = [number for (number,) in connection.execute("SELECT id FROM events")]
    assert len(set(rows)) == len(rows)
    assert accepted <= set(rows) <= accepted | unanswered


@pytest.mark.real_time
async def test_the_service_says_503_once_its_queue_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENTS", str(tmp_path / "events.db"))
    async with app.router.lifespan_context(app):
        assert await status_of_a_post({"id": 1, "page": "/"}) == 202
        await app.state.queue.shutdown()
        assert await status_of_a_post({"id": 2, "page": "/"}) == 503
    assert app.state.queue.stats().handled == 1


async def status_of_a_post(event: dict[str, Any]) -> int:
    """Ask the application as an ASGI server does."""
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": json.dumps(event).encode()}

    async def send(message: object) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/events", "headers": headers}
    await app(scope | {"query_string": b""}, receive, send)
    status: int = sent[0]["status"]
    return status


class Collected:
    """What a collector got that takes everything, and how it got it."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    async def bulk(self, request: web.Request) -> web.Response:
        lines = (await request.text()).splitlines()
        self.lines += lines
        return web.json_response([201] * len(lines))


@asynccontextmanager
async def shipping(log: Path, sign: signal.Signals) -> AsyncIterator[Collected]:
    """A shipper that follows `log`, until it gets the signal."""
    collected = Collected()
    collector = web.Application()
    collector.router.add_post("/bulk", collected.bulk)
    async with TestServer(collector) as server:
        shipper = await asyncio.create_subprocess_exec(
            sys.executable, str(SHIPPER), str(log), str(server.make_url("/bulk"))
        )
        try:
            yield collected
        finally:
            shipper.send_signal(sign)
            assert await shipper.wait() == 128 + sign


@pytest.mark.asyncio(loop_factories=["asyncio"])
@both_signals
async def test_the_shipper_follows_its_file_and_begins_where_it_ended(
    tmp_path: Path, sign: signal.Signals
) -> None:
    log = tmp_path / "app.log"
    log.write_text("one\ntwo\nthr")
    async with shipping(log, sign) as collected:
        await until(lambda: collected.lines)
        with log.open("a") as file:
            file.write("ee\nfour\nfi")
        await until(lambda: len(collected.lines) == 4)
    assert collected.lines == ["one", "two", "three", "four"]

    with log.open("a") as file:
        file.write("ve\n")
    async with shipping(log, sign) as collected:
        await until(lambda: collected.lines)
    assert collected.lines == ["five"]
