"""Anyio's portal, which in a forked child says so instead of waiting for ever."""

from __future__ import annotations

from collections.abc import Callable

from anyio.from_thread import BlockingPortal


def portal_that_asks(refuse_inherited: Callable[[], None]) -> BlockingPortal:
    """Return a portal whose calls begin with `refuse_inherited`.

    Not a subclass: before anyio 4.13 each new portal is one of its backend's class.
    """
    portal = BlockingPortal()
    check_running = portal._check_running  # noqa: SLF001

    def check() -> None:
        refuse_inherited()
        check_running()

    # Private, but all calls of a portal begin with it, from anyio 4.5 to 4.16 at least.
    portal._check_running = check  # type: ignore[method-assign] # noqa: SLF001
    return portal
