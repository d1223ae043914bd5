"""A batch write, exactly once: staged by tasks, published by Spark's commit.

The write has a name, so that it may be repeated when nobody knows what came of it: the
second one changes nothing.

Run, in a clone: pip install -e . --group demo
python -m examples.spark.data_source
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from examples.spark.page_views import page_views
from examples.spark_session import quiet_session


def main() -> None:
    spark = quiet_session("data_source", "local[2]")
    with TemporaryDirectory() as home:
        file = Path(home, "views.db")
        writer = (
            page_views(spark)
            .write.format("batchqueue")
            .mode("append")
            .option("sink", "sqlite")
            .option("file", str(file))
            .option("table", "views")
            .option("query", "views of today")
        )
        with closing(sqlite3.connect(file)) as database:
            database.execute("CREATE TABLE views (page TEXT, ms INTEGER)")
            for attempt in (1, 2):
                writer.save()
                (rows,) = database.execute("SELECT count(*) FROM views").fetchone()
                print(f"after write {attempt} the table has {rows} rows")
    spark.stop()


if __name__ == "__main__":
    main()
