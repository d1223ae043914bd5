"""A handler of a wrong form is refused where it is registered."""
# ruff: noqa: ANN401 - of any form

from __future__ import annotations

import functools
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig
from batchqueue_async._policies.handler_checks import require_handler


def takes_two(batch: list[int], other: int) -> None: ...


def takes_none() -> None: ...


def takes_a_keyword(batch: list[int], *, other: int) -> None: ...


def generates(batch: list[int]) -> Iterator[int]:
    yield from batch


async def generates_async(batch: list[int]) -> AsyncIterator[int]:
    for item in batch:
        yield item


class Method:
    """Has whatever methods it is told."""

    def __init__(self, **methods: Any) -> None:
        self.consume = lambda _batch: None
        vars(self).update(methods)


class Callable2:
    """Is called with two."""

    def __call__(self, batch: list[int], other: int) -> None: ...


class Writer:
    """Is called with a batch; its class is called with what it writes to."""

    def __init__(self, connection: object) -> None: ...

    def __call__(self, batch: list[int]) -> None: ...


ONE = r"must be callable with one argument, the batch, got "


@pytest.mark.parametrize(
    "handler, message",
    [
        (takes_two, rf"^handler {ONE}the function takes_two$"),
        (takes_none, rf"^handler {ONE}the function takes_none$"),
        (takes_a_keyword, rf"^handler {ONE}the function takes_a_keyword$"),
        (Callable2(), rf"^handler {ONE}a Callable2$"),
        (functools.partial(takes_none), rf"^handler {ONE}a partial$"),
        (generates, r"^handler must be no generator function, got .*generates$"),
        (generates_async, r"^handler must be no generator function, got .*_async$"),
        (
            functools.partial(functools.partial(generates)),
            r"^handler must be no generator function, got a partial$",
        ),
        (Writer, r"^handler must be a handler, not its class, got <class .*Writer'>$"),
        (Method(consume=takes_two), rf"^consume of handler {ONE}.*takes_two$"),
        (
            Method(on_close=takes_two),
            r"^on_close of handler must be callable with no argument, got .*takes_two$",
        ),
        (
            Method(on_idle=generates),
            r"^on_idle of handler must be no generator function, got .*generates$",
        ),
        (
            Method(on_tick=takes_none),
            r"^tick_every of handler must be a number, got None$",
        ),
    ],
)
def test_a_wrong_form_is_refused(handler: Any, message: str) -> None:
    """And not with the first batch."""
    with pytest.raises(TypeError, match=message):
        require_handler("handler", handler)
    queue = BatchQueue[int]("q")
    with pytest.raises(TypeError, match=message):
        queue.add_handler(int, handler)
    with pytest.raises(TypeError, match=message.replace("handler", "consumer", 1)):
        BatchQueueConfig[int](consumer=handler)
    assert queue.stats().handlers == ()


def test_a_tick_has_a_distance() -> None:
    """It could not be called all the time."""
    with pytest.raises(ValueError, match=r"^tick_every of handler must be > 0, got 0$"):
        require_handler("handler", Method(on_tick=takes_none, tick_every=0))


def with_more(call: Callable[..., Any]) -> Callable[..., Any]:
    """Bring the second argument, as a decorator may."""

    @functools.wraps(call)
    def wrapper(batch: list[int]) -> Any:
        return call(batch, 1)

    return wrapper


@pytest.mark.parametrize(
    "handler",
    [
        print,
        [].append,
        len,
        lambda batch, other=1: None,
        lambda *batches: None,
        lambda *_, **__: None,
        functools.partial(takes_two, other=1),
        with_more(takes_two),
        functools.partialmethod,
        MagicMock(tick_every=1.0),
        AsyncMock(tick_every=1.0),
        Method(on_idle=None, tick_every=None),
    ],
    ids=repr,
)
def test_what_can_be_called_with_a_batch_is_taken(handler: Any) -> None:
    """Also where nobody knows: in C, in mocks, behind a decorator."""
    require_handler("handler", handler)


class Misspelt:
    """Nobody calls its hook."""

    def consume(self, batch: list[int]) -> None: ...

    def on_idel(self) -> None: ...


class Inherited(Misspelt):
    """Nor that of its base."""


class Others:
    """Names that only look like it."""

    on_hold = False

    def consume(self, batch: list[int]) -> None: ...

    def on_message(self) -> None: ...

    def on_error(self) -> None: ...

    def once(self) -> None: ...


@pytest.mark.parametrize("handler", [Misspelt(), Inherited()])
def test_a_misspelt_hook_warns(handler: object) -> None:
    """At the line that registers it."""
    message = r"\.on_idel is never called: did you mean on_idle\?$"
    with pytest.warns(UserWarning, match=message) as caught:
        BatchQueue[int]("q").add_handler(int, handler)  # type: ignore[arg-type]
    assert [each.filename for each in caught] == [__file__]


def test_a_consumers_warns_once() -> None:
    """Where it is declared."""
    with pytest.warns(UserWarning, match="on_idel") as caught:
        BatchQueue("q", BatchQueueConfig[int](consumer=Misspelt()))
    assert [each.filename for each in caught] == [__file__]


def test_other_names_do_not() -> None:
    """They are the handler's own affair."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        require_handler("handler", Others())
