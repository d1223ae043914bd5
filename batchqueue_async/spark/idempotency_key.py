"""A key that tells a service whether it has seen an item before."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from decimal import Decimal
from enum import Enum
from hashlib import blake2b
from typing import Any

import pyarrow as pa

from batchqueue_async._validation import require_instance
from batchqueue_async._wording import kind_of

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)


def idempotency_key(item: object, *, salt: str = "") -> str:
    """Return a hash of the item's content: 32 hexadecimal digits.

    `map_async` calls again after failures, and Spark runs tasks again. A service that
    remembers keys does its work once all the same. The key is the same in each attempt,
    process and version of Python. Equal items share it: who has equal rows that are to
    count twice needs a column that tells them apart.

    Args:
        item: As `to_items` makes it, or a part of it: a dict, whose order doesn't
            matter, a tuple, a Row, a dataclass, a record batch; of numbers, texts,
            bytes, times, UUIDs, enums, None, and of lists, sets and dicts of those.
        salt: Set it to what else the call depends on, such as its purpose.

    Raises:
        TypeError: Something in it has no content that is known here; or `salt` is no
            str.
    """
    require_instance("salt", salt, str, "a str")
    digest = blake2b(digest_size=16)
    digest.update(_text(salt))
    digest.update(_encoded(item))
    return digest.hexdigest()


# Each value is a letter for its kind, a length, and that much content: no two values
# that differ have the same bytes.


def _encoded(value: object) -> bytes:
    if isinstance(value, Enum):
        value = value.value
    if value is None:
        return b"N"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int | float | Decimal):
        return _number(value)
    return _sized(*_time(value) or _bytes(value) or _collection(value))


def _bytes(value: object) -> tuple[bytes, bytes] | None:
    if isinstance(value, bytes | bytearray | memoryview):
        return b"B", bytes(value)
    return (b"U", value.bytes) if isinstance(value, uuid.UUID) else None


def _time(value: object) -> tuple[bytes, bytes] | None:
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        # One moment is one key, in whatever time zone.
        return b"M", b"%d" % ((value - _EPOCH) // _MICROSECOND)
    if isinstance(value, datetime.timedelta):
        return b"P", b"%d" % (value // _MICROSECOND)
    if isinstance(value, datetime.date | datetime.time):
        return b"T", f"{type(value).__name__} {value.isoformat()}".encode()
    return None


def _collection(value: object) -> tuple[bytes, bytes]:
    if isinstance(value, Mapping):
        pairs = (_encoded(key) + _encoded(each) for key, each in value.items())
        return b"D", b"".join(sorted(pairs))
    if isinstance(value, AbstractSet):
        return b"S", b"".join(sorted(map(_encoded, value)))
    if isinstance(value, Sequence):
        return b"L", b"".join(map(_encoded, value))
    if isinstance(value, pa.RecordBatch):
        columns = (_encoded(each.to_pylist()) for each in value.columns)
        return b"R", _encoded(value.schema.names) + b"".join(columns)
    if is_dataclass(value) and not isinstance(value, type):
        named: dict[str, Any] = {
            each.name: getattr(value, each.name) for each in fields(value)
        }
        return b"O", _text(type(value).__qualname__) + _encoded(named)
    if hasattr(value, "tolist"):
        # NumPy's arrays and scalars, as Python's.
        return b"A", _encoded(value.tolist())
    msg = f"an idempotency key needs plain values, got {kind_of(value)}"
    raise TypeError(msg)


def _number(value: float | Decimal) -> bytes:
    try:
        # Equal numbers have one ratio, whatever their types.
        top, bottom = value.as_integer_ratio()
    except (OverflowError, ValueError):
        return _sized(b"F", str(float(value)).encode())
    return _sized(b"I", b"%x/%x" % (top, bottom))


def _text(value: str) -> bytes:
    return _sized(b"X", value.encode("utf-8", "surrogatepass"))


def _sized(kind: bytes, content: bytes) -> bytes:
    return b"%b%d:%b" % (kind, len(content), content)
