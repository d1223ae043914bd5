"""The library's own finder of a Java runtime, under the name it had before."""

from batchqueue_async.spark.java import JavaMissingError, ensure_java

__all__ = ["JavaMissingError", "ensure_java"]
