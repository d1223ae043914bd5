"""G1: no wake-up is lost between an item's acceptance and the telling of it.

Where each item is looked at, those that come to others which are known wake nobody.
"""

import asyncio
import threading
from typing import Any

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig, SyncBatchQueue, fair_by
from batchqueue_async._engine.draining.linger_and_nap import Nap
from batchqueue_async._engine.partitions.key_buffer import KeyBuffer
from batchqueue_async._engine.partitions.partition import Partition
from batchqueue_async._engine.partitions.sized_partition import SizedPartition
from batchqueue_async._threads.guard import Guard
from tests.engine.until import until

pytestmark = pytest.mark.real_time


class Late:
    """A thread whose item comes as the loop ends the telling of an earlier one.

    It looks whether to tell after that.
    """

    def __init__(self, bridge: SyncBatchQueue[bytes]) -> None:
        self.accepted, self.go_on = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=bridge.produce, args=(b"late",))

    def look(self, partition: Partition[Any]) -> None:
        """To be called before each look: also before one as its item goes in."""
        guard = partition.guard
        assert isinstance(guard, Guard)
        if threading.current_thread() is self.thread and not guard.is_mine:
            self.accepted.set()
            assert self.go_on.wait(30.0)

    def come(self) -> None:
        """Let its item come now, and let it look in the loop's next turn."""
        if not self.accepted.is_set():
            self.thread.start()
            assert self.accepted.wait(30.0)
            asyncio.get_running_loop().call_soon(self.go_on.set)


@pytest.mark.parametrize(
    "settings, kind",
    [
        ({"buffer_bytes": 1000}, SizedPartition),
        ({"selector": fair_by(lambda _: "all")}, KeyBuffer),
    ],
    ids=["sizes", "fair"],
)
async def test_what_comes_as_the_owner_has_looked_is_told_of(
    settings: dict[str, Any],
    kind: type[SizedPartition[Any] | KeyBuffer[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handled: list[bytes] = []
    config = BatchQueueConfig[bytes](consumer=handled.extend, **settings)
    async with BatchQueue("q", config) as queue:
        late = Late(bridge := SyncBatchQueue(queue))
        must_tell, notify = kind.must_tell, Nap.notify

        def look_late(self: Any, coming: int = 0) -> bool:  # noqa: ANN401
            late.look(self)
            return must_tell(self, coming)

        def notify_and_go_on(self: Nap, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
            before = len(handled)
            notify(self, *args, **kwargs)
            if len(handled) > before:
                late.come()

        monkeypatch.setattr(kind, "must_tell", look_late)
        monkeypatch.setattr(Nap, "notify", notify_and_go_on)
        owner = queue._parts.partitions[0].owner
        await until(lambda: owner is not None and owner.listens)
        early: list[bytes] = []

        def are_handled() -> bool:
            return handled[: len(early)] == early

        while not late.accepted.is_set():
            # On a busy machine the loop's turn may be over before it is handled.
            early += [b"early"]
            await asyncio.to_thread(bridge.produce, b"early")
            await until(are_handled)
        await until(lambda: handled == [*early, b"late"], patience=5.0)
        await asyncio.to_thread(late.thread.join)
