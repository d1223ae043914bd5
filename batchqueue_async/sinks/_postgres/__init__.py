"""What the sinks of PostgreSQL share.

* `connections`: the server, and how long it may take.
* `target`: which table a name means.
* `fences`: which epochs are in it.
* `staging`: rows that wait in a table of their own, and their way into the target.
* `staged_tables`: the tables that attempts of many processes need.
* `csv_rows`, `errors`: rows on their way, and what is told of them.
"""
