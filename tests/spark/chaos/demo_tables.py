"""What the demo's tables hold, looked at while it writes to them."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import asyncpg

from examples.flights.postgres import SCHEMA
from tests.spark.chaos.checkpoint import Checkpoint
from tests.spark.chaos.database import Database
from tests.spark.chaos.oracle import Finding
from tests.spark.chaos.year import CANCELLATIONS, Year

TABLES = ("metrics", "top_delays", "cancellations")
"""Each is written by a query of its own."""

# The demo makes its tables itself, and again for each new run.
_ADD_GATES = f"""
CREATE OR REPLACE FUNCTION add_gates() RETURNS event_trigger LANGUAGE plpgsql AS $$
DECLARE made TEXT;
BEGIN
    FOR made IN SELECT object_identity FROM pg_event_trigger_ddl_commands()
        WHERE object_identity = ANY(ARRAY{[f"{SCHEMA}.{name}" for name in TABLES]})
    LOOP
        EXECUTE 'CREATE TRIGGER publishing AFTER INSERT ON ' || made
            || ' FOR EACH STATEMENT EXECUTE FUNCTION public.pass_gate(1)';
        EXECUTE 'CREATE CONSTRAINT TRIGGER committing AFTER INSERT ON ' || made
            || ' DEFERRABLE INITIALLY DEFERRED'
            || ' FOR EACH ROW EXECUTE FUNCTION public.pass_gate(2)';
    END LOOP;
END $$;
DROP EVENT TRIGGER IF EXISTS add_gates;
CREATE EVENT TRIGGER add_gates ON ddl_command_end WHEN TAG IN ('CREATE TABLE')
    EXECUTE FUNCTION add_gates();
DROP SCHEMA IF EXISTS {SCHEMA} CASCADE;
"""

_COUNTS = {
    "metrics": "SELECT metric, SUM(count)::BIGINT FROM {table} GROUP BY metric",
    "cancellations": f"SELECT '{CANCELLATIONS}', COUNT(*) FROM {{table}}",
}


class DemoTables:
    """The tables that a demo fills, which begin with none.

    `checkpoints` is the folder where it has one for each table, while it is a stream.
    """

    def __init__(self, database: Database, year: Year, checkpoints: Path) -> None:
        self._database = database
        self._year = year
        self._checkpoints = {
            table: Checkpoint(checkpoints / table, "files") for table in TABLES
        }
        database.execute(_ADD_GATES)

    def committed(self) -> int:
        """How many micro-batches Spark has committed, of all tables together."""
        return sum(each.committed() + 1 for each in self._checkpoints.values())

    def look(self, *, is_complete: bool) -> Finding:
        """Check them while somebody writes, or after the end."""
        found = [self._look_at(table, is_complete=is_complete) for table in _COUNTS]
        return Finding(
            rows=sum(each.rows for each in found),
            lost=sum(each.lost for each in found),
            doubled=sum(each.doubled for each in found),
            foreign=sum(each.foreign for each in found),
        )

    def _look_at(self, table: str, *, is_complete: bool) -> Finding:
        # In this order: what is committed by now shows in the table that is read next,
        # and what shows there was planned before.
        checkpoint, year = self._checkpoints[table], self._year
        first = checkpoint.committed() + 1
        rows = self._counts(table)
        last = checkpoint.planned() + 1
        if is_complete:
            months = [year.months]
        elif last:
            months = [*range(first, last + 1)]
        else:
            # Not begun; or a batch; or a stream that has ended and tidied up.
            months = [0, year.months]
        counts = year.metrics if table == "metrics" else year.cancelled
        return compare(rows, [counts(number) for number in months])

    def _counts(self, table: str) -> Counter[str]:
        try:
            query = _COUNTS[table].format(table=f"{SCHEMA}.{table}")
            return Counter(dict(self._database.rows(query)))
        except asyncpg.UndefinedTableError:
            return Counter()


def compare(found: Counter[str], allowed: Sequence[Counter[str]]) -> Finding:
    """Check that it is one of those, which grow: whole months, and no part of one."""
    if found in allowed:
        return Finding(found.total(), 0, 0)
    lost = (allowed[0] - found).total()
    doubled = (found - allowed[-1]).total()
    part = min((found - each).total() for each in allowed)
    return Finding(found.total(), lost, doubled, 0 if lost or doubled else part)
