"""What the sinks of Parquet files share.

* `directory`: published epochs, and the folders where others wait.
* `file`: one file on its way there.
* `record_batches`: from items to what a file takes.
"""
