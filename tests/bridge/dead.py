"""What a call on a dead loop has to answer."""

from collections.abc import Callable
from concurrent.futures import Future

from batchqueue_async import BatchQueueError
from tests.bridge.background import answers


def error_of(call: Callable[[], object]) -> BaseException | None:
    """Return what the call raises; one that hangs is found by who waits for it."""
    try:
        call()
    except BaseException as raised:  # noqa: BLE001 - the test judges it
        return raised
    return None


def assert_dead(calls: "list[Future[BaseException | None]]") -> None:
    for error in answers(calls):
        assert type(error) is BatchQueueError
