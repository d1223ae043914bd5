"""The three answers to a full partition."""

from __future__ import annotations

from batchqueue_async._policies.choices import WhenFull


def test_there_are_three_answers_to_a_full_partition() -> None:
    """Waiting, refusing the new item, displacing the oldest one."""
    assert [each.name for each in WhenFull] == ["WAIT", "DROP_NEWEST", "DROP_OLDEST"]


def test_an_answer_is_shown_as_it_is_written() -> None:
    """A config's repr can be read as code."""
    assert repr(WhenFull.DROP_OLDEST) == "WhenFull.DROP_OLDEST"
