"""A pytest plugin: every loop starts its tasks eagerly (`-p tests.stress.eager_tasks`).

An eager task runs its first step inside of `create_task`, before its creator goes on,
and ends there if it can: nobody may rely on a turn of the loop in between.
"""

import asyncio
from typing import Any

_create = asyncio.BaseEventLoop.__init__


def _with_eager_tasks(self: asyncio.BaseEventLoop, *arguments: Any) -> None:  # noqa: ANN401
    _create(self, *arguments)
    factory: Any = asyncio.eager_task_factory  # type: ignore[attr-defined]  # 3.12
    self.set_task_factory(factory)


asyncio.BaseEventLoop.__init__ = _with_eager_tasks  # type: ignore[assignment, method-assign]
