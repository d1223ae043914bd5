"""Tables that were dropped and made again, renamed, restored or altered."""

import contextlib
from pathlib import Path
from typing import Any

import asyncpg
import pyarrow as pa
import pytest

from batchqueue_async.sinks import Epoch
from batchqueue_async.sinks.postgres_staged import PostgresStagedSink
from batchqueue_async.sinks.sqlite_staged import SqliteStagedSink
from batchqueue_async.sinks.staged import StagedSink
from tests.sinks.databases import Database, Postgres, Sqlite, deliver, ids
from tests.sinks.places import attempt, batch

# The order of statements counts, and no loop has a part in that.
pytestmark = pytest.mark.asyncio(loop_factories=["asyncio"])

FIRST, SECOND = Epoch("nightly", 0), Epoch("nightly", 1)
TABLE = "CREATE TABLE {} (id BIGINT, name TEXT)"


def staged_sink(database: Database, table: str) -> StagedSink[object]:
    if isinstance(database, Sqlite):
        return SqliteStagedSink(database.path, table)
    assert isinstance(database, Postgres)
    return PostgresStagedSink(database.dsn, table)


async def publish(
    database: Database, table: str, epoch: Epoch, *numbers: int, **more: object
) -> bool:
    """Do what a batch write does; return whether it was new."""
    sink, mine = staged_sink(database, table), attempt(epoch=epoch)
    rows = batch(*numbers).rename_columns(["id", "name"])
    for name, value in more.items():
        rows = rows.append_column(name, pa.array([value] * len(numbers)))
    try:
        await sink.stage(mine, [rows])
        return await sink.publish(epoch, [await sink.seal(mine)])
    finally:
        await sink.close()


async def numbers(database: Database, table: str) -> list[int]:
    return [n for (n,) in await database.run(f"SELECT id FROM {table} ORDER BY id")]


async def test_a_table_that_was_made_again_gets_the_epoch_again(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    await deliver(database.sink("a"), FIRST, 1)
    assert await publish(database, "b", FIRST, 1)
    for table in ("a", "b"):
        await database.run(f"DROP TABLE {table}")
        await database.run(TABLE.format(table))
    caplog.clear()
    for _ in range(2):
        await deliver(database.sink("a"), FIRST, 2)
        await publish(database, "b", FIRST, 2)

    assert await ids(database, "a") == [2]
    assert await numbers(database, "b") == [2]
    told = [r.getMessage() for r in caplog.records if r.name == "batchqueue_async"]
    assert told == [
        f"batch 0 of query nightly was committed into a table {table} that was dropped"
        " since: it is committed into the new one of that name, too"
        for table in ("a", "b")
    ]


async def test_a_view_in_a_table_s_place_gets_the_epoch_again_once(
    postgres: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    """Through one kind of sink the epoch was lost, through the other it came twice."""
    for table in ("a", "b"):
        await postgres.run(TABLE.format(table))
    await deliver(postgres.sink("a"), FIRST, 1)
    assert await publish(postgres, "b", FIRST, 1)
    for table in ("a", "b"):
        await postgres.run(f"DROP TABLE {table}")
        await postgres.run(TABLE.format(f"new_{table}"))
        await postgres.run(f"CREATE VIEW {table} AS SELECT * FROM new_{table}")

    for _ in range(2):
        await deliver(postgres.sink("a"), FIRST, 2)
    assert await publish(postgres, "b", FIRST, 2)
    assert not await publish(postgres, "b", FIRST, 2)

    assert await numbers(postgres, "a") == await numbers(postgres, "b") == [2]
    assert "dropped since" in caplog.text


async def test_a_table_that_was_renamed_keeps_its_epochs(database: Database) -> None:
    await deliver(database.sink("a"), FIRST, 1)
    assert await publish(database, "b", FIRST, 1)
    for table in ("a", "b"):
        await database.run(f"ALTER TABLE {table} RENAME TO {table}2")
        await database.run(TABLE.format(table))
    # The new ones of the old names first: they leave the others' fences alone.
    await deliver(database.sink("a"), FIRST, 2)
    await deliver(database.sink("a2"), FIRST, 3)
    assert await publish(database, "b", FIRST, 2)
    assert not await publish(database, "b2", FIRST, 3)

    assert await ids(database, "a2") == [1]
    assert await ids(database, "a") == [2]
    assert await numbers(database, "b2") == [1]
    assert await numbers(database, "b") == [2]


@pytest.mark.parametrize(
    "more, join",
    [
        ("PARTITION BY RANGE (id)", "ALTER TABLE {0} ATTACH PARTITION old_{0} DEFAULT"),
        ("", "ALTER TABLE old_{0} INHERIT {0}"),
        ("", "DROP TABLE {0}; CREATE VIEW {0} AS SELECT id, name FROM old_{0}"),
    ],
)
async def test_a_table_that_became_a_part_of_its_namesake_keeps_its_epochs(
    postgres: Postgres, caplog: pytest.LogCaptureFixture, more: str, join: str
) -> None:
    """As to partition what has rows, or to rename it: the epoch came twice."""
    for table in ("a", "b"):
        await postgres.run(TABLE.format(table))
    await deliver(postgres.sink("a"), FIRST, 1)
    assert await publish(postgres, "b", FIRST, 1)
    for table in ("a", "b"):
        await postgres.run(f"ALTER TABLE {table} RENAME TO old_{table}")
        await postgres.run(f"{TABLE.format(table)} {more}")
        for statement in join.format(table).split("; "):
            await postgres.run(statement)

    await deliver(postgres.sink("a"), FIRST, 1)
    assert not await publish(postgres, "b", FIRST, 1)
    await deliver(postgres.sink("a"), SECOND, 2)
    assert await publish(postgres, "b", SECOND, 2)
    assert await ids(postgres, "a") == await numbers(postgres, "b") == [1, 2]
    assert [r for r in caplog.records if r.name == "batchqueue_async"] == []


async def test_a_table_with_the_rows_of_before_can_be_given_their_fences(
    postgres: Postgres,
) -> None:
    """As the guide says it."""
    await postgres.run(TABLE.format("a"))
    await deliver(postgres.sink("a"), FIRST, 1)
    await postgres.run("CREATE TABLE new_a (LIKE a)")
    await postgres.run("INSERT INTO new_a SELECT * FROM a")
    await postgres.run("DROP TABLE a")
    await postgres.run("ALTER TABLE new_a RENAME TO a")
    await postgres.run(
        "UPDATE batchqueue_epochs SET target_oid = 'a'::regclass WHERE target = 'a'"
    )
    await deliver(postgres.sink("a"), FIRST, 1)

    assert await ids(postgres, "a") == [1]


async def test_a_fence_of_a_version_without_identities_counts(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    times = ("committed_at", "epochs"), ("published_at", "published")
    for time, name in times[: 1 if isinstance(database, Sqlite) else 2]:
        await database.run(
            f"""CREATE TABLE batchqueue_{name} (target TEXT NOT NULL DEFAULT '',
            query TEXT, batch BIGINT, rows BIGINT NOT NULL,
            {time} TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,
            PRIMARY KEY (target, query, batch))"""
        )
        for table in ("a", "b"):
            await database.run(
                f"INSERT INTO batchqueue_{name} (target, query, batch, rows)"
                f" VALUES ('{table}', 'nightly', 0, 1)"
            )
    await deliver(database.sink("a"), FIRST, 1)
    assert not await publish(database, "b", FIRST, 1)
    await deliver(database.sink("a"), SECOND, 2)
    assert await publish(database, "b", SECOND, 2)

    assert await ids(database, "a") == [2]
    assert await numbers(database, "b") == [2]
    assert [r for r in caplog.records if r.name == "batchqueue_async"] == []


async def test_a_version_without_identities_may_go_on(database: Database) -> None:
    """Processes of two versions may work side by side during an update."""
    await deliver(database.sink("a"), FIRST, 1)
    await database.run(
        "INSERT INTO batchqueue_epochs (target, query, batch, rows)"
        " VALUES ('a', 'nightly', 1, 1) ON CONFLICT (target, query, batch) DO NOTHING"
    )
    await deliver(database.sink("a"), SECOND, 2)

    assert await ids(database, "a") == [1]


async def test_a_restored_database_keeps_its_epochs(postgres: Postgres) -> None:
    """A dump keeps names, and gives every table a new oid: the fences, too."""
    await postgres.run(TABLE.format("a"))
    await deliver(postgres.sink("a"), FIRST, 1)
    for table in ("a", "batchqueue_epochs"):
        await postgres.run(f"CREATE TABLE copy (LIKE {table} INCLUDING ALL)")
        await postgres.run(f"INSERT INTO copy SELECT * FROM {table}")
        await postgres.run(f"DROP TABLE {table}")
        await postgres.run(f"ALTER TABLE copy RENAME TO {table}")
    await deliver(postgres.sink("a"), FIRST, 2)
    await deliver(postgres.sink("a"), SECOND, 3)
    await deliver(postgres.sink("a"), SECOND, 4)

    assert await ids(postgres, "a") == [1, 3]


async def test_a_table_that_sqlite_s_way_to_alter_rebuilt_keeps_its_epochs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A new one is filled, the old one dropped; many tools forget its triggers."""
    file = Sqlite(tmp_path / "store.db")
    await file.run(TABLE.format("a"))
    await deliver(file.sink("a"), FIRST, 1)
    for _ in range(2):
        await file.run(TABLE.format("rebuilt"))
        await file.run("INSERT INTO rebuilt SELECT * FROM a")
        await file.run("DROP TABLE a")
        await file.run("ALTER TABLE rebuilt RENAME TO a")
        await deliver(file.sink("a"), FIRST, 2)
        await deliver(file.sink("a"), SECOND, 3)
        await file.run("VACUUM")

    assert await ids(file, "a") == [1, 3]
    assert [r for r in caplog.records if r.name == "batchqueue_async"] == []


async def test_the_mark_is_never_in_the_way(tmp_path: Path) -> None:
    """Of a table, a view or an index table, filled through either sink."""
    file = Sqlite(tmp_path / "store.db")
    await file.run(TABLE.format("a"))
    await file.run("CREATE VIEW v AS SELECT id, name FROM a")
    await file.run(
        "CREATE TRIGGER i INSTEAD OF INSERT ON v"
        " BEGIN INSERT INTO a VALUES (new.id, new.name); END"
    )
    await file.run("CREATE VIRTUAL TABLE words USING fts5 (id, name)")
    for table in ("a", "v", "words"):
        for _ in range(2):
            await deliver(file.sink(table), FIRST, 1)
    await file.run("UPDATE a SET name = 'n1'")
    await file.run("ALTER TABLE a ADD COLUMN more TEXT")
    await file.run("DELETE FROM a WHERE id = 7")

    assert await ids(file, "a") == [1, 1]
    assert await file.run("SELECT id FROM words") == [(1,)]


async def test_a_stale_staging_table_of_another_shape_is_made_anew(
    database: Database,
) -> None:
    sink = staged_sink(database, "a")
    left = attempt(epoch=FIRST, run="killed")
    await sink.stage(left, [batch(1).rename_columns(["id", "name"])])
    await sink.seal(left)
    await sink.close()
    await database.run("DROP TABLE a")
    # Numbers of before would take the zeros from the text.
    await database.run("CREATE TABLE a (more DOUBLE PRECISION, name TEXT, id TEXT)")

    sink, mine = staged_sink(database, "a"), attempt(epoch=FIRST)
    rows = batch(1).rename_columns(["id", "name"]).drop_columns(["id"])
    rows = rows.append_column("id", pa.array(["007"]))
    await sink.stage(mine, [rows])
    assert await sink.publish(FIRST, [await sink.seal(mine)])
    await sink.close()

    assert await database.run("SELECT * FROM a") == [(None, "w1", "007")]


async def test_a_process_that_goes_on_sees_the_new_table(database: Database) -> None:
    """An executor's sink lives longer than tables may."""
    sink = staged_sink(database, "a")
    for epoch, statement in (
        (FIRST, "ALTER TABLE a ADD COLUMN more TEXT"),
        (SECOND, "DROP TABLE a"),
        (SECOND, "SELECT 1"),
    ):
        mine = attempt(epoch=epoch)
        await sink.stage(mine, [batch(1).rename_columns(["id", "name"])])
        assert await sink.publish(epoch, [await sink.seal(mine)])
        await database.run(statement)
        if statement.startswith("DROP"):
            await database.run("CREATE TABLE a (id BIGINT, name TEXT, x INT)")
    assert await publish(database, "a", Epoch("other", 0), 2, x=5)
    await sink.close()

    assert await database.run("SELECT id, x FROM a ORDER BY id") == [(1, None), (2, 5)]


async def test_a_process_that_goes_on_sees_a_file_that_took_the_place_of_its_own(
    tmp_path: Path,
) -> None:
    """Its connection was to a file without a name, and refused by SQLite for good."""
    file = Sqlite(tmp_path / "store.db")
    sink, staged = file.sink("a"), staged_sink(file, "b")
    for number, epoch in enumerate((FIRST, SECOND)):
        file.path.unlink(missing_ok=True)
        for table in ("a", "b"):
            await file.run(TABLE.format(table))
        await sink.begin(epoch)
        await sink.write(epoch, [(number, f"n{number}")])
        await sink.commit(epoch)
        mine = attempt(epoch=epoch)
        rows = batch(number).rename_columns(["id", "name"])
        await staged.stage(mine, [rows])
        assert await staged.publish(epoch, [await staged.seal(mine)])

        assert await ids(file, "a") == [number]
        assert await numbers(file, "b") == [number]
    await sink.close()
    await staged.close()


async def test_two_processes_that_commit_into_the_new_table_commit_once(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    await deliver(database.sink("a"), FIRST, 1)
    await database.run("DROP TABLE a")
    await database.run(TABLE.format("a"))
    one, other = database.sink("a"), database.sink("a")
    for number, sink in enumerate((one, other)):
        await sink.begin(FIRST)
        await sink.write(FIRST, [(number, f"n{number}")])
        if sink is one:
            await sink.commit(FIRST)
    await other.commit(FIRST)
    for sink in (one, other):
        await sink.close()

    assert await ids(database, "a") == [0]
    assert sum(r.name == "batchqueue_async" for r in caplog.records) == 1


async def fill(sink: Any, staged: Any, number: int) -> None:  # noqa: ANN401 - two kinds
    rows, epoch = batch(number).rename_columns(["id", "name"]), Epoch("q", number)
    await sink.begin(epoch)
    await sink.write(epoch, [rows])
    await sink.commit(epoch)
    mine = attempt(epoch=epoch)
    await staged.stage(mine, [rows])
    assert await staged.publish(epoch, [await staged.seal(mine)])


async def test_what_the_sinks_keep_is_made_again_when_it_was_dropped(
    database: Database,
) -> None:
    """As by who empties a schema while a notebook's sinks are open."""
    sink, staged = database.sink("a"), staged_sink(database, "b")
    dropped = ["batchqueue_epochs", "batchqueue_attempts", "b_staged"]
    if isinstance(database, Postgres):
        dropped.append("batchqueue_published")

    await fill(sink, staged, 0)
    for number, each in enumerate([*dropped, ", ".join(dropped)], start=1):
        for table in each.split(", "):
            await database.run(f"DROP TABLE {table}")
        # The call that finds it missing fails in PostgreSQL, the next one makes it.
        for one in (sink.is_committed, staged.is_published):
            with contextlib.suppress(asyncpg.UndefinedTableError):
                await one(FIRST)
        await fill(sink, staged, number)
    for table in ("a", "b"):
        assert await numbers(database, table) == [*range(number + 1)]
    await sink.close()
    await staged.close()
