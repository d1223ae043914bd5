"""The fences on a PostgreSQL server: which epochs are visible, and in which table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

import asyncpg

from batchqueue_async import BatchQueueError

from ..epochs import Epoch, key_of
from ..fences import (
    ANY_TABLE,
    KNOWN_TARGETS,
    refuse_query,
    require_own,
    warn_of_new_table,
    warn_of_old_fence,
)
from ..names import quoted
from .target import Target, column_types, schema_on_path

if TYPE_CHECKING:
    from .connections import Connection

EPOCHS = "batchqueue_epochs"
PUBLISHED = "batchqueue_published"
# What the other kind of sink notes counts, too: a query may go from one to the other.
_OTHERS = {EPOCHS: PUBLISHED, PUBLISHED: EPOCHS}
_OLD_COLUMNS = {"query", "batch", "rows"}
_KNOWN_BY = {"target", "target_oid", "fences_oid"}
_COLUMNS_TODAY = {*_KNOWN_BY, "checkpoint"}
# Of a view there is none: it may be made anew any day, over the same table.
_OID = """(SELECT oid FROM pg_class
    WHERE oid = to_regclass({0}) AND relkind IN ('r', 'p', 'f'))"""
# Partitions, what inherits, and what a view reads: their rows are that one's, too.
_PARTS = """(
    SELECT inhrelid FROM pg_inherits WHERE inhparent = to_regclass({0})
    UNION ALL
    SELECT refobjid FROM pg_depend JOIN pg_rewrite ON pg_rewrite.oid = objid
    WHERE classid = 'pg_rewrite'::regclass AND refclassid = 'pg_class'::regclass
        AND ev_class = to_regclass({0}))"""
# The limit keeps the server from planning both at once, and reading all after all.
# Where there is none that this role may see there may be others: an array of NULL.
_OF_EPOCH = """
    SELECT coalesce((SELECT ARRAY[target, query, checkpoint] FROM known, LATERAL (
        SELECT target, query, {3} AS checkpoint FROM {0}
        WHERE target = name AND {4} = $2 AND batch = $3
            AND (target_oid = {1} AND fences_oid = to_regclass($5)
                OR target = ANY($1::TEXT[])
                AND (target_oid IS NULL OR fences_oid <> to_regclass($5)
                    OR target_oid IN {2}))
        LIMIT 1) AS found
    ORDER BY target DESC LIMIT 1),
        CASE WHEN row_security_active(to_regclass($5)) THEN ARRAY[NULL::TEXT] END)"""
_NONE_SHOWN = [None]
# Earlier versions noted none, and another role's fences are read as they are.
_CHECKPOINT = "to_jsonb({0}.*) ->> 'checkpoint'"
# Whether this role's policies of a table are one that shows all, and none that hides.
_SHOWS_ALL = """
    SELECT bool_or(polpermissive AND is_true) AND bool_and(polpermissive OR is_true)
    FROM (SELECT polpermissive, pg_get_expr(polqual, polrelid) = 'true' AS is_true
        FROM pg_policy WHERE polrelid = to_regclass($1) AND polcmd IN ('r', '*')
            AND EXISTS (SELECT FROM unnest(polroles) AS role
                WHERE CASE role WHEN 0 THEN true ELSE pg_has_role(role, 'USAGE') END)
    ) AS its"""
_PRIMARY_KEY = """
    SELECT conname::text FROM pg_constraint
    WHERE conrelid = to_regclass($1) AND contype = 'p'"""

# Writes to the log alone. A standby writes none; and where none is waited for, what is
# seen is on the disk.
_IN_LOG = """
    SELECT pg_logical_emit_message(true, 'batchqueue_async', '')
    WHERE current_setting('synchronous_standby_names') <> ''
        AND NOT pg_is_in_recovery()"""

# Its target, its query and its checkpoint.
_Found: TypeAlias = list[str | None]


class Fences:
    """A table beside the target, with a row for each epoch that is visible.

    Any number of targets in one schema share it. A fence notes its target's name and
    its oid, which is the same under another name, and another if a table is dropped and
    made again. It notes the oid of the fences, too: if that has changed, the database
    was restored from a dump, so that no oid in it means anything, and names count. They
    also do in fences of versions that knew no oids, and in those of a table that has
    become a part of the one that has its name now, such as a partition. A name of a
    user's stands alone; those of the epoch sinks and of the staged ones count for both.
    A fence also notes the checkpoint of the stream that the epoch came from, if there
    is one.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        # Tables of fences, and the target's keys in each. New fences go into the first.
        self._places: list[tuple[str, list[str]]] = []
        # The other kind of sink's table of fences, if it was not there when looked for.
        self._missing = ""

    async def prepare(self, connection: Connection, target: Target) -> None:
        """Make the table, or give one of the old layout the new one.

        In a transaction, which keeps others from making it, too, until it ends.
        """
        places = [(target.beside(self._name), [*target.keys, ANY_TABLE])]
        schema = await schema_on_path(connection, self._name)
        on_path = await schema_on_path(connection, target.name)
        if schema not in {None, target.schema} and on_path == target.schema:
            # Earlier versions kept fences there if the table was named without a
            # schema: the staged sink under that name, the epoch sink under none.
            place = f"{quoted(str(schema))}.{quoted(self._name)}"
            key = target.name if self._name == PUBLISHED else ANY_TABLE
            places.append((place, [key]))
        old = [
            place
            for place, _ in places
            if not (await column_types(connection, place)).keys() >= _COLUMNS_TODAY
        ]
        self._missing = ""
        if self._name in _OTHERS:
            other = target.beside(_OTHERS[self._name])
            names = await column_types(connection, other)
            if "target" in names:
                places.append((other, target.keys))
                # It may be another role's, and is only read.
                if not names.keys() >= _KNOWN_BY:
                    old.append(other)
            else:
                self._missing = other
        if old:
            # Two that make it at once would collide in the catalogue.
            await connection.execute(
                "SELECT pg_advisory_xact_lock(hashtext('batchqueue_async fences'))"
            )
            for place in old:
                await self._bring_up(connection, place)
        self._target, self._places = target, places

    async def has(self, connection: Connection, epoch: Epoch) -> bool:
        """Return whether the epoch's fence is there; log if it doesn't know its table.

        Call `prepare` first. A table that was made anew since then is looked up anew.
        """
        return await self._found(connection, epoch) is not None

    async def has_own(self, connection: Connection, epoch: Epoch) -> bool:
        """Return the same; raise if it is another stream's, or has another query.

        The transaction's commit then waits as `wait_for_others` says.
        """
        found = await self._found(connection, epoch)
        if found is None:
            await self._require_query(connection, epoch)
            return False
        require_own(epoch, found[2])
        await wait_for_others(connection)
        return True

    async def _require_query(self, connection: Connection, epoch: Epoch) -> None:
        """Raise if the stream has written the batch under another query.

        Whose last batch has its fence goes on as before: no key says where a checkpoint
        is, and all of its table's fences would be read.
        """
        if epoch.checkpoint is None:
            return
        last = epoch.query, epoch.batch - 1
        if epoch.batch and await self._look_up(connection, "query", *last):
            return
        key = _CHECKPOINT, epoch.checkpoint, epoch.batch
        if (found := await self._look_up(connection, *key)) is not None:
            refuse_query(epoch, str(found[1]))

    async def _found(self, connection: Connection, epoch: Epoch) -> _Found | None:
        """Return the epoch's fence; log if it doesn't know its table."""
        found = await self._look_up(connection, "query", *key_of(epoch))
        if found is not None and found[0] == ANY_TABLE:
            warn_of_old_fence(epoch, self._target.key)
        return found

    async def _look_up(
        self, connection: Connection, by: str, name: str, batch: int
    ) -> _Found | None:
        if missing := self._missing:
            names = await column_types(connection, missing)
            # Another call, or `prepare`, may have found it while this one waited.
            if names.keys() >= _KNOWN_BY and self._missing == missing:
                self._places.append((missing, self._target.keys))
                self._missing = ""
        for place, keys in self._places:
            with self._telling_rights(place):
                found: _Found | None = await connection.fetchval(
                    (KNOWN_TARGETS + _OF_EPOCH).format(
                        place,
                        _OID.format("$4"),
                        _PARTS.format("$4"),
                        _CHECKPOINT.format(place),
                        by.format(place),
                    ),
                    keys,
                    name,
                    batch,
                    self._target.place,
                    place,
                )
            if found == _NONE_SHOWN:
                await self._require_all(connection, place)
            elif found is not None:
                return found
        return None

    async def add(self, connection: Connection, epoch: Epoch, rows: int) -> bool:
        """Add the epoch's fence; return False if there is one.

        Waits for a transaction that adds the same one.
        """
        place = self._places[0][0]
        which = (self._target.key, *key_of(epoch), self._target.place, place)
        # The other table's fence stays: that table may only have been renamed.
        moved = await connection.execute(
            f"UPDATE {place} SET target = target || ' (oid ' || target_oid || ')'"
            " WHERE target = $1 AND query = $2 AND batch = $3"
            # The oid is NULL where a view has taken the table's place.
            " AND target_oid IS NOT NULL"
            f" AND target_oid IS DISTINCT FROM {_OID.format('$4')}"
            " AND fences_oid = to_regclass($5)",
            *which,
        )
        added = await connection.execute(
            f"INSERT INTO {place}"
            " (target, query, batch, rows, target_oid, fences_oid, checkpoint)"
            f" VALUES ($1, $2, $3, $6, {_OID.format('$4')}, to_regclass($5), $7)"
            " ON CONFLICT (target, query, batch) DO NOTHING",
            *which,
            rows,
            epoch.checkpoint,
        )
        if moved != "UPDATE 0":
            warn_of_new_table(epoch, self._target.key)
        return added != "INSERT 0 0"

    async def _require_all(self, connection: Connection, place: str) -> None:
        """Refuse to look for an epoch where it may be hidden: it would come twice."""
        if not await connection.fetchval(_SHOWS_ALL, place):
            msg = (
                f"row-level security may hide epochs in {place}, and rows would come"
                " twice: give the sink's role a policy FOR ALL USING (true) there, or"
                " BYPASSRLS"
            )
            raise BatchQueueError(msg)

    @contextmanager
    def _telling_rights(self, place: str) -> Iterator[None]:
        """Let a refusal say which rights a sink needs on a table of fences, and why."""
        is_own = place == self._places[0][0]
        rights = "SELECT, INSERT, UPDATE" if is_own else "SELECT"
        try:
            yield
        except asyncpg.InsufficientPrivilegeError as error:
            told = (
                f"{error.args[0]}: whatever fills {self._target.place} looks there for"
                f" epochs, so its role needs GRANT {rights} ON {place}"
            )
            error.args = (told,)
            raise

    async def _bring_up(self, connection: Connection, place: str) -> None:
        columns = await column_types(connection, place)
        if not columns:
            # Processes of earlier versions add rows without a target.
            time = "published_at" if self._name == PUBLISHED else "committed_at"
            await connection.execute(f"""
                CREATE TABLE {place} (
                    target TEXT NOT NULL DEFAULT '{ANY_TABLE}',
                    query TEXT, batch BIGINT, rows BIGINT NOT NULL,
                    target_oid OID, fences_oid OID, checkpoint TEXT,
                    {time} TIMESTAMPTZ NOT NULL DEFAULT now(),
                    PRIMARY KEY (target, query, batch))""")
            return
        if "target" not in columns:
            await self._add_target(connection, place, columns)
        if not columns.keys() >= _COLUMNS_TODAY:
            # Only where it is needed: it waits for who reads this table, and that one
            # may wait for the other table, which was made in this transaction.
            await _alter(
                connection,
                place,
                "ADD COLUMN IF NOT EXISTS target_oid OID,"
                " ADD COLUMN IF NOT EXISTS fences_oid OID,"
                " ADD COLUMN IF NOT EXISTS checkpoint TEXT",
            )

    async def _add_target(
        self, connection: Connection, place: str, columns: dict[str, int]
    ) -> None:
        if not columns.keys() >= _OLD_COLUMNS:
            msg = f"table {place} is none of fences: it has {sorted(columns)}"
            raise BatchQueueError(msg)
        key = await connection.fetchval(_PRIMARY_KEY, place)
        drop = f"DROP CONSTRAINT {quoted(key)}, " if key else ""
        await _alter(
            connection,
            place,
            f"ADD COLUMN target TEXT NOT NULL DEFAULT '{ANY_TABLE}',"
            f" {drop}ADD PRIMARY KEY (target, query, batch)",
        )


async def _alter(connection: Connection, place: str, change: str) -> None:
    statement = f"ALTER TABLE {place} {change}"
    try:
        await connection.execute(statement)
    except asyncpg.InsufficientPrivilegeError as error:
        told = (
            f"{error.args[0]}: it has fences of an earlier version; who owns it has to"
            f" execute once: {statement}"
        )
        error.args = (told,)
        raise


async def wait_for_others(connection: Connection) -> None:
    """Have this transaction's commit wait until what it has seen is on standbys, too.

    With synchronous replication a commit is seen before a standby has it, once its
    session is ended or the server is restarted while it waits. A record that is written
    later gets there later. The transaction has to be one that waits for the disk.
    """
    await connection.execute(_IN_LOG)


async def lock_epoch(
    connection: Connection, target: Target, epoch: Epoch, *, is_shared: bool = False
) -> None:
    """Lock the epoch until the transaction ends, for both kinds of sink.

    Their tables of fences are two, so no primary key keeps one of each out. Sealing
    shares it; publishing, committing and discarding have it for themselves, under the
    checkpoint's name, too: its `query` may have been another.
    """
    lock = f"pg_advisory_xact_lock{'_shared' if is_shared else ''}"
    names = [epoch.query]
    if not is_shared and epoch.checkpoint not in {None, epoch.query}:
        names.append(str(epoch.checkpoint))
    for name in names:
        await connection.execute(
            f"SELECT {lock}(hashtextextended($1::TEXT || chr(10) || $2::TEXT, $3))",
            target.place,
            name,
            epoch.batch,
        )
