"""What the driver of a run on executors is sent, and holds: no rows, in numbers."""

from __future__ import annotations

import resource
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .session import is_one_process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KIB, _MIB = 1 << 10, 1 << 20
_PATIENCE = 10_000  # Milliseconds.


@dataclass(frozen=True, slots=True)
class DriverUse:
    """The driver at one moment; sizes in bytes.

    Attributes:
        tasks: How many tasks have ended.
        received: What they have sent back: results, with metrics and commit messages.
        python: The most that the Python process has held.
        heap: What lives in the JVM's heap; None where executors live in it, too.
    """

    tasks: int
    received: int
    python: int
    heap: int | None

    @classmethod
    def of(cls, spark: SparkSession) -> DriverUse:
        """Look at it; collects the JVM's garbage."""
        tasks, received = _results(spark)
        heap = None if is_one_process(spark) else _live_heap(spark)
        return cls(tasks, received, _python_peak(), heap)

    def told_since(self, before: DriverUse) -> str:
        """Return a sentence on what has come since another moment."""
        received = (self.received - before.received) / _KIB
        grew = (self.python - before.python) / _MIB
        parts = [
            f"{self.tasks - before.tasks:,} tasks have sent it {received:,.0f} KiB",
            f"its Python process has grown by {grew:.1f} MiB",
        ]
        if self.heap is not None and before.heap is not None:
            heap = (self.heap - before.heap) / _MIB
            parts.append(f"what lives in its JVM's heap by {heap:.1f} MiB")
        return f"The driver: {', '.join(parts)}."


def _results(spark: SparkSession) -> tuple[int, int]:
    context = spark.sparkContext
    gateway = context._gateway  # noqa: SLF001  # the counts are in the JVM alone
    assert gateway is not None
    none = gateway.jvm.java.util.ArrayList()
    quantiles = gateway.new_array(gateway.jvm.double, 0)
    inner = context._jsc.sc()  # noqa: SLF001
    # A job's caller goes on before the store knows of its last stage.
    inner.listenerBus().waitUntilEmpty(_PATIENCE)
    store = inner.statusStore()
    found = store.stageList(none, False, False, quantiles, none)  # noqa: FBT003
    stages = [found.apply(number) for number in range(found.size())]
    return (
        sum(stage.numCompleteTasks() for stage in stages),
        sum(stage.resultSize() for stage in stages),
    )


def _live_heap(spark: SparkSession) -> int:
    jvm = spark._jvm  # noqa: SLF001
    assert jvm is not None
    jvm.java.lang.System.gc()
    runtime = jvm.java.lang.Runtime.getRuntime()
    return int(runtime.totalMemory() - runtime.freeMemory())


def _python_peak() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * _KIB
