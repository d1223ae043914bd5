"""For verbs that take several steps: an error says how far the verb had come."""

from __future__ import annotations

from batchqueue_async._wording import add_note


def say_count(error: BaseException, name: str, count: int) -> None:
    """Let an error that leaves a verb say in its attribute `name` how many went before.

    A number that is there already is replaced: it is of another call, such as one on
    another queue inside of the iterable that raised. Never raises itself; a class that
    refuses the attribute gets the number as a note.
    """
    try:
        # Bypasses a `__setattr__` of the class, such as a frozen dataclass has.
        BaseException.__setattr__(error, name, count)
    except Exception:  # noqa: BLE001 - a user's class may do anything
        add_note(error, f"{name}: {count}")
