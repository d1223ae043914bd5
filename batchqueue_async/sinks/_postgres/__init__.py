"""What the sinks of PostgreSQL share.

* `connections`: the server, how long it may take, and what it may tell.
* `fences`: which epochs are in a table; `deadlocks`: commits that the server undid.
* `target`: which table that is; `staging_table`: rows that wait beside it.
* `staged_rows`: rows of many processes that wait in one for their epoch.
* `copied_batches`, `binary_rows`, `exact_rows`, `fitting`, `calendar`: rows on their
  way.
"""

from batchqueue_async._extras import missing

try:
    import asyncpg  # noqa: F401 - all of them need it
except ModuleNotFoundError as _error:
    raise missing(_error, "a sink of PostgreSQL", "postgres") from _error
