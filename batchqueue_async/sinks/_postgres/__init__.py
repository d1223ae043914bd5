"""What the sinks of PostgreSQL share.

* `connections`: the server, how long it may take, and what it may tell.
* `fences`: which epochs are in a table.
* `target`: which table that is; `staging_table`: rows that wait beside it.
* `staged_rows`: rows of many processes that wait in one for their epoch.
* `copied_batches`, `binary_rows`, `exact_rows`, `fitting`, `calendar`: rows on their
  way.
"""
