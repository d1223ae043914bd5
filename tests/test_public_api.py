"""The public names: all of them, each once, each explained."""

import importlib.resources
import inspect
import subprocess
import sys
import typing

import pytest

import batchqueue_async

PROMISED = {
    "BatchFunction",
    "BatchHandler",
    "BatchLimit",
    "BatchQueue",
    "BatchQueueConfig",
    "BatchQueueError",
    "BatchQueueManager",
    "BatchQueueStats",
    "ConfigConflict",
    "CostBalancer",
    "Cuts",
    "DeliveryError",
    "DrainBalancer",
    "DrainTaskLimit",
    "DrainTaskPolicy",
    "DuplicateQueue",
    "ErrorHandler",
    "HandlerLike",
    "HandlerStats",
    "HandlesClose",
    "HandlesFlush",
    "HandlesIdle",
    "HandlesOpen",
    "HandlesTick",
    "Histogram",
    "IdleBackoff",
    "ItemTooLarge",
    "LoopThread",
    "Merging",
    "Offer",
    "PartialFailure",
    "PartitionPolicy",
    "PartitionSelector",
    "PartitionStats",
    "ProcessDied",
    "Rebalancing",
    "Retry",
    "RetryAfter",
    "RetryHook",
    "SharedDrainTasks",
    "SyncBatchHandler",
    "SyncBatchQueue",
    "ThroughputBalancer",
    "WhenFull",
    "WouldDeadlock",
    "by_key",
    "by_type",
    "close_process_queues",
    "drain_on_signals",
    "fair_by",
    "in_process",
    "in_thread",
    "process_queue",
    "round_robin",
}
"""What the design fixes; more may be exported, nothing of it may be missing."""


def test_every_promised_name_is_there() -> None:
    assert set(batchqueue_async.__all__) >= PROMISED


def test_names_are_listed_once_and_sorted() -> None:
    assert batchqueue_async.__all__ == sorted(set(batchqueue_async.__all__))


def test_all_lists_everything_public() -> None:
    public = {
        name
        for name in dir(batchqueue_async)
        if not name.startswith("_")
        and not inspect.ismodule(getattr(batchqueue_async, name))
    }
    assert public == set(batchqueue_async.__all__)


def test_no_submodule_is_public() -> None:
    """`logging`, `ring`, `spark` and the like are imported by who wants them."""
    modules = {
        name
        for name, value in vars(batchqueue_async).items()
        if inspect.ismodule(value) and not name.startswith("_")
    }
    allowed = {
        "logging",
        "ring",
        "simulation",
        "sinks",
        "spark",
        "telemetry",
        "testing",
    }
    assert modules <= allowed


ALIASES = {"BatchFunction", "HandlerLike"}
"""Of types: there is no object that could have a docstring."""


@pytest.mark.parametrize("name", sorted({*batchqueue_async.__all__} - ALIASES))
def test_every_name_has_a_docstring(name: str) -> None:
    value = getattr(batchqueue_async, name)
    doc = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
    assert doc
    assert not doc.startswith(f"{name}("), "not the one that a dataclass makes up"


def _public_methods() -> list[str]:
    return sorted(
        f"{name}.{member}"
        for name in batchqueue_async.__all__
        if inspect.isclass(value := getattr(batchqueue_async, name))
        for member in vars(value)
        if not member.startswith("_")
        and (
            inspect.isroutine(found := inspect.getattr_static(value, member))
            or isinstance(found, property)
        )
    )


@pytest.mark.parametrize("path", _public_methods())
def test_every_public_method_and_property_has_a_docstring(path: str) -> None:
    name, _, member = path.partition(".")
    assert inspect.getdoc(getattr(getattr(batchqueue_async, name), member))


@pytest.mark.parametrize(
    "declared",
    [
        batchqueue_async.BatchQueueConfig,
        batchqueue_async.Retry,
        batchqueue_async.BatchQueue.add_handler,
    ],
)
def test_what_a_declaration_is_annotated_with_can_be_looked_up(
    declared: object,
) -> None:
    """As by who makes a config from a file: late imports must not be in the way."""
    assert typing.get_type_hints(declared)


def test_errors_share_a_base() -> None:
    """One `except BatchQueueError` catches all that the library raises of its own."""
    for name in ("ConfigConflict", "DeliveryError", "DuplicateQueue", "ProcessDied"):
        error = getattr(batchqueue_async, name)
        assert issubclass(error, batchqueue_async.BatchQueueError)
    assert not issubclass(batchqueue_async.BatchQueueError, OSError | ValueError)


def test_the_package_says_that_it_is_typed() -> None:
    assert importlib.resources.files(batchqueue_async).joinpath("py.typed").is_file()


def printed(code: str) -> list[str]:
    """Return the words that a program of its own prints."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_importing_it_needs_no_extra() -> None:
    """Neither uvloop nor PySpark nor any client is imported by the core."""
    code = (
        "import sys; import batchqueue_async; "
        "extras = {'uvloop', 'pyspark', 'pandas', 'rich', 'aiosqlite', 'asyncpg'}; "
        "print(*sorted(extras & set(sys.modules)))"
    )
    assert printed(code) == []


def test_importing_it_compiles_no_methods() -> None:
    """`dataclass` would, for each class: half of the import's time."""
    code = (
        "import sys, inspect; import batchqueue_async; "
        "ours = [m for n, m in sys.modules.items() if n.startswith('batchqueue')]; "
        "classes = {c for m in ours for _, c in inspect.getmembers(m, inspect.isclass) "
        "if c.__module__.startswith('batchqueue')}; "
        "print(len(classes) > 50, *sorted({c.__name__ for c in classes "
        "for f in vars(c).values() if inspect.isfunction(f) "
        "and f.__code__.co_filename == '<string>'}))"
    )
    assert printed(code) == ["True"]


def test_who_rebalances_has_the_plan_ready_from_the_start() -> None:
    """An import in the first round would stall the loop."""
    code = """
import asyncio, sys
from batchqueue_async import *

config = BatchQueueConfig(
    drain_tasks=DrainTaskPolicy.fixed(2),
    partitions=PartitionPolicy.fixed(4),
    rebalancing=Rebalancing(),
)

async def main():
    before = "batchqueue_async._policies.lpt" in sys.modules
    async with BatchQueue("rows", config):
        print(before, "batchqueue_async._policies.lpt" in sys.modules)

asyncio.run(main())
"""
    assert printed(code) == ["False", "True"]


def test_importing_it_takes_nothing_along_that_few_programs_use() -> None:
    """Each costs milliseconds at every start: threads of anyio, retries, fractions."""
    code = (
        "import sys, asyncio, anyio; before = set(sys.modules); "
        "import batchqueue_async; "
        "rare = {'anyio.from_thread', 'anyio.to_thread', 'anyio.lowlevel', 'random', "
        "'fractions', 'decimal', 'numbers', 'importlib.util', 'ssl', "
        "'batchqueue_async._engine.lifecycle.rebalancer', 'multiprocessing.context'}; "
        "print(*sorted(rare & (set(sys.modules) - before)))"
    )
    assert printed(code) == []


@pytest.mark.spark
def test_what_each_process_of_spark_imports_is_no_more_than_it_needs() -> None:
    """A query starts dozens of them; each pays for what few need."""
    code = (
        "import sys, pyspark_batchqueue; "
        "print(*sorted({'pyarrow.compute', 'pyarrow.csv', 'pyarrow.parquet', 'pandas'}"
        " & set(sys.modules)))"
    )
    assert printed(code) == []
