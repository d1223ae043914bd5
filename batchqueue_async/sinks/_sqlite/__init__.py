"""What the sinks of SQLite share.

* `file`: the file, one connection to it, and the fences in it.
* `values`: what SQLite keeps as it is.
"""
