"""What the sinks of PostgreSQL share.

* `connections`: the server, how long it may take, and what it may tell.
* `fences`: which epochs are in a table.
* `staging`: which table that is, and rows that wait beside it.
* `staged_tables`: the tables that attempts of many processes need.
* `copied_batches`, `binary_rows`, `calendar`: rows on their way.
"""
