"""Two tables in one database, with the default fences: each is exact for itself."""

import contextlib
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from batchqueue_async import BatchQueueError
from batchqueue_async.sinks import Epoch
from batchqueue_async.sinks._parquet import directory
from batchqueue_async.sinks.parquet import ParquetEpochSink
from batchqueue_async.sinks.postgres_staged import PostgresStagedSink
from batchqueue_async.sinks.sqlite import SqliteEpochSink
from tests.sinks.databases import Database, Postgres, Sqlite, deliver, ids
from tests.sinks.places import EPOCH, attempt, sealed
from tests.sinks.stores import COLUMNS, SCHEMA

pytestmark = pytest.mark.real_time

FIRST, SECOND = Epoch("query", 0), Epoch("query", 1)

# What versions without tables in their fences made.
OLD_FENCES = """CREATE TABLE {0} (query TEXT, batch BIGINT, rows BIGINT NOT NULL,
    committed_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY (query, batch))"""


async def test_each_table_gets_its_rows(database: Database) -> None:
    for _ in range(2):  # the second time as after a crash: nothing comes twice
        await deliver(database.sink("a"), FIRST, 1, 2)
        await deliver(database.sink("b"), FIRST, 3)

    assert await ids(database, "a") == [1, 2]
    assert await ids(database, "b") == [3]


async def test_a_table_that_has_no_fence_is_not_committed(database: Database) -> None:
    await deliver(database.sink("a"), FIRST, 1)

    other = database.sink("b")
    assert not await other.is_committed(FIRST)
    await other.close()


async def test_attempts_at_two_tables_may_interleave(database: Database) -> None:
    sinks = {table: database.sink(table) for table in ("a", "b")}
    for sink in sinks.values():
        await sink.begin(FIRST)
    for number, sink in enumerate(sinks.values()):
        await sink.write(FIRST, [(number, f"n{number}")])
    await sinks["b"].commit(FIRST)
    assert await ids(database, "a") == []
    await sinks["a"].commit(FIRST)

    assert (await ids(database, "a"), await ids(database, "b")) == ([0], [1])
    for sink in sinks.values():
        await sink.close()


async def test_an_aborted_attempt_leaves_the_other_table_alone(
    database: Database,
) -> None:
    one, other = database.sink("a"), database.sink("b")
    await one.begin(FIRST)
    await one.write(FIRST, [(1, "n1")])
    await other.begin(FIRST)
    await other.abort(FIRST)
    await one.commit(FIRST)

    assert await ids(database, "a") == [1]
    await one.close()
    await other.close()


async def test_one_table_has_one_fence_however_it_is_spelled(
    database: Database,
) -> None:
    spellings = ["a", '"a"']
    if isinstance(database, Sqlite):
        spellings += ["A", "main.a", "MAIN.A", 'main."A"']
    else:
        spellings += ["public.a", 'public."a"', '"public"."a"', '"public".a']
    for number, spelling in enumerate(spellings):
        await deliver(database.sink(spelling), FIRST, number)

    assert await ids(database, "a") == [0]


async def test_an_old_fence_counts_and_is_kept(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    await database.run(OLD_FENCES.format("batchqueue_epochs"))
    await database.run(
        "INSERT INTO batchqueue_epochs (query, batch, rows) VALUES ('query', 0, 1)"
    )
    await database.run("INSERT INTO a VALUES (1, 'n1')")

    # Into whatever table it was: no table gets the epoch a second time.
    for table in ("a", "b"):
        sink = database.sink(table)
        assert await sink.is_committed(FIRST)
        await sink.begin(FIRST)
        await sink.write(FIRST, [(1, "n1")])
        caplog.clear()
        await sink.commit(FIRST)
        assert "batch 0 of query query counts as committed" in caplog.text
        await sink.close()
    with caplog.at_level(logging.WARNING):
        caplog.clear()
        for _ in range(2):
            await deliver(database.sink("a"), SECOND, 2)
            await deliver(database.sink("b"), SECOND, 3)

    assert await ids(database, "a") == [1, 2]
    assert await ids(database, "b") == [3]
    # On a loaded machine asyncio has things to say, too.
    assert [r for r in caplog.records if r.name == "batchqueue_async"] == []
    known = "SELECT query, batch, rows FROM batchqueue_epochs ORDER BY batch"
    assert await database.run(known) == [
        ("query", 0, 1),
        ("query", 1, 1),
        ("query", 1, 1),
    ]


async def test_what_a_version_without_tables_writes_afterwards_counts(
    database: Database,
) -> None:
    """Processes of two versions may work side by side during an update."""
    await deliver(database.sink("a"), FIRST, 1)
    await database.run(
        "INSERT INTO batchqueue_epochs (query, batch, rows) VALUES ('query', 1, 1)"
        " ON CONFLICT DO NOTHING"
    )
    await deliver(database.sink("a"), SECOND, 2)

    assert await ids(database, "a") == [1]


async def test_fences_of_its_own_know_no_old_ones(database: Database) -> None:
    """The way out for a table that is new, and filled from epochs of before."""
    await database.run(OLD_FENCES.format("batchqueue_epochs"))
    await database.run(
        "INSERT INTO batchqueue_epochs (query, batch, rows) VALUES ('query', 0, 1)"
    )
    made = database.sink("b")
    sink = (
        type(made)(database.path, "b", COLUMNS, fences="of_b")
        if isinstance(database, Sqlite)
        else type(made)(database.dsn, "b", COLUMNS, fences="of_b")  # type: ignore[attr-defined]
    )
    await made.close()
    await deliver(sink, FIRST, 1)

    assert await ids(database, "b") == [1]


async def test_a_table_that_is_none_of_fences_is_left_alone(database: Database) -> None:
    await database.run("CREATE TABLE batchqueue_epochs (id INTEGER, query TEXT)")
    await database.run("INSERT INTO batchqueue_epochs VALUES (1, 'mine')")
    with pytest.raises(BatchQueueError, match="none of fences"):
        await deliver(database.sink("a"), FIRST, 1)

    assert await database.run("SELECT * FROM batchqueue_epochs") == [(1, "mine")]


async def test_names_may_have_any_character(database: Database) -> None:
    """Also those with a meaning in some place of some statement."""
    for number, name in enumerate(
        (
            "pay$$ments",
            "a%sb",
            "100%",
            'quo"te',
            "it's",
            "back\\slash",
            "dot.ted",
            "semi; DROP TABLE a",
            "{braces}",
            "$1",
            "?",
            "Größe 日本 🙂",
            " ",
            "CaseD",
            "select",
        )
    ):
        quoted = '"' + name.replace('"', '""') + '"'
        await database.run(f"CREATE TABLE {quoted} (id BIGINT, name TEXT)")
        # In the one way that has one meaning, for a name with a dot; else as it is.
        is_dotted = "." in name and not isinstance(database, Sqlite)
        await deliver(database.sink(quoted if is_dotted else name), FIRST, number)
        assert await ids(database, quoted) == [number]


async def test_columns_and_fences_may_have_any_character(database: Database) -> None:
    columns, fences = ("a$$b", "c'%s\"d"), "fences'$$\"%"
    first, second = ('"' + name.replace('"', '""') + '"' for name in columns)
    await database.run(f"CREATE TABLE odd ({first} BIGINT, {second} TEXT)")
    made = type(database.sink("a"))
    where = database.path if isinstance(database, Sqlite) else database.dsn  # type: ignore[attr-defined]
    for _ in range(2):
        await deliver(made(where, "odd", columns, fences=fences), FIRST, 1)

    assert await database.run("SELECT * FROM odd") == [(1, "n1")]


async def test_a_column_that_is_the_staging_tables_own_is_refused(
    database: Database,
) -> None:
    made = type(database.sink("a"))
    where = database.path if isinstance(database, Sqlite) else database.dsn  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="columns must be other names"):
        made(where, "a", ("id", "batchqueue_write"))


async def test_columns_that_sqlite_takes_for_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="each once"):
        SqliteEpochSink(tmp_path / "db", "t", ("id", "ID"))
    with pytest.raises(ValueError, match="columns must be other names"):
        SqliteEpochSink(tmp_path / "db", "t", ("BATCHQUEUE_Write",))


async def test_other_search_paths_change_nothing(postgres: Postgres) -> None:
    """A fence stands beside the table, wherever its name was looked up."""
    await postgres.run("CREATE SCHEMA app")
    await postgres.run("CREATE TABLE t (id BIGINT, name TEXT)")
    for path, spelling in (
        ("app,public", "t"),
        ("public", "t"),
        ("public", "public.t"),
        ("app", "public.t"),
        ("app,public", "public.t"),
    ):
        await deliver(postgres.sink(spelling, path), FIRST, 1)
    await postgres.run("CREATE TABLE app.t (id BIGINT, name TEXT)")
    await deliver(postgres.sink("t", "app,public"), FIRST, 2)

    assert await ids(postgres, "public.t") == [1]
    assert await ids(postgres, "app.t") == [2]


async def test_an_old_fence_counts_where_an_unqualified_name_led(
    postgres: Postgres,
) -> None:
    """Without a schema, fences were made in the first one of the path."""
    await postgres.run("CREATE SCHEMA app")
    await postgres.run("CREATE TABLE t (id BIGINT, name TEXT)")
    await postgres.run(OLD_FENCES.format("app.batchqueue_epochs"))
    await postgres.run(
        "INSERT INTO app.batchqueue_epochs (query, batch, rows) VALUES ('query', 0, 1)"
    )
    await deliver(postgres.sink("t", "app,public"), FIRST, 1)
    await deliver(postgres.sink("t", "app,public"), SECOND, 2)
    await deliver(postgres.sink("t", "app,public"), SECOND, 2)

    assert await ids(postgres, "public.t") == [2]


async def test_names_that_the_server_cuts_off_stay_apart(postgres: Postgres) -> None:
    """63 bytes are the server's limit, in characters of four bytes, too."""
    names = ["x" * 63, "x" * 62 + "y", "🙂" * 15, "x" * 57, "x" * 56 + "y"]
    for number, name in enumerate(names):
        columns = "id BIGINT, name TEXT, word TEXT"
        await postgres.run(f'CREATE TABLE "{name}" ({columns})')
        await deliver(postgres.sink(name), FIRST, number)
        await publish(postgres, name, number + 100)
        await publish(postgres, name, number + 100)
    for number, name in enumerate(names):
        assert await ids_of_staged(postgres, name) == [number, number + 100]
    with pytest.raises(ValueError, match="fences must be of 63 bytes at most"):
        type(postgres.sink("t"))(postgres.dsn, "t", COLUMNS, fences="🙂" * 16)


async def publish(
    postgres: Postgres, table: str, *ids: int, path: str = "public"
) -> None:
    sink = PostgresStagedSink(postgres.on_path(path), table)
    try:
        if not await sink.is_published(EPOCH):
            await sink.publish(EPOCH, [await sealed(sink, attempt(), *ids)])
    finally:
        await sink.close()


async def ids_of_staged(postgres: Postgres, name: str) -> list[int]:
    quoted = '"' + name.replace('"', '""') + '"'
    return [row[0] for row in await postgres.run(f"SELECT id FROM {quoted} ORDER BY 1")]


async def test_staged_epochs_of_two_tables_do_not_mix(postgres: Postgres) -> None:
    for table in ("a", "b"):
        await postgres.run(f"CREATE TABLE {table} (id BIGINT, word TEXT)")
    one, other = (PostgresStagedSink(postgres.dsn, table) for table in ("a", "b"))
    tokens = [await sealed(one, attempt(), 1), await sealed(other, attempt(), 2)]
    assert await other.publish(EPOCH, tokens[1:])
    assert await one.publish(EPOCH, tokens[:1])
    assert not await one.publish(EPOCH, tokens[:1])

    assert await ids_of_staged(postgres, "a") == [1]
    assert await ids_of_staged(postgres, "b") == [2]
    await one.close()
    await other.close()


async def test_a_staged_table_has_one_fence_however_it_is_spelled(
    postgres: Postgres,
) -> None:
    await postgres.run("CREATE SCHEMA app")
    await postgres.run("CREATE TABLE t (id BIGINT, word TEXT)")
    for number, (path, spelling) in enumerate(
        [
            ("public", "t"),
            ("public", "public.t"),
            ("public", '"t"'),
            ("public", '"public"."t"'),
            ("app,public", "t"),
            ("app", "public.t"),
        ]
    ):
        await publish(postgres, spelling, number, path=path)

    assert await ids_of_staged(postgres, "t") == [0]


async def test_an_epoch_counts_for_the_other_kind_of_sink(postgres: Postgres) -> None:
    """A query goes on with `format("batchqueue")` after `foreachBatch`, or back."""
    for table in ("a", "b"):
        columns = "id BIGINT, name TEXT, word TEXT"
        await postgres.run(f"CREATE TABLE {table} ({columns})")
    await deliver(postgres.sink("a"), EPOCH, 1)
    await publish(postgres, "a", 2)
    await publish(postgres, "b", 3)
    await deliver(postgres.sink("b"), EPOCH, 4)
    own = type(postgres.sink("b"))(postgres.dsn, "b", COLUMNS, fences="of_b")
    await deliver(own, EPOCH, 5)

    assert await ids_of_staged(postgres, "a") == [1]
    assert await ids_of_staged(postgres, "b") == [3, 5]


@pytest.mark.parametrize(
    "noted,where", [("t", "app"), ("t", "public"), ("public.t", "public")]
)
async def test_a_staged_epoch_of_an_earlier_version_counts(
    postgres: Postgres, noted: str, where: str
) -> None:
    await postgres.run("CREATE SCHEMA app")
    await postgres.run("CREATE TABLE t (id BIGINT, word TEXT)")
    await postgres.run(
        f"""CREATE TABLE {where}.batchqueue_published (
            target TEXT, query TEXT, batch BIGINT, rows BIGINT NOT NULL,
            published_at TIMESTAMPTZ NOT NULL DEFAULT now(),
            PRIMARY KEY (target, query, batch))"""
    )
    await postgres.run(
        f"INSERT INTO {where}.batchqueue_published VALUES"
        f" ('{noted}', '{EPOCH.query}', {EPOCH.batch}, 1)"
    )
    for spelling in ("t", "public.t"):
        await publish(postgres, spelling, 1, path="app,public")

    assert await ids_of_staged(postgres, "t") == []


async def test_a_staged_table_may_have_any_name(postgres: Postgres) -> None:
    names = ("pay$$ments", "a%sb", 'quo"te', "it's", "Größe", "a", "a_staged", "b\\s")
    for name in names:
        quoted = '"' + name.replace('"', '""') + '"'
        await postgres.run(f"CREATE TABLE {quoted} (id BIGINT, word TEXT)")
    for number, name in enumerate(names):
        for _ in range(2):
            await publish(postgres, name, number)
        assert await ids_of_staged(postgres, name) == [number]


async def test_two_directories_are_two_tables(tmp_path: Path) -> None:
    sinks: list[ParquetEpochSink[Any]] = [
        ParquetEpochSink(tmp_path / name, schema=SCHEMA) for name in ("a", "b")
    ]
    for sink in sinks:
        await sink.begin(FIRST)
    for number, sink in enumerate(sinks):
        await sink.write(FIRST, [(number, "row")])
        await sink.commit(FIRST)

    for sink in sinks:
        assert await sink.is_committed(FIRST)
        assert len([*sink.folder(FIRST).glob("*.parquet")]) == 1


async def test_an_attempt_that_is_driven_out_never_appears_by_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new attempt removes a late one's files, while that one is at its rename."""
    late: ParquetEpochSink[Any] = ParquetEpochSink(tmp_path / "out", schema=SCHEMA)
    new: ParquetEpochSink[Any] = ParquetEpochSink(tmp_path / "out", schema=SCHEMA)
    await late.begin(FIRST)
    await late.write(FIRST, [(1, "late")])
    (staged,) = (tmp_path / "out" / "_staging").iterdir()
    finish = directory.write_manifest

    def meddled(folder: Path, epoch: Epoch, parts: Sequence[directory.Part]) -> None:
        finish(folder, epoch, parts)
        # Half of what the new one's `begin` does to it.
        real = os.unlink

        def unlink_once(*arguments: object, **keywords: object) -> None:
            real(*arguments, **keywords)  # type: ignore[arg-type]
            monkeypatch.setattr(os, "unlink", stop)

        def stop(*_: object, **__: object) -> None:
            raise OSError

        monkeypatch.setattr(os, "unlink", unlink_once)
        new._directory.clear(FIRST)
        monkeypatch.setattr(os, "unlink", real)

    monkeypatch.setattr(directory, "write_manifest", meddled)
    with contextlib.suppress(OSError):
        await late.commit(FIRST)

    if new.folder(FIRST).exists():
        assert len([*new.folder(FIRST).iterdir()]) == 2
    assert not staged.exists()
