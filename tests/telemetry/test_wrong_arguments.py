"""What watches queues refuses a wrong argument where it gets it, not at each look."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from batchqueue_async import BatchQueueManager
from batchqueue_async.telemetry import (
    PrometheusCollector,
    instrument,
    open_view,
    web_view,
    with_links,
)


async def later(item: object) -> None:
    pass


def generate(item: object) -> Iterator[None]:
    yield


def handler(batch: list[object]) -> None:
    pass


@pytest.mark.parametrize("wrong", [None, "5", float("nan"), float("inf"), -1, 0, True])
@pytest.mark.parametrize("watch", [PrometheusCollector, instrument, web_view])
def test_patience_is_a_number_above_zero(
    watch: Callable[..., Any], wrong: object
) -> None:
    """Each collection raised by it."""
    with pytest.raises((TypeError, ValueError), match=r"^patience must be "):
        watch(BatchQueueManager(), patience=wrong)


@pytest.mark.parametrize("wrong", [5, "provider", print])
def test_a_provider_is_one(wrong: Any) -> None:  # noqa: ANN401 - whatever it is
    with pytest.raises(TypeError, match=r"^meter_provider must be a MeterProvider"):
        instrument(BatchQueueManager(), meter_provider=wrong)
    with pytest.raises(TypeError, match=r"^tracer_provider must be a TracerProvider"):
        with_links(handler, tracer_provider=wrong)


@pytest.mark.parametrize("wrong", [None, 5, later, generate, lambda: None])
def test_an_origin_is_a_plain_function_of_an_item(
    wrong: Any,  # noqa: ANN401 - whatever it is
) -> None:
    """No item had a link by it, without a word."""
    with pytest.raises(TypeError, match=r"^origin must be "):
        with_links(handler, wrong)


@pytest.mark.parametrize("wrong", [5, True, [5], [b"127.0.0.1"]])
def test_allowed_hosts_are_names(wrong: Any) -> None:  # noqa: ANN401 - whatever it is
    """Of bytes none was ever the host that was asked for."""
    with pytest.raises(TypeError, match=r"^allowed_hosts must be "):
        web_view(BatchQueueManager(), allowed_hosts=wrong)


@pytest.mark.parametrize("wrong", [None, 5, b"queues.sock", Path])
def test_a_views_path_is_one(wrong: Any) -> None:  # noqa: ANN401 - whatever it is
    with pytest.raises(TypeError, match=r"^path must be a path, a str or a Path, got "):
        open_view(BatchQueueManager(), wrong)
