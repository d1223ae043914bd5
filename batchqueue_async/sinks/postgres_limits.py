"""How long a PostgreSQL server may take, so that one that stands still is noticed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from .checks import require_seconds

# Seconds for what a server that works does at once: to undo, to take its leave.
PARTING = 5.0
# Milliseconds that the server can count, three weeks.
_MOST = 2**31 - 1


class Limits:
    """How long a statement may take, as the server and as the client see it.

    The server ends a statement itself, and undoes it. If it doesn't, because it stands
    still or is out of reach, the client stops waiting a moment later.

    Args:
        statement_timeout: Seconds.

    Raises:
        TypeError: It is no number.
        ValueError: It isn't finite, or not above zero.
    """

    def __init__(self, statement_timeout: float) -> None:
        require_seconds("statement_timeout", statement_timeout)
        self._seconds = statement_timeout
        self.answer = statement_timeout + PARTING / 2

    @property
    def milliseconds(self) -> str:
        """The limit as the server takes it, which takes 0 for none."""
        return str(min(max(1, round(self._seconds * 1000)), _MOST))

    @property
    def statement(self) -> str:
        """What sets the limit on a connection.

        Transactions whose client stands still end, too: they would hold locks for ever.
        """
        return (
            f"SET statement_timeout = {self.milliseconds};"
            f" SET idle_in_transaction_session_timeout = {self.milliseconds}"
        )

    @asynccontextmanager
    async def copying(self) -> AsyncIterator[None]:
        """Bound a COPY, of which asyncpg watches the answer, not the way there."""
        async with asyncio.timeout(self.answer):
            yield

    @contextmanager
    def told(self) -> Iterator[None]:
        """Say in a TimeoutError of asyncpg's, which says nothing, what it is about."""
        try:
            yield
        except TimeoutError as error:
            if not error.args:
                told = (
                    f"the server did not answer within {self._seconds:g} s"
                    " (statement_timeout); whether it did what was asked is unknown"
                )
                error.args = (told,)
            raise


def refused_url(field: str, error: ValueError) -> ValueError:
    """Return what is raised for a URL that can't be read, without any of its text."""
    return ValueError(
        f"{field} must be a URL that asyncpg takes, postgresql://..., got one that it"
        f" refuses with a {type(error).__name__}; characters like /, @, : and # in a"
        " password must be percent-encoded"
    )
