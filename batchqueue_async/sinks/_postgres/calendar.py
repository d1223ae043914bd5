"""The last and the first of Python's dates are dates: to asyncpg they are infinite.

It takes 9999-12-31 for PostgreSQL's `infinity`, of which many a table makes "until
further notice", and 0001-01-01 for `-infinity`. As a by-product rows are encoded in two
thirds of the time.

Where a column of timestamps is, an int is whole microseconds since 1970: that is how
`to_tuples` and its like make rows of Spark's, and what SQLite keeps.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from operator import itemgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .connections import Connection

# PostgreSQL counts from here.
_SINCE = datetime(2000, 1, 1)
_SINCE_UTC = _SINCE.replace(tzinfo=UTC)
_FIRST_DAY = _SINCE.toordinal()
_1970 = datetime(1970, 1, 1)
# The numbers of the types of timestamps on every server.
_TIMESTAMPS = frozenset((1114, 1184))


async def use_whole_calendar(connection: Connection) -> None:
    """Have the connection take each date and timestamp for what it is."""
    for name, encode in (
        ("date", _days),
        ("timestamp", _microseconds),
        ("timestamptz", _microseconds_utc),
    ):
        await connection.set_type_codec(
            name,
            schema="pg_catalog",
            encoder=encode,
            # asyncpg wants one, though a sink reads nothing.
            decoder=itemgetter(0),
            format="tuple",
        )


def _days(value: date) -> tuple[int]:
    return (value.toordinal() - _FIRST_DAY,)


def is_no_moment(value: object, type_number: int) -> bool:
    """Whether it is an int for a timestamp, but of no year from 1 to 9999."""
    if type_number not in _TIMESTAMPS or type(value) is not int:
        return False
    try:
        _moment(value)
    except OverflowError:
        return True
    return False


def _microseconds(value: Any) -> tuple[int]:  # noqa: ANN401 - what is not one is refused
    return _since(_SINCE, value if isinstance(value, datetime) else _moment(value))


def _microseconds_utc(value: Any) -> tuple[int]:  # noqa: ANN401 - as above
    if type(value) is int:
        return _microseconds(value)
    if not isinstance(value, datetime):
        value = _moment(value)
    # Without a zone it is this machine's time, as it is for asyncpg.
    return _since(_SINCE_UTC, value if value.tzinfo else value.astimezone(UTC))


def _since(start: datetime, value: datetime) -> tuple[int]:
    past = value - start
    return ((past.days * 86_400 + past.seconds) * 1_000_000 + past.microseconds,)


def _moment(value: Any) -> datetime:  # noqa: ANN401 - as above
    """Return a day's first moment, or the one so many microseconds after 1970."""
    if type(value) is int:
        return _1970 + timedelta(microseconds=value)
    return datetime(value.year, value.month, value.day)
