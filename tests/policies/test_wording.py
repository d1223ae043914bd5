"""What messages show: settings without secrets, data by its type, all of it short."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import pytest

from batchqueue_async import (
    BatchQueueConfig,
    DeliveryError,
    PartitionPolicy,
    WhenFull,
    in_thread,
)
from batchqueue_async._engine.partitions.routing import SelectorPlacement
from batchqueue_async._policies.errors import Failure, InvalidSelection
from batchqueue_async._policies.selectors import by_key
from batchqueue_async._validation import refuse
from batchqueue_async._wording import kind_of, reason, shown, without_secrets
from batchqueue_async.ring import log_and_continue

CARD = "4111111111111111"
SECRET = "hunter2"


class Sale(NamedTuple):
    card: str


@dataclass
class Exporter:
    """A user's handler, whose repr tells everything."""

    dsn: str

    async def consume(self, batch: list[object]) -> None: ...


class Broken:
    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    "value,text",
    [
        (None, "None"),
        (True, "True"),
        (7, "7"),
        (2.5, "2.5"),
        ("1s", "'1s'"),
        (b"1s", "b'1s'"),
        ((1, "a"), "(1, 'a')"),
        (WhenFull.WAIT, "WhenFull.WAIT"),
        (OSError, "<class 'OSError'>"),
        (OSError("gone"), "OSError('gone')"),
        (PartitionPolicy.fixed(2), repr(PartitionPolicy.fixed(2))),
        (len, "the function len"),
        (in_thread(len), "in_thread(len)"),
        ({"a": 1}, "a dict"),
        (Broken(), "a Broken"),
        (Exporter("x"), "an Exporter"),
    ],
)
def test_a_setting_is_shown_if_its_repr_is_known(value: object, text: str) -> None:
    assert shown(value) == text


@pytest.mark.parametrize(
    "value",
    [
        f"postgresql://me:{SECRET}@host/db",
        f"postgresql://me:{SECRET}/@#{SECRET}@host/db",
        f"postgresql://me:{'x' * 300}{SECRET}@host/db",
        f"postgresql://host/db?password={SECRET}",
        f"host=here password={SECRET} user=me",
        f"host=here password='{SECRET} {SECRET}'",
        f"postgresql://me:{SECRET}@host/db".encode(),
        [f"postgresql://me:{SECRET}@host/db"],
        (f"--url=postgresql://me:{SECRET}@host/db",),
        {"password": SECRET},
        ({"password": SECRET},),
        partial(print, SECRET),
        Exporter(f"postgresql://me:{SECRET}@host/db"),
        OSError(f"no way to postgresql://me:{SECRET}@host/db"),
    ],
    ids=map(str, range(14)),
)
def test_a_setting_is_shown_without_secrets(value: object) -> None:
    assert SECRET not in shown(value)
    with pytest.raises(ValueError, match=r"^field must be better, got ") as refused:
        refuse("field", "better", value)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    "value",
    [
        "x" * 5_000_000,
        b"x" * 5_000_000,
        ["x" * 500] * 500,
        10**5_000,
        Exception("x" * 500),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_setting_is_shown_in_short(value: object) -> None:
    assert len(shown(value)) < 2_000


@pytest.mark.parametrize(
    "value,text",
    [(None, "None"), (CARD, "a str"), (int(CARD), "an int"), (Sale(CARD), "a Sale")],
)
def test_data_is_named_by_its_type(value: object, text: str) -> None:
    assert kind_of(value) == text


def test_an_error_is_shown_in_short_without_what_only_its_repr_has() -> None:
    with pytest.raises(UnicodeEncodeError) as failed:
        f"{CARD}\ud800".encode()
    assert CARD in repr(failed.value)
    assert CARD not in reason(failed.value)
    assert len(reason(ValueError("x" * 5_000_000))) < 300
    assert SECRET not in reason(OSError(f"postgresql://me:{SECRET}@host"))
    assert reason(ValueError()) == "ValueError()"


def test_a_group_of_errors_is_shown_with_one_of_them() -> None:
    inner = ExceptionGroup("b", [ConnectionError("away"), KeyError(1)])
    group = ExceptionGroup("a", [inner, ValueError()])
    assert reason(group) == (
        """ExceptionGroup("a (2 sub-exceptions), such as ConnectionError('away')")"""
    )
    loud = ExceptionGroup("x" * 500, [OSError(f"postgresql://me:{SECRET}@{'x' * 500}")])
    assert SECRET not in reason(loud)
    assert len(reason(loud)) < 600


def test_a_text_without_secrets_stays_as_it_is() -> None:
    for text in ("https://host/path?q=1", "me@host", "passed", "a: b", "key error"):
        assert without_secrets(text) == text


@pytest.mark.parametrize("word", ["89504e47", "token", "api_"])
def test_a_text_of_one_long_word_is_looked_at_at_once(word: str) -> None:
    text = word * 1_000
    began = time.thread_time()
    for _ in range(10):
        assert reason(ValueError(text)) == f"ValueError({text[:197] + '...'!r})"
    # Of this thread's own time, whatever else the machine does; it takes 0.05 s.
    assert time.thread_time() - began < 2.0


@pytest.mark.parametrize(
    "item",
    [CARD, int(CARD), Sale(CARD), {"card": CARD}, [CARD]],
    ids=lambda item: type(item).__name__,
)
def test_a_failed_item_stays_out_of_messages_and_reprs(item: object) -> None:
    failure = Failure(item, None, "failed")
    error = DeliveryError("q", 1, (failure,))
    for text in (str(failure), repr(failure), str(error), repr(error)):
        assert CARD not in text
    assert type(item).__name__ in str(error)
    assert error.failures[0].item is item


@pytest.mark.parametrize(
    "index",
    [CARD, int(CARD), Sale(CARD), None, -1, True, 0.0],
    ids=lambda index: f"{type(index).__name__} {len(str(index))}",
)
def test_what_a_selector_made_of_an_item_stays_out_of_messages(index: int) -> None:
    placement = SelectorPlacement([object()] * 2, lambda _item, _count: index)  # type: ignore[list-item]
    with pytest.raises(InvalidSelection, match="from 0 to 1, got ") as refused:
        placement.partition_of(Sale(CARD))
    assert CARD not in str(refused.value)


def test_a_key_that_cannot_be_hashed_stays_out_of_messages() -> None:
    with pytest.raises(TypeError) as refused:
        by_key(list)([CARD], 3)  # type: ignore[arg-type]
    assert CARD not in str(refused.value)


def test_a_handler_is_named_by_its_type() -> None:
    exporter = Exporter(f"postgresql://me:{SECRET}@host/db")
    with pytest.raises(TypeError, match="blocking") as refused:
        in_thread(exporter)
    assert SECRET not in str(refused.value)
    with pytest.raises(TypeError) as wrong:
        BatchQueueConfig(on_error=exporter)  # type: ignore[arg-type]
    assert SECRET not in str(wrong.value)


def test_an_event_of_the_ring_stays_out_of_its_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR):
        log_and_continue(ValueError("no"), 3, Sale(CARD))
    assert "event 3, a Sale, failed" in caplog.text
    assert CARD not in caplog.text
