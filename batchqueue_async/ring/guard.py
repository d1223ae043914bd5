"""The lock of a ring that threads publish to: tried politely, never blocked on.

A thread that blocks on a lock makes each release a system call, and is awake too late
to get it, so it blocks again: with four threads a convoy forms that never dissolves
(4 to 5 times fewer events, measured). One that naps and tries again costs the others
nothing.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:

    class _RLock:
        def acquire(self, blocking: bool = True) -> bool: ...  # noqa: FBT002
        def release(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...
        def _is_owned(self) -> bool: ...

else:
    from _thread import RLock as _RLock

_NAP: Final = 30e-6


class Guard(_RLock):
    """Reentrant, for `__del__` methods and signal handlers that publish.

    A Ctrl-C can't leak it: one strikes only where a Python function begins, or after a
    call. So `__exit__` has to stay the C method, and `__enter__` undoes itself.
    """

    def __enter__(self) -> bool:
        try:
            while not self.acquire(False):  # noqa: FBT003
                time.sleep(_NAP)
        except BaseException:
            # Owned before, too, it was not refused: it has been acquired once more.
            if self._is_owned():
                self.release()
            raise
        return True
