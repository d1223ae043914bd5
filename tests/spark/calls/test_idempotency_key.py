"""A key is the content's: the same for equal items, everywhere, and for no others."""

import datetime
import math
import subprocess
import sys
import uuid
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Row

from batchqueue_async.spark import idempotency_key

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda each: (
        st.lists(each).map(tuple)
        | st.dictionaries(st.text(), each)
        | st.frozensets(st.integers() | st.text())
    ),
    max_leaves=8,
)


class Colour(Enum):
    RED = "red"


@dataclass
class Order:
    number: int
    euros: float


@given(one=plain, other=plain)
def test_equal_items_share_a_key_and_others_do_not(one: object, other: object) -> None:
    assert (idempotency_key(one) == idempotency_key(other)) == (one == other)


MOMENT = datetime.datetime(2026, 1, 2, 3, 4, tzinfo=datetime.UTC)
TOKYO = datetime.timezone(datetime.timedelta(hours=9))


@pytest.mark.parametrize(
    "one, other",
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (Row(a=1, b="x"), (1, "x")),
        (1, 1.0),
        (Decimal("1.50"), Decimal("1.5")),
        (0.0, -0.0),
        (MOMENT, MOMENT.astimezone(TOKYO)),
        (math.nan, float("nan")),
        (Colour.RED, "red"),
        (Order(1, 2.0), Order(1, 2.0)),
        (pa.record_batch({"a": [1]}), pa.record_batch({"a": [1]})),
        ([1, 2], (1, 2)),
    ],
)
def test_what_is_equal_shares_a_key(one: object, other: object) -> None:
    assert idempotency_key(one) == idempotency_key(other)


@pytest.mark.parametrize(
    "one, other",
    [
        ("1", 1),
        ("a", b"a"),
        (("ab", "c"), ("a", "bc")),
        ((1, (2,)), (1, 2)),
        ({"a": None}, {}),
        (MOMENT, MOMENT.replace(tzinfo=None)),
        (math.inf, -math.inf),
        (datetime.timedelta(1), 86_400_000_000),
        (uuid.UUID(int=1), str(uuid.UUID(int=1))),
        (pa.record_batch({"a": [1]}), pa.record_batch({"b": [1]})),
        (Order(1, 2.0), {"number": 1, "euros": 2.0}),
    ],
)
def test_what_differs_has_keys_of_its_own(one: object, other: object) -> None:
    assert idempotency_key(one) != idempotency_key(other)


def test_the_salt_makes_other_keys() -> None:
    keys = {idempotency_key("x", salt=salt) for salt in ("", "charge", "refund")}

    assert len(keys) == 3
    assert all(len(key) == 32 and int(key, 16) for key in keys)


def test_a_key_is_the_same_in_every_process() -> None:
    item: Any = {"id": 7, "names": frozenset({"b", "a", "c"}), "at": MOMENT}
    program = (
        "import datetime; from batchqueue_async.spark import idempotency_key;"
        f"print(idempotency_key({item!r}, salt='s'))"
    )

    found = {
        subprocess.check_output(
            [sys.executable, "-c", program], text=True, env={"PYTHONHASHSEED": seed}
        ).strip()
        for seed in ("1", "2")
    }

    assert found == {idempotency_key(item, salt="s")}


def test_what_has_no_content_is_refused() -> None:
    with pytest.raises(TypeError, match="needs plain values, got an object"):
        idempotency_key({"a": [object()]})
    with pytest.raises(TypeError, match="salt must be a str, got 5"):
        idempotency_key(1, salt=5)  # type: ignore[arg-type]
