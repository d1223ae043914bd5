"""Runs planned faults against streams of all ways and sources."""

import contextlib
import random
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.spark.chaos.database import Database
from tests.spark.chaos.demo import Demo
from tests.spark.chaos.faults import DEMO, MODES, Fault, plan
from tests.spark.chaos.feeder import Feeder
from tests.spark.chaos.job import Job
from tests.spark.chaos.killing import Machines
from tests.spark.chaos.stream import Outcome, Start, Stream
from tests.support.cluster import running_cluster
from tests.support.postgres import find_binaries, server

Tell = Callable[[str], None]


STARTS = ((2, 2), (4, 5), (1, 3), (3, 7), (2, 4), (4, 2), (1, 1), (2, 5))


@dataclass(frozen=True)
class Part:
    """The faults that one stream gets, and what its drivers start with by turns."""

    way: str
    source: str
    faults: Sequence[Fault]
    starts: Sequence[Start] = STARTS


def divide(
    ways: Sequence[str], sources: Sequence[str], kills: int, chance: random.Random
) -> list[Part]:
    """Deal out the kills to a stream for each way and source, and to the demo."""
    parts = []
    for number, way in enumerate(ways):
        faults = plan(way, len(range(number, kills, len(ways))), chance)
        theirs = MODES if way == DEMO else sources
        for n, source in enumerate(theirs):
            if mine := faults[n :: len(theirs)]:
                parts.append(Part(way, source, mine))
    return parts


def run(parts: Sequence[Part], seed: int, tell: Tell) -> Generator[Outcome]:
    """Give each fault's outcome as soon as it is known."""
    chance = random.Random(seed)
    # In this order: what still runs writes into the folder.
    with scratch() as home, machines(chance) as running:
        for number, part in enumerate(parts):
            tell(f"{part.way}, {part.source}: starting")
            yield from run_part(running, part, home / str(number), tell)


def run_part(
    running: Machines, part: Part, home: Path, tell: Tell
) -> Iterator[Outcome]:
    """Run one stream, or the demo, through its faults."""
    home.mkdir()
    with victim_of(running, part, home) as victim:
        try:
            victim.start()
            for number, fault in enumerate(part.faults, 1):
                is_last = number == len(part.faults)
                yield (outcome := victim.suffer(fault, is_last=is_last))
                if not outcome.is_clean:
                    tell(victim.log)
        except Exception:
            tell(victim.log)
            raise


@contextlib.contextmanager
def victim_of(running: Machines, part: Part, home: Path) -> Iterator[Stream | Demo]:
    """What suffers a part's faults; not started."""
    if part.way == DEMO:
        with Demo(running, part.source, home) as demo:
            yield demo
        return
    job = Job(
        way=part.way,
        source=part.source,
        master=running.cluster.url,
        dsn=running.database.dsn,
        table=f"ids_{home.name}",
        checkpoint=str(home / "checkpoint"),
        files=str(home / "files"),
        halts=str(home / "halts"),
    )
    running.database.create_table(job.table)
    with Feeder(Path(job.files)), Stream(running, job, part.starts) as stream:
        yield stream


@contextlib.contextmanager
def machines(chance: random.Random) -> Iterator[Machines]:
    """A cluster and a database server; nothing of its own is left afterwards."""
    binaries = find_binaries()
    if binaries is None:
        msg = "this needs PostgreSQL: no initdb and pg_ctl on this machine"
        raise RuntimeError(msg)
    with (
        server(binaries) as database_server,
        running_cluster() as used,
        Database(database_server.dsn) as database,
    ):
        database.create_gates()
        yield Machines(used, database_server, database, chance)


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder for checkpoints, files and logs."""
    home = Path(tempfile.mkdtemp(prefix="chaos-"))
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)
