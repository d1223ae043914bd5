"""The live view as a page: an ASGI app without dependencies, read-only."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from importlib.resources import files
from typing import Any, Final, cast

from batchqueue_async._policies.errors import BatchQueueError
from batchqueue_async._validation import (
    refuse,
    require_instance,
    require_iterable,
)
from batchqueue_async.telemetry._feed import INTERVAL, Feed
from batchqueue_async.telemetry._socket import SocketFeed
from batchqueue_async.telemetry._source import PATIENCE, Target

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
LASTS: Final = 5.0
"""Seconds after which a page asks again.

A server that is to end waits for its requests first, and then ends the lifespan, which
drains: one that never ended would hold that up for as long as somebody looks.
"""
_INLINE = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


def web_view(
    target: Target,
    *,
    allowed_hosts: Iterable[str] | None = LOOPBACK,
    interval: float = INTERVAL,
    patience: float = PATIENCE,
) -> ASGIApp:
    """Return an ASGI app that shows a target, to mount in Starlette or FastAPI.

    `app.mount("/queues", web_view(manager))`. It has one page, fed by server-sent
    events, and changes nothing. It knows no users: put it behind what guards the rest
    of your program, or serve it on loopback only. While nobody looks, nothing is read.

    Args:
        target: A queue, from either side, a manager, a LoopThread, `QueuesElsewhere`,
            or several of them.
        allowed_hosts: Names in the request's `Host`, without port, that are answered:
            so no page of another site can read it by a host name of its own. None for
            any, where something before it checks that.
        interval: Seconds between two samples.
        patience: Seconds that a loop gets to answer.

    Raises:
        TypeError, ValueError: An argument is wrong.
    """
    feed = Feed(target, interval=interval, patience=patience)
    return _app(feed, allowed_hosts)


def _hosts(names: object) -> set[str]:
    """Return names of hosts as they are compared; a text would be letters."""
    rule = "an iterable of names, or None"
    if isinstance(names, str):
        refuse("allowed_hosts", rule, names)
    require_iterable("allowed_hosts", names, rule)
    hosts = set()
    for each in cast("Iterable[object]", names):
        require_instance("allowed_hosts", each, str, "of str alone")
        hosts.add(str(each).lower())
    return hosts


def serve(path: str, port: int) -> None:
    """Serve the page of a process that shows itself at `path`, on 127.0.0.1."""
    import uvicorn  # noqa: PLC0415 - its extra

    config = uvicorn.Config(
        _app(SocketFeed(path), LOOPBACK),
        # At Ctrl-C it calls each page that is open an error.
        log_level="critical",
        # Open pages need no more time: a view only reads.
        timeout_graceful_shutdown=1,
    )
    # Bound first: what is at a port that is taken is another program's page.
    with _listener(port) as listener:
        print(f"http://127.0.0.1:{port}/", flush=True)  # noqa: T201 - a command
        uvicorn.Server(config).run(sockets=[listener])


def _listener(port: int) -> socket.socket:
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError as error:
        msg = f"port {port} cannot be served: {error}; --port names another"
        raise BatchQueueError(msg) from error


def _app(feed: Feed | SocketFeed, allowed_hosts: Iterable[str] | None) -> ASGIApp:
    hosts = None if allowed_hosts is None else _hosts(allowed_hosts)
    page = (files("batchqueue_async.telemetry") / "page.html").read_text("utf-8")
    headers = _headers(page)
    # The event id by which a page that reconnects shows it has the history already.
    name = secrets.token_hex(8)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
        elif hosts is not None and _host(scope) not in hosts:
            await _answer(send, 421, "this host is not one of allowed_hosts")
        elif scope["method"] not in ("GET", "HEAD"):
            await _answer(send, 405, "read-only")
        else:
            path = _own_path(scope)
            if path == "":
                await _answer(send, 200, page, headers)
            elif path == "events":
                is_known = _header(scope, b"last-event-id") == name
                await _stream(feed, None if is_known else name, receive, send)
            else:
                await _answer(send, 404, "not found")

    return app


def _headers(page: str) -> list[tuple[bytes, bytes]]:
    """Let the page run its own script and style, and nothing else."""
    hashes: dict[str, str] = {}
    for kind, text in _INLINE.findall(page):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        hashes[kind] = f"'sha256-{digest}'"
    policy = (
        f"default-src 'none'; connect-src 'self'; script-src {hashes['script']}; "
        f"style-src {hashes['style']}; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'self'"
    )
    return [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-security-policy", policy.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        (b"cache-control", b"no-store"),
    ]


def _own_path(scope: Scope) -> str:
    """Return the part of the path below the place where the app is mounted.

    Who mounts it may leave its own part in the path, or not; and a proxy may have taken
    out what is in front of that, and in `root_path`.
    """
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    if not path.startswith(root):
        root = root.removeprefix(scope.get("app_root_path", ""))
    return path.removeprefix(root).strip("/")


def _header(scope: Scope, name: bytes) -> str:
    found = (value for each, value in scope["headers"] if each == name)
    return str(next(found, b"").decode("latin-1"))


def _host(scope: Scope) -> str:
    host = _header(scope, b"host").lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


async def _answer(
    send: Send,
    status: int,
    text: str,
    headers: Iterable[tuple[bytes, bytes]] = ((b"content-type", b"text/plain"),),
) -> None:
    start = {"type": "http.response.start", "status": status, "headers": list(headers)}
    await send(start)
    await send({"type": "http.response.body", "body": text.encode()})


async def _stream(
    feed: Feed | SocketFeed, name: str | None, receive: Receive, send: Send
) -> None:
    headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    gone = asyncio.ensure_future(_until_gone(receive))
    left, until = LASTS, time.monotonic() + LASTS
    try:
        if name is not None:
            history = await asyncio.to_thread(feed.history)
            await _event(send, "history", history, f"\nid: {name}\nretry: 500")
        while left > 0 and not gone.done():
            # On a thread: it waits for the queues' loop, which may be this one.
            await _event(send, "sample", await asyncio.to_thread(feed.sample))
            await asyncio.wait({gone}, timeout=min(feed.interval, left))
            left = until - time.monotonic()
    finally:
        gone.cancel()
    await send({"type": "http.response.body", "body": b""})


async def _event(send: Send, name: str, value: object, more: str = "") -> None:
    # Browsers refuse the NaN and Infinity that Python would write.
    data = json.dumps(value, allow_nan=False)
    body = f"event: {name}{more}\ndata: {data}\n\n".encode()
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _live(receive: Receive, send: Send) -> None:
    """Answer a server's lifespan messages: there is nothing to begin or to end."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
