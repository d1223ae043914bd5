"""Runs the loop until nothing is ready, without moving its clock."""

import asyncio


async def settle(max_cycles: int = 10_000) -> None:
    """Let every task run until all of them wait for a timer or for each other.

    For the virtual loop: there, nothing outside the loop can make a task ready. Raises
    `AssertionError` if they are still busy after `max_cycles` turns of the loop.

    To wait until items are handled, `await queue.flush()` instead.
    """
    loop = asyncio.get_running_loop()
    ready = loop._ready  # type: ignore[attr-defined]  # noqa: SLF001  # No other way.
    for _ in range(max_cycles):
        await asyncio.sleep(0)
        if not ready:
            return
    message = f"the loop is still busy after {max_cycles} cycles"
    raise AssertionError(message)
