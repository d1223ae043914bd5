"""How many drain tasks a policy resolves to."""

from __future__ import annotations

import os
import pickle
from typing import TYPE_CHECKING

import pytest

from batchqueue_async._policies import drain_tasks
from batchqueue_async._policies.drain_tasks import (
    DrainTaskPolicy,
    SharedDrainTasks,
    usable_cpus,
)

if TYPE_CHECKING:
    from collections.abc import Callable

fixed = DrainTaskPolicy.fixed
cpu_cores = DrainTaskPolicy.cpu_cores
with_base = DrainTaskPolicy.cpu_cores_with_base


@pytest.mark.parametrize(
    "policy, cpus, expected",
    [
        (fixed(1), 64, 1),
        (fixed(8), 1, 8),
        (cpu_cores(0.001), 8, 1),
        (cpu_cores(1), 8, 8),
        (cpu_cores(0.5), 8, 4),
        (cpu_cores(0.5), 5, 3),
        (cpu_cores(0.5), 1, 1),
        (cpu_cores(2.0), 3, 6),
        (with_base(1, 0.25), 8, 3),
        (with_base(1, 0.25), 2, 2),
        (with_base(2, 0.25), 8, 4),
        (with_base(0, 0.1), 1, 1),
        (with_base(1, 0.25), 1, 1),
    ],
)
def test_a_policy_resolves_to_the_originals_numbers(
    policy: DrainTaskPolicy, cpus: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Halves round up, and there is always at least one drain task."""
    monkeypatch.setattr(drain_tasks, "usable_cpus", lambda: cpus)
    assert policy.resolve() == expected


@pytest.mark.parametrize(
    "make, message",
    [
        pytest.param(lambda: fixed(0), r"^n must be >= 1, got 0$", id="no tasks"),
        pytest.param(
            lambda: fixed(-1), r"^n must be >= 1, got -1$", id="fewer than none"
        ),
        pytest.param(
            lambda: cpu_cores(0), r"^multiplier must be > 0, got 0$", id="no multiplier"
        ),
        pytest.param(
            lambda: cpu_cores(-0.5),
            r"^multiplier must be > 0, got -0.5$",
            id="negative multiplier",
        ),
        pytest.param(
            lambda: cpu_cores(float("inf")),
            r"^multiplier must be finite, got inf$",
            id="infinite multiplier",
        ),
        pytest.param(
            lambda: with_base(-1, 1), r"^base must be >= 0, got -1$", id="negative base"
        ),
        pytest.param(
            lambda: with_base(1, 0),
            r"^multiplier must be > 0, got 0$",
            id="base, no multiplier",
        ),
        pytest.param(
            lambda: with_base(1, -1),
            r"^multiplier must be > 0, got -1$",
            id="base, negative multiplier",
        ),
    ],
)
def test_a_wrong_number_is_refused(
    make: Callable[[], DrainTaskPolicy], message: str
) -> None:
    """Counts are at least one and multipliers positive and finite."""
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("n", [True, 2.0, "2", None])
def test_a_count_is_an_int(n: object) -> None:
    """A bool or a float is no count."""
    with pytest.raises(TypeError, match=rf"^n must be an int, got {n!r}$"):
        fixed(n)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "policy, text",
    [
        (fixed(4), "DrainTaskPolicy.fixed(4)"),
        (cpu_cores(0.5), "DrainTaskPolicy.cpu_cores(0.5)"),
        (with_base(2, 0.25), "DrainTaskPolicy.cpu_cores_with_base(2, 0.25)"),
        (with_base(0, 0.25), "DrainTaskPolicy.cpu_cores(0.25)"),
    ],
)
def test_a_policy_is_a_value(policy: DrainTaskPolicy, text: str) -> None:
    """It is shown as the call that made it, which makes an equal one."""
    twin = eval(text, {"DrainTaskPolicy": DrainTaskPolicy})
    assert repr(policy) == text
    assert twin == policy
    assert hash(twin) == hash(policy)
    assert pickle.loads(pickle.dumps(policy)) == policy
    assert isinstance(policy, DrainTaskPolicy)


def test_different_policies_differ() -> None:
    """Equality is by variant and numbers, not by what they resolve to."""
    policies = {fixed(1), fixed(2), cpu_cores(1), cpu_cores(2), with_base(1, 1)}
    assert len(policies) == 5


def test_a_policy_comes_from_a_factory() -> None:
    """The bare class says nothing and can't be made."""
    with pytest.raises(TypeError):
        DrainTaskPolicy()  # type: ignore[abstract]


def test_cpus_are_those_that_this_process_may_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Affinity counts, not the machine's size."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3, 5}, raising=False)
    assert usable_cpus() == 3


@pytest.mark.parametrize("reported, expected", [(6, 6), (None, 1)])
def test_without_affinity_all_cpus_count(
    reported: int | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the system knows no affinity, or nothing at all."""
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: reported)
    assert usable_cpus() == expected


def test_shared_drain_tasks_are_a_value() -> None:
    """The same name and policy are the same capacity."""
    assert SharedDrainTasks("io", fixed(2)) == SharedDrainTasks("io", fixed(2))
    assert SharedDrainTasks("io", fixed(2)) != SharedDrainTasks("io", fixed(3))


@pytest.mark.parametrize(
    "name, policy, error, message",
    [
        ("", fixed(1), ValueError, r"^name must be a non-empty str, got ''$"),
        (3, fixed(1), TypeError, r"^name must be a str, got 3$"),
        (
            "io",
            2,
            TypeError,
            (
                r"^policy must be a DrainTaskPolicy such as "
                r"DrainTaskPolicy\.fixed\(2\), got 2$"
            ),
        ),
        ("io", None, TypeError, r"^policy must be a DrainTaskPolicy, got None$"),
        ("io", True, TypeError, r"^policy must be a DrainTaskPolicy, got True$"),
    ],
)
def test_wrong_shared_drain_tasks_are_refused(
    name: str, policy: DrainTaskPolicy, error: type[Exception], message: str
) -> None:
    """They have a name and a policy; a bare int gets the right call suggested."""
    with pytest.raises(error, match=message):
        SharedDrainTasks(name, policy)
