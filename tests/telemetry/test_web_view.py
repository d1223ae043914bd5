"""`web_view`: one page, fed by events, read-only, and for the right host alone."""

import asyncio
import json
from collections.abc import MutableMapping
from typing import Any

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig, BatchQueueManager
from batchqueue_async.telemetry import _web, web_view
from batchqueue_async.telemetry._web import ASGIApp
from tests.engine.until import until

Message = MutableMapping[str, Any]


class Client:
    """One request, and what has come back so far."""

    def __init__(self, app: ASGIApp, path: str, **scope: object) -> None:
        self.sent: list[Message] = []
        self._gone = asyncio.Event()
        self._app = app
        host = scope.pop("host", "127.0.0.1:8765")
        assert isinstance(host, str)
        self._scope: dict[str, Any] = {
            "type": "http",
            "method": "GET",
            "path": path,
            "root_path": "",
            "headers": [(b"host", host.encode())],
            **scope,
        }

    async def run(self) -> None:
        await self._app(self._scope, self._receive, self._send)

    def leave(self) -> None:
        self._gone.set()

    @property
    def status(self) -> int:
        status: int = self.sent[0]["status"]
        return status

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])

    @property
    def body(self) -> str:
        return b"".join(each.get("body", b"") for each in self.sent).decode()

    async def _receive(self) -> Message:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        self.sent.append(message)


async def get(app: ASGIApp, path: str, **scope: object) -> Client:
    client = Client(app, path, **scope)
    await client.run()
    return client


@pytest.fixture
def app() -> ASGIApp:
    return web_view(BatchQueueManager())


async def test_the_page_may_run_its_own_script_alone(app: ASGIApp) -> None:
    page = await get(app, "/")
    assert page.status == 200
    policy = page.headers[b"content-security-policy"].decode()
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    # Whatever it needs is in it.
    assert "http://" not in page.body
    assert "https://" not in page.body
    assert "innerHTML" not in page.body


@pytest.mark.parametrize("host", ["localhost:80", "127.0.0.1", "[::1]:8765"])
async def test_loopback_s_names_are_answered(app: ASGIApp, host: str) -> None:
    assert (await get(app, "/", host=host)).status == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", ""])
@pytest.mark.parametrize("path", ["/", "/events"])
async def test_others_are_not(app: ASGIApp, host: str, path: str) -> None:
    assert (await get(app, path, host=host)).status == 421


async def test_hosts_can_be_given() -> None:
    manager = BatchQueueManager()
    named = web_view(manager, allowed_hosts=["Shop.example"])
    assert (await get(named, "/", host="shop.example")).status == 200
    assert (await get(named, "/", host="localhost")).status == 421
    anyone = web_view(manager, allowed_hosts=None)
    assert (await get(anyone, "/", host="whatever")).status == 200
    with pytest.raises(ValueError, match="allowed_hosts must be an iterable of names"):
        web_view(manager, allowed_hosts="shop.example")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
async def test_it_is_read_only(app: ASGIApp, method: str) -> None:
    assert (await get(app, "/", method=method)).status == 405


@pytest.mark.parametrize("path", ["/api/queues/", "/queues/", "/queues", "/"])
async def test_it_is_found_behind_a_proxy_that_takes_a_prefix_out(
    app: ASGIApp, path: str
) -> None:
    """As Starlette mounts it, in an application whose own root path is /api."""
    scope = {"root_path": "/api/queues", "app_root_path": "/api"}
    assert (await get(app, path, **scope)).status == 200
    assert (await get(app, f"{path}secret", **scope)).status == 404


async def test_nothing_else_is_there(app: ASGIApp) -> None:
    assert (await get(app, "/../secret")).status == 404


@pytest.mark.parametrize(
    "path, root_path", [("/queues/events", "/queues"), ("/events", "/queues")]
)
@pytest.mark.real_time
async def test_events_tell_what_the_queue_does(path: str, root_path: str) -> None:
    config = BatchQueueConfig[int](consumer=lambda _: None)
    async with BatchQueue("<b>orders</b>", config) as queue:
        app = web_view(queue, interval=0.02)
        client = Client(app, path, root_path=root_path)
        watching = asyncio.create_task(client.run())
        await queue.produce_many(range(100))
        await until(lambda: '"handled": 100' in client.body)
        client.leave()
        await watching
    assert client.headers[b"content-type"] == b"text/event-stream"
    blocks = client.body.strip().split("\n\n")
    assert blocks[0].startswith("event: history\n")
    event, data = blocks[-1].splitlines()
    assert event == "event: sample"
    (shown,) = json.loads(data.removeprefix("data: "))["queues"]
    assert shown["name"] == "<b>orders</b>"


@pytest.mark.real_time
async def test_a_connection_ends_by_itself_and_is_gone_on_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that never did would hold up a server that waits for it before it drains."""
    monkeypatch.setattr(_web, "LASTS", 0.1)
    async with BatchQueue("q", BatchQueueConfig[int](consumer=lambda _: None)) as queue:
        app = web_view(queue, interval=60.0)
        first = Client(app, "/events")
        async with asyncio.timeout(20.0):
            await first.run()
        history = first.body.split("\n\n")[0]
        (name,) = (each for each in history.splitlines() if each.startswith("id: "))
        known = (b"last-event-id", name.removeprefix("id: ").encode())
        again = Client(app, "/events", headers=[(b"host", b"localhost"), known])
        async with asyncio.timeout(20.0):
            await again.run()
    assert "event: history" in history
    assert "event: history" not in again.body
    assert "event: sample" in again.body


async def test_a_server_may_ask_it_to_start_and_end(app: ASGIApp) -> None:
    asked = iter(["lifespan.startup", "lifespan.shutdown"])
    told: list[str] = []

    async def receive() -> Message:
        return {"type": next(asked)}

    async def send(message: Message) -> None:
        told.append(message["type"])

    await app({"type": "lifespan"}, receive, send)
    assert told == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
