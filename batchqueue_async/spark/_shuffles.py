"""Whether several jobs over one frame read the same shuffled rows.

Shuffled rows are lost with their executor, and Spark computes them again. Where that
depends on the order in which rows arrive, or on chance, they come out otherwise: other
rows are in the partitions that are still to come, some of which were there already, and
some are nowhere. Within a job Spark compares checksums, and begins again; what an
earlier job brought it can't take back.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from batchqueue_async import BatchQueueError
from batchqueue_async._log import logger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CHECKSUMS = "spark.sql.shuffle.orderIndependentChecksum"
# Either makes Spark compute checksums.
_SETTINGS = (f"{_CHECKSUMS}.enabled", f"{_CHECKSUMS}.enableFullRetryOnMismatch")
_SHUFFLE = "org.apache.spark.ShuffleDependency"


class Shuffles:
    """The shuffles that an RDD of the JVM reads, as they were at the first look."""

    def __init__(self, session: SparkSession, rdd_in_jvm: Any) -> None:  # noqa: ANN401
        self._context = session.sparkContext
        get = session.conf.get
        self._has_checksums = any(get(name, None) == "true" for name in _SETTINGS)
        self._rdd = rdd_in_jvm
        # For each shuffle, what Spark tells of it; None before the first look.
        self._first: dict[int, tuple[int, int]] | None = None

    def require_same(self) -> None:
        """Look; from the second time on, compare.

        Raises:
            BatchQueueError: Rows were computed again, and came out otherwise.
        """
        # A version of Spark without these checksums has no such methods.
        with contextlib.suppress(Py4JError):
            if self._first is None:
                self._first = {it: self._state_of(it) for it in self._found()}
                return
            for shuffle, before in self._first.items():
                now = self._state_of(shuffle)
                if now != before and not self._has_checksums:
                    self._warn()
                elif now != before and now[0]:
                    msg = (
                        "rows of df were lost with an executor, and came out otherwise"
                        " when Spark computed them again, as where they depend on"
                        " their order or on chance: some may have come twice, others"
                        " are missing. Use fetch=whole_frame, which is one job, or"
                        " write df, and read what was written"
                    )
                    raise BatchQueueError(msg)

    def _warn(self) -> None:
        # Once: what is to be done is the same for all jobs over the frame.
        self._has_checksums = True
        logger.warning(
            "rows of df were lost with an executor, and Spark computed them again;"
            " whether they came out the same nobody knows, since %s is off: if they"
            " depend on their order or on chance, some may have come twice, and others"
            " are missing",
            _SETTINGS[0],
            setting=_SETTINGS[0],
        )

    def _state_of(self, shuffle: int) -> tuple[int, int]:
        """Return how many of its parts have differed, and what tells these parts."""
        status = self._tracker().shuffleStatuses().apply(shuffle)
        return (
            status.checksumMismatchIndices().size(),
            # Of the numbers of the tasks that made them, which never come again.
            status.mapIdToMapIndex().hashCode(),
        )

    def _tracker(self) -> Any:  # noqa: ANN401 - an object of the JVM
        # By Java's reflection: Py4J can't look at this class, of whose methods one has
        # a type that PySpark doesn't ship.
        jvm: Any = self._context._jvm  # noqa: SLF001 - there is no other way
        named = jvm.java.lang.Class.forName("org.apache.spark.SparkEnv")
        field = named.getDeclaredField("mapOutputTracker")
        field.setAccessible(True)
        return field.get(self._context._jsc.sc().env())  # noqa: SLF001

    def _found(self) -> set[int]:
        """Return the numbers of the shuffles that tasks read, not those before them."""
        found: set[int] = set()
        seen: set[int] = set()
        left = [self._rdd]
        while left:
            rdd = left.pop()
            if rdd.id() in seen:
                continue
            seen.add(rdd.id())
            dependencies = rdd.dependencies()
            for at in range(dependencies.size()):
                dependency = dependencies.apply(at)
                if dependency.getClass().getName() == _SHUFFLE:
                    found.add(dependency.shuffleId())
                else:
                    left.append(dependency.rdd())
        return found
