"""Flights get their weather from a service: 100 in each call, and within its limit.

The service, which this program starts, takes 100 items a call and 40 calls a second;
more are refused with 429. Spark runs two Python worker processes here. Each may make 18
calls a second: less than half of 40, since calls arrive less evenly than they leave.
The flights are New York's of the first week of 2013.

Run, in a clone: pip install -e . --group demo --group programs
python -m examples.spark.map_async
"""

import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from csv import DictReader
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from batchqueue_async import LoopThread, Retry, RetryAfter
from batchqueue_async.spark import map_async
from examples.flights.data import input_files
from examples.spark_session import quiet_session

FLIGHTS = 5_000
PROCESSES = 2
ITEMS_A_CALL = 100
CALLS_A_SECOND = 40
CALLS_OF_A_PROCESS = 18.0


class WeatherService:
    def __init__(self, file: Path) -> None:
        with file.open(newline="") as lines:
            self.temperatures = {
                (row["origin"], row["time_hour"]): row["temp"]
                for row in DictReader(lines)
            }
        self.begun: deque[float] = deque()
        self.refused = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        application = web.Application()
        application.router.add_post("/weather", self.answer)
        runner = web.AppRunner(application)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        await runner.cleanup()

    async def answer(self, request: web.Request) -> web.Response:
        places = await request.json()
        if len(places) > ITEMS_A_CALL:
            return web.Response(status=413)
        now = time.monotonic()
        while self.begun and self.begun[0] < now - 1:
            self.begun.popleft()
        if len(self.begun) >= CALLS_A_SECOND:
            self.refused += 1
            return web.Response(status=429, headers={"Retry-After": "0.5"})
        self.begun.append(now)
        known = self.temperatures
        found = [known.get((each["origin"], each["hour"]), "NA") for each in places]
        return web.json_response([None if it == "NA" else float(it) for it in found])


async def weather_of(
    client: aiohttp.ClientSession, flights: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    places = [{"origin": it["origin"], "hour": it["time_hour"]} for it in flights]
    async with client.post("/weather", json=places) as response:
        if response.status == 429:  # noqa: PLR2004 - Too Many Requests
            raise RetryAfter(float(response.headers["Retry-After"]))
        response.raise_for_status()
        temperatures = await response.json()
    return [
        {"carrier": flight["carrier"], "origin": flight["origin"], "fahrenheit": it}
        for flight, it in zip(flights, temperatures, strict=True)
    ]


def main() -> None:
    spark = quiet_session("weather", master=f"local[{PROCESSES}]")
    with input_files(None, FLIGHTS) as files, LoopThread() as loop_thread:
        service = WeatherService(files.weather)
        flights = spark.read.csv(str(files.flights), header=True)
        on_loop = loop_thread.portal.wrap_async_context_manager
        with on_loop(service.running()) as url:
            enriched = map_async(
                flights.repartition(PROCESSES),
                weather_of,
                "carrier STRING, origin STRING, fahrenheit DOUBLE",
                open=lambda: aiohttp.ClientSession(url),
                max_batch=ITEMS_A_CALL,
                in_flight=4,
                ordered=False,
                timeout=5.0,
                retry=Retry(attempts=5, retry_on=(aiohttp.ClientError, TimeoutError)),
                rate=CALLS_OF_A_PROCESS,
            ).cache()
            print(f"{enriched.count()} flights")
        means = enriched.groupBy("origin").agg({"fahrenheit": "avg"}).orderBy("origin")
        for origin, mean in means.collect():
            print(f"{origin} {mean:.1f} degrees Fahrenheit")
        print(f"{service.refused} calls were refused")
    spark.stop()


if __name__ == "__main__":
    main()
