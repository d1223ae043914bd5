"""Whether threads are threads: gevent and eventlet can put greenlets in their place.

A loop waits in the operating system, and all greenlets of its thread wait with it: the
program would hang.
"""

from __future__ import annotations

import sys

from batchqueue_async._policies.errors import BatchQueueError

# Who replaces what `threading` starts, and how its own module tells whether it has.
_REPLACING = {
    "gevent": ("gevent.monkey", "is_module_patched", "threading"),
    "eventlet": ("eventlet.patcher", "is_monkey_patched", "thread"),
}


def refuse_greenlets(name: str) -> None:
    """Refuse to run a loop on a greenlet.

    Raises:
        BatchQueueError: Threads that start now are greenlets.
    """
    for library, (module, question, part) in _REPLACING.items():
        is_replaced = getattr(sys.modules.get(module), question, None)
        if is_replaced is not None and is_replaced(part):
            msg = (
                f"LoopThread {name!r} needs a thread of its own, and {library} makes "
                "greenlets of threads: use workers that are threads or processes"
            )
            raise BatchQueueError(msg)
