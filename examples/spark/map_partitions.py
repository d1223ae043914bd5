"""Queues inside of a frame: L1 in each task, a shuffle by key, L2; each page once.

`every` is longer than any task: L2 hands on at the end of its task, when it is flushed.
With less L1 holds less, and L2 has more to merge.

Run, in a clone: pip install -e . --group demo
python -m examples.spark.map_partitions
"""

from batchqueue_async import LoopThread, Merging, SyncBatchQueue
from batchqueue_async.spark import Emit, map_partitions_with_queue, to_objects
from examples.spark.page_views import SCHEMA, View, page_views
from examples.spark_session import quiet_session


def open_totals(loop_thread: LoopThread, emit: Emit) -> SyncBatchQueue[View]:
    """Open a task's queue."""
    merging = Merging(key=page_of, merge=added, then=emit.many, every=3600.0)
    return loop_thread.open("views", handlers={View: merging})


def page_of(view: View) -> str:
    return view.page


def added(one: View, other: View) -> View:
    return View(one.page, one.ms + other.ms)


def main() -> None:
    spark = quiet_session("map_partitions", "local[2]")
    views = to_objects(View)
    l1 = map_partitions_with_queue(
        page_views(spark), open_totals, SCHEMA, to_items=views
    )
    by_page = l1.repartition("page")
    l2 = map_partitions_with_queue(by_page, open_totals, SCHEMA, to_items=views)
    for row in l2.orderBy("page").collect():
        print(f"{row.page} {row.ms} ms")
    spark.stop()


if __name__ == "__main__":
    main()
