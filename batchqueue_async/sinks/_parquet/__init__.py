"""What the sinks of Parquet files share.

* `directory`: published epochs, and the files that wait beside them.
* `columns`: how record batches are written.
"""
