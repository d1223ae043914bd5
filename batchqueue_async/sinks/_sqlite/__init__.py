"""What the sinks of SQLite share.

* `affinity`: what SQLite makes of values by the declared types of columns.
* `file`: the file, one connection to it, and its tables.
* `fences`: which epochs are in which of its tables.
* `staged_rows`: rows of many processes that wait in it for their epoch.
* `values`: what SQLite keeps as it is.
"""
