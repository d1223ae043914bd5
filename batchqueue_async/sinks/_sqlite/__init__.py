"""What the sinks of SQLite share.

* `file`: the file, and one connection to it.
* `fences`: which epochs are in which of its tables.
* `identity`: which table is meant, after it was renamed or made again.
* `staged_rows`: rows of many processes that wait in it for their epoch.
* `values`: what SQLite keeps as it is.
"""
