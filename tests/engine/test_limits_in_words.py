"""`str()` of a limit that is found by trying: what it came to, and why."""

import pytest

from batchqueue_async import BatchLimit, DrainTaskLimit


@pytest.mark.parametrize(
    "reason", ["faster", "no_gain", "slower", "throttled", "failed"]
)
def test_a_batch_limit_says_how_often_its_reason_was_one(reason: str) -> None:
    counts = dict.fromkeys(["faster", "no_gain", "slower", "throttled", "failed"], 0)
    limit = BatchLimit(max_batch=53, before=106, reason=reason, **counts | {reason: 5})  # type: ignore[arg-type]
    says = str(limit)
    assert says.startswith("batches have about 53 items, 106 before: ")
    assert says.endswith(" (changed 5 times for that)")


@pytest.mark.parametrize("reason", ["faster", "no_gain", "idle", "throttled"])
def test_a_drain_task_limit_says_how_often_its_reason_was_one(reason: str) -> None:
    counts = dict.fromkeys(["faster", "no_gain", "idle", "throttled"], 0)
    limit = DrainTaskLimit(
        drain_tasks=4,
        before=5,
        reason=reason,  # type: ignore[arg-type]
        **counts | {reason: 1},
    )
    says = str(limit)
    assert says.startswith("4 drain tasks work, 5 did before: ")
    assert says.endswith(" (changed 1 time for that)")
