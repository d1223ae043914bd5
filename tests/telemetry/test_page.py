"""The live page in a real browser."""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import uvicorn
from playwright.async_api import Page, async_playwright

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueManager,
    DrainTaskPolicy,
    PartitionPolicy,
    Rebalancing,
    WhenFull,
    round_robin,
)
from batchqueue_async.telemetry import _feed, _web, open_view, web_view
from batchqueue_async.telemetry._feed import Feed, Sample
from batchqueue_async.telemetry._socket import SocketFeed
from batchqueue_async.telemetry._source import Target
from batchqueue_async.telemetry._web import ASGIApp, _app
from tests.engine.until import until
from tests.support.ports import free_port

CHROMIUM = shutil.which("chromium")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.asyncio(loop_factories=["asyncio"]),
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium on this machine"),
]

ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update"),
    "--disable-sync",
]
TYPES = 10_000
HOSTILE = "<img src=x onerror=alert(1)>"


class Flood:
    """More than its partition takes."""


def served(target: Target) -> AbstractAsyncContextManager[str]:
    return at_a_port(web_view(target, interval=0.2))


@asynccontextmanager
async def at_a_port(app: ASGIApp) -> AsyncIterator[str]:
    port = free_port()
    config = uvicorn.Config(
        app,
        port=port,
        log_level="error",
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    # Ctrl-C is pytest's.
    serving = asyncio.create_task(server._serve())
    await until(lambda: server.started)
    yield f"http://127.0.0.1:{port}/"
    server.should_exit = True
    await serving


@asynccontextmanager
async def browsed(
    url: str, *, width: int = 1280, dark: bool = False
) -> AsyncIterator[Page]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=CHROMIUM, args=ARGUMENTS
        )
        page = await browser.new_page(
            color_scheme="dark" if dark else "light",
            viewport={"width": width, "height": 1100},
        )
        faults: list[str] = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda message: faults.append(message.text))
        page.on("dialog", lambda dialog: faults.append(dialog.message))
        await page.goto(url)
        await page.locator("#status", has_text="live").wait_for()
        yield page
        await browser.close()
        assert faults == [], faults


@asynccontextmanager
async def large() -> AsyncIterator[BatchQueueManager]:
    """A queue of 10,000 types that drops, and one of a hostile name."""

    async def slow(_: list[object]) -> None:
        await asyncio.sleep(0.5)

    types = [type(f"T{number}", (), {}) for number in range(TYPES)]
    config = BatchQueueConfig[object](
        partitions=PartitionPolicy.fixed(TYPES),
        drain_tasks=DrainTaskPolicy.fixed(4),
        buffer_size=2,
        when_full=WhenFull.DROP_OLDEST,
        rebalancing=Rebalancing(interval=1.0),
        measure_handlers=True,
    )
    async with BatchQueueManager(shutdown_timeout=0.0) as manager:
        queue = await manager.create("orders", config)
        for each in (Flood, *types):
            queue.add_handler(each, slow)
        hostile = BatchQueueConfig[object](consumer=lambda _: None)
        await manager.create(HOSTILE, hostile)
        for number in range(60):
            await manager.create(f"queue {number}", hostile)
        await queue.produce_many([each() for each in types[::3] for _ in range(4)])
        yield manager


async def test_it_shows_ten_thousand_types_in_few_rows() -> None:
    async with large() as manager, served(manager) as url, browsed(url) as page:
        queue = manager.get("orders")
        assert queue is not None
        text = await page.inner_text("main")
        assert "orders" in text
        assert HOSTILE in text
        assert "10,000 partitions" in text
        assert "and 2 more with less waiting" in text
        assert await page.locator("img").count() == 0
        rows = await page.evaluate("document.querySelectorAll('tr, li').length")
        assert 60 < rows <= 300
        await queue.produce_many([Flood() for _ in range(100)])
        await page.locator("#events li", has_text="dropped").first.wait_for()
        assert await page.inner_text("#status") == "live"


async def test_it_can_be_used_by_keyboard() -> None:
    async with large() as manager, served(manager) as url, browsed(url) as page:
        await page.keyboard.press("Tab")
        assert await page.inner_text("#h-queue") == "orders"
        await page.keyboard.press("ArrowDown")
        second = await page.inner_text("#queues tbody tr:nth-child(2) button")
        assert await page.inner_text("#h-queue") == second
        current = page.locator("#queues tr[aria-current=true] button")
        assert await current.inner_text() == second
        # What a picture shows is said, too.
        label = await page.get_attribute("#heat", "aria-label")
        assert label is not None
        assert "partition" in label


@pytest.mark.parametrize("dark", [False, True])
async def test_it_fits_a_phone_in_light_and_dark(dark: bool, tmp_path: Path) -> None:  # noqa: FBT001
    async with (
        large() as manager,
        served(manager) as url,
        browsed(url, width=390, dark=dark) as page,
    ):
        wide = await page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 390
        back = await page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (back == "rgb(22, 22, 21)") is dark
        shot = tmp_path / "page.png"
        await page.screenshot(path=shot)
        assert shot.stat().st_size > 10_000


def consumed() -> BatchQueueConfig[int]:
    return BatchQueueConfig[int](consumer=lambda _: None)


async def test_without_queues_it_says_so_and_shows_nothing_else() -> None:
    manager = BatchQueueManager()
    async with served(manager) as url, browsed(url) as page:
        assert "no queues" in await page.inner_text("main")
        assert not await page.locator("#tiles").is_visible()
        await manager.create("orders", consumed())
        await page.locator("#tiles").wait_for()
        await manager.shutdown_all()
        # What a queue was like that is gone is not shown as if it was there.
        await page.locator("#tiles").wait_for(state="hidden")


async def test_two_queues_of_one_name_have_a_curve_each() -> None:
    async with BatchQueue("q", consumed()) as one, BatchQueue("q", consumed()) as other:
        await other.produce_many(range(1_234))
        async with served([one, other]) as url, browsed(url) as page:
            accepted = page.locator("#tiles .tile").first
            await page.keyboard.press("Tab")
            assert (await accepted.inner_text()).startswith("0")
            await page.keyboard.press("ArrowDown")
            assert (await accepted.inner_text()).startswith("1,234")
            assert await page.locator("tr[aria-current=true]").count() == 1


async def test_how_long_the_oldest_item_waits_is_shown() -> None:
    feed = AgedFeed(BatchQueue("q", consumed()))
    async with at_a_port(_app(feed, None)) as url, browsed(url) as page:
        cell = page.locator("#queues tbody td").nth(4)
        heading = page.locator("#queues th").nth(4)
        assert await heading.inner_text() == "oldest"
        assert not await cell.inner_text()
        feed.age = 90.5
        await page.locator("#queues td", has_text="90.5 s").wait_for()
        assert await cell.inner_text() == "90.5 s"


class AgedFeed(Feed):
    """Of a queue whose oldest item has waited as long as it is told."""

    def __init__(self, target: Target) -> None:
        super().__init__(target, interval=0.1)
        self.age = 0.0

    def sample(self, *, now: bool = False) -> Sample:
        sample = super().sample(now=now)
        for queue in sample["queues"]:
            queue["oldest_age"] = self.age
        return sample


async def test_why_limits_are_what_they_are_is_told() -> None:
    config = BatchQueueConfig[int](
        consumer=lambda _: None,
        max_batch="auto",
        drain_tasks=DrainTaskPolicy.adaptive(1, 8),
        partitions=PartitionPolicy.fixed(16),
        selector=round_robin,
    )
    async with BatchQueue("found", config) as queue:
        await queue.produce(1)
        async with served(queue) as url, browsed(url) as page:
            why = "nothing has been changed yet"
            limit = page.locator("#handlers td", has_text=f"32: {why}")
            await limit.wait_for()
            await page.locator("#round", has_text=f"1 at work: {why}").wait_for()


async def test_an_end_is_told_and_the_curves_end_with_it(tmp_path: Path) -> None:
    path = tmp_path / "queues.sock"
    async with BatchQueue("q", consumed()) as queue:
        view = await asyncio.to_thread(open_view, queue, path, interval=0.1)
        feed = await asyncio.to_thread(SocketFeed, path)
        async with at_a_port(_app(feed, None)) as url, browsed(url) as page:
            await asyncio.to_thread(view.close)
            says = "shows its queues no more; the last look"
            await page.locator("#status.bad", has_text=says).wait_for()
            length = "courses.get(0).length"
            ended = await page.evaluate(length)
            # Two more answers, with nothing new in them.
            await asyncio.sleep(2.2)
            assert await page.evaluate(length) == ended


async def test_silence_is_told() -> None:
    async with BatchQueue("q", consumed()) as queue:
        feed = SilentFeed(queue)
        async with at_a_port(_app(feed, None)) as url, browsed(url) as page:
            await page.locator("#status.bad", has_text="no news since").wait_for()
            feed.is_silent = False
            await page.locator("#status", has_text="live").wait_for()


class SilentFeed(Feed):
    """Repeats its first sample, as a page's server does for a process that stands."""

    def __init__(self, target: Target) -> None:
        super().__init__(target, interval=0.1)
        self.is_silent = True
        self._first = super().sample()

    def sample(self, *, now: bool = False) -> Sample:
        return self._first if self.is_silent else super().sample(now=now)


async def test_a_clock_that_is_put_back_is_no_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such as by NTP: for an hour it would show old curves, and "no news"."""
    put_back = SimpleNamespace(
        monotonic=time.monotonic, time=lambda: time.time() - 3600
    )
    config = BatchQueueConfig[int](consumer=lambda _: None)
    async with (
        BatchQueue("q", config) as queue,
        served(queue) as url,
        browsed(url) as page,
    ):
        monkeypatch.setattr(_feed, "time", put_back)
        # After so long without news it would say so.
        await asyncio.sleep(5.0)
        assert await page.inner_text("#status") == "live"
        assert await page.evaluate("latest.time") < time.time() - 3000


async def test_it_goes_on_over_many_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server ends each one, so that nobody who looks holds its own end up."""
    monkeypatch.setattr(_web, "LASTS", 0.5)
    config = BatchQueueConfig[int](consumer=lambda _: None)
    async with (
        BatchQueue("q", config) as queue,
        served(queue) as url,
        browsed(url) as page,
    ):
        length = "[...courses.values()][0].length"
        before = await page.evaluate(length)
        await page.evaluate("""() => {
            window.said = new Set(), window.opened = 0;
            new MutationObserver(() => said.add(byId("status").textContent))
                .observe(byId("status"), { childList: true });
            events.addEventListener("open", () => { opened += 1; });
        }""")
        await asyncio.sleep(5.0)
        assert await page.evaluate("opened") > 1
        assert await page.evaluate("[...said]") == []
        assert await page.evaluate(length) > before + 4, "its curves go on"
