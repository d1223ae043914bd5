"""A year of real flights, through five batch queues, into a database.

Run it with `python -m examples.flights`; `--help` tells the rest. In the order in which
an event meets them:

* `data`, `session`, `reading`: the files, Spark, and typed `events` at column speed;
* `metrics`: what an event adds to which metric, and windows that combine;
* `producing`: pushes events from the main thread, paced, until Ctrl-C;
* `stages`, `pipeline`: the queues, their settings and how they are chained;
* `merging`, `topn`, `exporting`, `database`: their handlers;
* `sinks`, `sqlite`, `postgres`, `schema`: where the results go;
* `months`, `streaming`, `stream_run`, `stream_pipeline`, `epochs`, `combining`: all of
  it as a stream (`--stream`), a micro-batch for each month, that survives `kill -9`;
* `executor_stages`, `executor_run`: all of it in Spark's tasks (`--on-executors`);
* `answers`, `proof`: the comparison with Spark SQL's own answer;
* `loads`, `summary`, `findings`, `charts`, `report`: what one sees of it.
"""
