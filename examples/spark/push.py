"""A frame's rows through a queue in the driver, where one handler sees them all.

Run, in a clone: pip install -e . --group demo
python -m examples.spark.push
"""

from collections import Counter

from batchqueue_async import BatchQueueConfig, LoopThread
from batchqueue_async.spark import push, to_objects
from examples.spark.page_views import View, page_views
from examples.spark_session import quiet_session


def main() -> None:
    spark = quiet_session("push", "local[2]")
    milliseconds: Counter[str] = Counter()

    async def add_up(batch: list[View]) -> None:
        for view in batch:
            milliseconds[view.page] += view.ms

    with LoopThread() as loop_thread:
        config = BatchQueueConfig(consumer=add_up, max_batch=1_000)
        queue = loop_thread.open("views", config)
        # Waits while the queue is full, and Spark with it; returns when all is handled.
        handled = push(page_views(spark), queue, to_items=to_objects(View))
    print(f"{handled} views were handled")
    for page, total in sorted(milliseconds.items()):
        print(f"{page} {total} ms")
    spark.stop()


if __name__ == "__main__":
    main()
