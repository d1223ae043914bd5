"""One of the calls that may be in flight."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from batchqueue_async import PartialFailure

from .call import Call
from .results import ResultMaker

if TYPE_CHECKING:
    from .pipeline import CallPipeline

Ask: TypeAlias = Callable[[list[Any]], Awaitable[object]]
"""Makes an attempt with these items; returns what the call returned."""


class CallSlot:
    """A handler of the queue, for a type of item that only its own calls have.

    So each call in flight is in a partition of its own, and what the queue does for a
    batch it does for the call: attempts, waits, halves, the account. What is put into
    the queue are the positions of the call's items.
    """

    def __init__(self, name: str, ask: Ask, maker: ResultMaker) -> None:
        self.__qualname__ = name
        self._ask = ask
        self._maker = maker
        self._owner: CallPipeline | None = None
        self._call: Call | None = None
        # One name for the types of all slots: the log counts their retries together.
        self.position_type: type[int] = type("item", (int,), {"slot": self})
        self._positions: list[int] = []

    def take(self, call: Call, owner: CallPipeline) -> list[int]:
        """Have the call for its own; returns what to put into the queue."""
        self._call, self._owner = call, owner
        # They are made once, for all calls.
        self._positions += map(
            self.position_type, range(len(self._positions), len(call))
        )
        return self._positions[: len(call)]

    async def consume(self, positions: list[int]) -> None:
        call, owner = self._call, self._owner
        assert call is not None
        assert owner is not None
        items = call.items_at(positions)
        owner.attempted(len(items))
        try:
            returned = await self._ask(items)
            call.settle(self._maker.made(positions, items, returned))
        except Exception as error:
            # The queue has what failed tried again, or gives it up.
            call.is_tried_again = True
            owner.look()
            if isinstance(error, PartialFailure):
                self._keep_others(call, positions, items, error)
                if call.is_settled:
                    owner.settled(self, call)
            raise
        if call.is_settled:
            owner.settled(self, call)
            await owner.go_on()

    def give_up(self, positions: Sequence[int], error: BaseException) -> None:
        call, owner = self._call, self._owner
        assert call is not None
        assert owner is not None
        items = call.items_at(positions)
        owner.gave_up(len(items), error)
        call.settle(self._maker.failed(positions, items, _text_of(error)))
        if call.is_settled:
            owner.settled(self, call)
            owner.look()

    def _keep_others(
        self,
        call: Call,
        positions: Sequence[int],
        items: Sequence[Any],
        partial: PartialFailure,
    ) -> None:
        failed = {*partial.failed}
        good = [at for at in range(len(items)) if at not in failed]
        if not good or not failed.issubset(range(len(items))):
            # All of them, or places that are none: the queue says that.
            return
        results = partial.results
        if results is None or len(results) != len(items):
            msg = (
                "a PartialFailure must have results, one for each item of the batch,"
                f" got {'none' if results is None else len(results)} for {len(items)}"
            )
            raise ValueError(msg) from partial
        made = self._maker.made(
            [positions[at] for at in good],
            [items[at] for at in good],
            [results[at] for at in good],
        )
        call.settle(made)


def _text_of(error: BaseException) -> str:
    """Return an error's text for a column; the error is a user's, and may have none."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - whatever a user's class does
        text = ""
    text = f"{type(error).__name__}: {text}".removesuffix(": ")
    # Arrow takes no half of a surrogate.
    return text.encode("utf-8", "backslashreplace").decode()
