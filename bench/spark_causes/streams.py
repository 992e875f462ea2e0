"""Streams that are given a file every four seconds, while a worker joins the cluster or dies (`pag rescale`).

The loop is open: files come by the clock, whatever the stream does, and each is a batch of its own, taken as soon as
the one before is done. Rows take their time without the processor, so what a worker more brings is known.

    python bench/spark_causes/make_logs.py --out logs --streams            # about half an hour
    python bench/spark_causes/make_logs.py --out logs --streams --only stream-lost
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

from causes import Cause, main, take
from cluster import children, worker_command, worker_environment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from causes import Control
    from pyspark.sql import SparkSession

PERIOD_S = 4.0
"""A file comes once in this time."""
_EACH_MS = 40
"""What a row takes."""
_PATIENCE_S = 800
_ROOM = {
    "spark.cores.max": "2",
    # A stream begins with the executors that are there.
    "spark.scheduler.minRegisteredResourcesRatio": "0.5",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "30s",
}
_ANYWHERE = {"spark.locality.wait": "0s"}
"""Otherwise both tasks of a batch are kept for the core that read its file, and the other core stays empty."""


def _give(folder: Path, rows: int, over: threading.Event) -> None:
    """Write a file of so many lines at each multiple of the period."""
    started, number = time.monotonic(), 0
    while not over.wait(max(0.0, started + number * PERIOD_S - time.monotonic())):
        hidden = folder / f".{number:04}.txt"
        hidden.write_text("x\n" * rows, encoding="utf-8")
        hidden.rename(folder / f"{number:04}.txt")
        number += 1


def _stream(
    spark: SparkSession, control: Control, rows: int, acts: dict[int, Callable[[], None]], batches: int
) -> None:
    """Run so many batches, a file each; act when some of them have ended."""
    source, over = control.folder / "given", threading.Event()
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir()
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(source))
    slow = lines.repartition(2).select(take(_EACH_MS).alias("work"))
    running = slow.writeStream.format("noop").queryName("stream").start()
    giving = threading.Thread(target=_give, args=(source, rows, over))
    giving.start()
    end, acts_left, last_batch = time.monotonic() + _PATIENCE_S, dict(acts), -1
    try:
        while time.monotonic() < end and last_batch < batches:
            last_batch = -1 if running.lastProgress is None else running.lastProgress["batchId"]
            for batch in [batch for batch in acts_left if last_batch >= batch]:
                acts_left.pop(batch)()
            time.sleep(0.1)
    finally:
        over.set()
        giving.join()
        running.stop()


def _joined(rows: int, batches: int) -> Callable[[SparkSession, Control], None]:
    """Return a stream that another worker joins after a while."""

    def program(spark: SparkSession, control: Control) -> None:
        started: list[subprocess.Popen[bytes]] = []

        def join() -> None:
            master, folder = spark.sparkContext.master, control.folder
            log = (folder / "logs" / "worker-2.log").open("wb")
            command, ours = worker_command(master, 2, cores=1), worker_environment(folder, 2)
            started.append(subprocess.Popen(command, env=ours, cwd=folder, stdout=log, stderr=subprocess.STDOUT))

        try:
            _stream(spark, control, rows, {12: join}, batches)
        finally:
            for process in started:
                process.terminate()
                process.wait()

    return program


def _lost(spark: SparkSession, control: Control) -> None:
    def die() -> None:
        # A worker that lives would begin another executor.
        executors = children(control.workers[1])
        os.kill(control.workers[1], signal.SIGKILL)
        for executor in executors:
            os.kill(executor, signal.SIGKILL)

    _stream(spark, control, 45, {12: die}, 75)


STREAMS = {
    cause.name: cause
    for cause in (
        Cause(
            name="stream-joined-busy",
            program=_joined(115, 110),
            done="A file every 4 s that takes 4.6 s on one core; after 12 of them a second worker joins.",
            answer="Saturated before; relieved once the backlog is worked off.",
            settings=_ROOM | _ANYWHERE,
            executors=1,
        ),
        Cause(
            name="stream-joined-near",
            program=_joined(115, 75),
            done="The same with Spark's own time to wait for a place near the data, which is longer than a task.",
            answer="Saturated before, and not relieved; cores are empty while tasks wait for a place near their data.",
            settings=_ROOM,
            executors=1,
        ),
        Cause(
            name="stream-joined-idle",
            program=_joined(35, 75),
            done="A file every 4 s that takes 1.4 s on one core; after 12 of them a second worker joins.",
            answer="Not saturated before; batches are faster, as they have two tasks.",
            settings=_ROOM | _ANYWHERE,
            executors=1,
        ),
        Cause(
            name="stream-lost",
            program=_lost,
            done="A file every 4 s that takes 0.9 s on two cores; after 12 of them one of two workers is killed.",
            answer="A loss; batches take twice as long, and still keep up.",
            settings=_ROOM | _ANYWHERE,
        ),
    )
}


if __name__ == "__main__":
    main(sys.argv[1], STREAMS)
