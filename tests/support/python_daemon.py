"""Spark's daemon of Python workers, which imports once what each of them needs.

Spark's own leaves that to each worker after the fork, which takes it half a second.
"""

# ruff: noqa: F401  # for the workers

import pandas
import pyarrow
import pyspark.worker
from pyspark.daemon import manager

if __name__ == "__main__":
    manager()
