"""Small PySpark programs, each slow for one reason that is known because the program brings it about.

Run by `make_logs.py`, which gives each one a Spark session on a standalone cluster, most with one-core executors:
``python causes.py NAME`` with the cluster in the environment. Work is done by Spark SQL expressions, inside the
executors' JVM: `take` sleeps, so that a task takes as long as it should on a busy machine, and `_spin` costs CPU time.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster import children
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pyspark.sql import Column, DataFrame

_PATIENCE_SECONDS = 150
_NO_ADAPTATION = {"spark.sql.adaptive.enabled": "false"}
# Turns of the loop of `_spin` that take a millisecond, more or less, once the JVM is warm; found by trying.
_TURNS_PER_MS = 3_000


@dataclass(frozen=True, kw_only=True)
class Cause:
    """A program, what is done to it, and what a good explanation of its log says first."""

    name: str
    program: Callable[[SparkSession, Control], None]
    done: str
    """What the program or the script does."""
    answer: str
    """The right answer to *why was it slow*."""
    settings: dict[str, str] = field(default_factory=dict)
    executors: int = 2
    executor_cores: int = 1


class Control:
    """Hands on the cluster: what a program does to the executors that run it.

    Parameters
    ----------
    workers
        Process ids of the cluster's workers.
    folder
        The cluster's folder, with the executors' shuffle files.
    seed
        Of the sizes that a program takes; 0 for the usual ones.
    """

    def __init__(self, workers: list[int], folder: Path, seed: int = 0) -> None:
        self.workers = workers
        self.folder = folder
        self._chance = random.Random(seed) if seed else None

    def size(self, usual: int, least: int, most: int) -> int:
        """Return how many, or how long: `usual`, or with a seed any number from `least` to `most`."""
        return self._chance.randint(least, most) if self._chance else usual

    def executor(self, worker: int) -> int:
        """Return the process id of the executor that runs on a worker, which is a child of the worker's process."""
        return children(self.workers[worker])[-1]

    def kill_executor(self, worker: int) -> None:
        """End an executor without notice."""
        os.kill(self.executor(worker), signal.SIGKILL)

    def slow_down(self, worker: int, *, run: float, stop: float) -> Callable[[], None]:
        """Let an executor run for `run` seconds and stand still for `stop` in turn.

        Returns
        -------
        callable
            Ends it; the executor runs again.
        """
        process = self.executor(worker)
        over = threading.Event()

        def turns() -> None:
            try:
                while not over.wait(run):
                    os.kill(process, signal.SIGSTOP)
                    over.wait(stop)
                    os.kill(process, signal.SIGCONT)
            finally:
                os.kill(process, signal.SIGCONT)

        thread = threading.Thread(target=turns)
        thread.start()

        def end() -> None:
            over.set()
            thread.join()

        return end

    def forget_shuffle_files(self) -> int:
        """Remove the shuffle files that one executor wrote, as a lost disk does; return how many there were."""
        managers = sorted(self.folder.glob("local/*/executor-*/blockmgr-*"))
        files_of = {manager: list(manager.glob("*/shuffle_*")) for manager in managers}
        chosen = next(files for files in files_of.values() if files)
        for file in chosen:
            file.unlink()
        return len(chosen)


def _spin(milliseconds: Column | int) -> Column:
    """Cost about so many milliseconds of CPU time per row."""
    turns = (f.lit(milliseconds) if isinstance(milliseconds, int) else milliseconds) * _TURNS_PER_MS
    return f.aggregate(
        f.sequence(f.lit(1), turns), f.col("id") % 7919, lambda so_far, turn: (so_far * 31 + turn) % 1_000_003
    )


def take(milliseconds: Column | int) -> Column:
    """Take so many milliseconds per row without the processor, as for a slow store: the same on a busy machine."""
    time_each = f.lit(milliseconds) if isinstance(milliseconds, int) else milliseconds
    return f.call_function("java_method", f.lit("java.lang.Thread"), f.lit("sleep"), time_each.cast("bigint"))


def _rows(spark: SparkSession, rows: int, partitions: int) -> DataFrame:
    return spark.range(0, rows, 1, partitions)


def _run(frame: DataFrame) -> None:
    """Compute everything and keep nothing."""
    frame.write.format("noop").mode("overwrite").save()


def _named(spark: SparkSession, name: str) -> None:
    spark.sparkContext.setJobDescription(name)


def _even(
    spark: SparkSession,
    *,
    tasks: int = 24,
    milliseconds: int = 400,
    name: str = "even work",
    cost: Callable[[int], Column] = take,
) -> None:
    _named(spark, name)
    _run(_rows(spark, tasks * 10, tasks).select("id", cost(milliseconds // 10).alias("value")))


def _grouped(
    spark: SparkSession,
    *,
    tasks: int,
    reducers: int,
    milliseconds: int,
    name: str,
    cost: Callable[[int], Column] = take,
) -> None:
    """Work, shuffle evenly, and work again."""
    _named(spark, name)
    mapped = _rows(spark, tasks * 20, tasks).select("id", cost(milliseconds // 20).alias("value"))
    shuffled = mapped.repartition(reducers)
    _run(shuffled.select("value", cost(milliseconds // 20).alias("again")))


def healthy(spark: SparkSession, control: Control) -> None:
    """Do even work in two even stages."""
    _grouped(
        spark,
        tasks=2 * control.size(8, 5, 14),
        reducers=2 * control.size(8, 5, 14),
        milliseconds=control.size(500, 300, 900),
        name="even map, even shuffle, even reduce",
    )


def skewed_key(spark: SparkSession, control: Control) -> None:
    """Give most rows one key, and work on rows where their keys are."""
    hot = control.size(7, 5, 8)
    _named(spark, f"one key has {10 * hot} % of the rows")
    number = 100 * control.size(32, 24, 48)
    rows = _rows(spark, number, 8).withColumn("key", f.when(f.col("id") % 10 < hot, 0).otherwise(f.col("id") % 97))
    payload = rows.withColumn("payload", f.sha2(f.col("id").cast("string"), 512))
    by_key = payload.repartition(control.size(8, 5, 14), "key")
    _run(by_key.select("key", "payload", take(control.size(4, 3, 5)).alias("value")))


def straggler_task(spark: SparkSession, control: Control) -> None:
    """Let one partition cost more than its rows say."""
    times = control.size(25, 12, 40)
    _named(spark, f"equal partitions, one of them costs {times} times as much")
    tasks = control.size(10, 6, 16)
    cost = f.when(f.spark_partition_id() == control.size(5, 1, tasks - 1), 28 * times).otherwise(28)
    _run(_rows(spark, 10 * tasks, tasks).select("id", take(cost).alias("value")))


def slow_node(spark: SparkSession, control: Control) -> None:
    """Do even work while one executor stands still most of the time."""
    _even(spark, tasks=4, milliseconds=100, name="warm up", cost=_spin)
    end = control.slow_down(1, run=0.02, stop=control.size(100, 70, 160) / 1000)
    try:
        _grouped(
            spark,
            tasks=control.size(12, 9, 18),
            reducers=control.size(12, 9, 18),
            milliseconds=control.size(500, 400, 700),
            name="even work, one executor at a sixth",
            cost=_spin,
        )
    finally:
        end()


def gc_heavy(spark: SparkSession, control: Control) -> None:
    """Keep many small objects in a heap that is only just large enough."""
    _named(spark, "millions of small objects kept in a small heap")
    number = 100_000 * control.size(16, 13, 17)
    rows = _rows(spark, number, control.size(4, 2, 6)).withColumn("key", f.col("id") % (number // 40))
    objects = rows.groupBy("key").agg(f.collect_set(f.concat(f.lit("object "), f.col("id"))).alias("objects"))
    _run(objects.select("key", f.size("objects").alias("size")))


def spill(spark: SparkSession, control: Control) -> None:
    """Sort rows that do not fit into the memory for execution."""
    _named(spark, "sort rows that do not fit into memory")
    rows = _rows(spark, 100_000 * control.size(15, 10, 20), control.size(4, 2, 6)).select(
        f.sha2(f.col("id").cast("string"), 256).alias("key"),
        f.repeat(f.col("id").cast("string"), control.size(20, 15, 25)).alias("payload"),
    )
    _run(rows.repartition(2, "key").sortWithinPartitions("key"))


def driver_bound(spark: SparkSession, control: Control) -> None:
    """Collect, and work on in the driver alone."""
    for number in range(control.size(3, 2, 5)):
        _named(spark, f"round {number}")
        numbers = _rows(spark, 1000 * control.size(200, 100, 300), 4)
        rows = numbers.select("id", f.sha2(f.col("id").cast("string"), 256).alias("digest")).collect()
        # The driver alone works through what it collected, while the executors have nothing to do.
        total, end = 0, time.monotonic() + control.size(4, 3, 6)
        while time.monotonic() < end:
            total += sum(len(row.digest) for row in rows[:1000])


def lost_executor(spark: SparkSession, control: Control) -> None:
    """Do even work, and kill an executor in the middle of it."""
    tasks, tasks_before = control.size(20, 16, 26), control.size(8, 6, 12)

    def kill() -> None:
        tracker = spark.sparkContext.statusTracker()
        end = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < end:
            stage = tracker.getStageInfo(0)
            if stage is not None and stage.numCompletedTasks >= tasks_before:
                control.kill_executor(1)
                return
            time.sleep(0.1)

    thread = threading.Thread(target=kill)
    thread.start()
    _grouped(spark, tasks=tasks, reducers=8, milliseconds=800, name="an executor dies in the middle")
    thread.join()


def retried_stage(spark: SparkSession, control: Control) -> None:
    """Use a shuffle twice, and lose some of its files in between."""
    seconds = control.size(20, 15, 40) / 1000

    def work(pairs: Iterable[tuple[int, int]]) -> Iterator[int]:
        for _, value in pairs:
            time.sleep(seconds)
            yield value

    context = spark.sparkContext
    pairs = context.parallelize(range(240), control.size(12, 8, 20)).map(lambda number: (number % 8, number))
    heavy = pairs.mapPartitions(lambda rows: zip(work(rows := list(rows)), (row[1] for row in rows), strict=True))
    shuffled = heavy.partitionBy(8)
    context.setJobDescription("first use of the shuffle")
    shuffled.mapPartitions(work).count()
    print("removed", control.forget_shuffle_files(), "shuffle files")
    context.setJobDescription("second use, after one executor's shuffle files are gone")
    shuffled.mapPartitions(work).count()


def speculation(spark: SparkSession, control: Control) -> None:
    """Let the first attempt of one task hang."""
    tasks, seconds = control.size(12, 8, 20), control.size(400, 300, 700) / 1000
    stuck_task = control.size(7, 2, tasks - 1)

    def work(rows: Iterable[int]) -> Iterator[int]:
        task = TaskContext.get()
        # The first attempt hangs, as on a bad disk; a copy of it does not.
        stuck = task.partitionId() == stuck_task and task.attemptNumber() == 0
        time.sleep(25 if stuck else seconds)
        yield sum(rows)

    spark.sparkContext.setJobDescription("one attempt hangs, its speculative copy wins")
    spark.sparkContext.parallelize(range(1200), tasks).mapPartitions(work).collect()


def too_few_partitions(spark: SparkSession, control: Control) -> None:
    """Do all the work in one task."""
    _named(spark, "all the work in one partition")
    _run(_rows(spark, 100, 1).select("id", take(control.size(120, 60, 200)).alias("value")))


def tiny_tasks(spark: SparkSession, control: Control) -> None:
    """Cut next to no work in very many tasks."""
    _named(spark, "hundreds of tasks with next to nothing to do")
    context, tasks = spark.sparkContext, control.size(900, 600, 1500)
    context.parallelize(range(tasks), tasks).map(lambda number: number + 1).count()


def concurrent_jobs(spark: SparkSession, control: Control) -> None:
    """Run three jobs at the same time."""
    tasks, milliseconds = control.size(6, 5, 9), control.size(500, 400, 800)

    def one(number: int) -> None:
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", f"pool-{number}")
        _grouped(spark, tasks=tasks, reducers=4, milliseconds=milliseconds, name=f"thread {number}")

    threads = [threading.Thread(target=one, args=[number]) for number in range(control.size(3, 2, 4))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def two_jobs(spark: SparkSession, control: Control) -> None:
    """Run one job after another, with a pause."""
    _even(spark, tasks=2 * control.size(4, 3, 8), milliseconds=control.size(300, 250, 600), name="first job")
    time.sleep(1)
    tasks = 2 * control.size(4, 3, 8)
    _grouped(spark, tasks=tasks, reducers=4, milliseconds=control.size(400, 300, 600), name="second job")


def sql(spark: SparkSession, control: Control) -> None:  # noqa: ARG001
    """Run joins, a window function and a cached table, re-planned while they run."""
    _rows(spark, 300_000, 4).selectExpr("id", "id % 1000 AS customer", "id % 17 AS item").createOrReplaceTempView(
        "orders"
    )
    _rows(spark, 1_000, 1).selectExpr("id AS customer", "concat('customer ', id) AS name").createOrReplaceTempView(
        "customers"
    )
    _rows(spark, 300_000, 4).selectExpr("id", "sha2(string(id), 256) AS note").createOrReplaceTempView("notes")
    _named(spark, "broadcast join and aggregate")
    spark.sql("SELECT name, count(*) AS orders FROM orders JOIN customers USING (customer) GROUP BY name").collect()
    _named(spark, "sort-merge join")
    spark.sql(
        "SELECT /*+ MERGE(notes) */ item, max(note) FROM orders JOIN notes USING (id) GROUP BY item ORDER BY item"
    ).collect()
    _named(spark, "window function")
    _run(spark.sql("SELECT customer, sum(item) OVER (PARTITION BY customer ORDER BY id) AS running FROM orders"))
    _named(spark, "cached table used twice")
    cached = spark.sql("SELECT item, count(*) AS times FROM orders GROUP BY item").cache()
    cached.count()
    cached.orderBy("times").collect()


def streaming(spark: SparkSession, control: Control) -> None:
    """Aggregate a stream in micro-batches."""
    rows = control.size(400, 200, 800)
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).option("numPartitions", 4).load()
    counted = (
        source.withColumn("id", f.col("value"))
        .select((f.col("id") % 10).alias("key"), take(2).alias("work"))
        .groupBy("key")
        .agg(f.count("work"))
    )
    query = counted.writeStream.outputMode("complete").format("noop").queryName("counts").start()
    end = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < end and (query.lastProgress is None or query.lastProgress["batchId"] < 4):  # noqa: PLR2004
        time.sleep(0.2)
    query.stop()


def dynamic_allocation(spark: SparkSession, control: Control) -> None:
    """Work, pause until the executors have gone, and work again."""
    tasks, milliseconds = control.size(10, 8, 14), control.size(500, 400, 700)
    _even(spark, tasks=tasks, milliseconds=milliseconds, name="first burst")
    time.sleep(control.size(8, 6, 10))
    _even(spark, tasks=tasks, milliseconds=milliseconds, name="second burst, after the executors went")


def ramp_up(spark: SparkSession, control: Control) -> None:
    """Do even work that begins on one executor; a second one is asked for when tasks wait."""
    _even(spark, tasks=control.size(40, 30, 50), milliseconds=800, name="even work, executors on their way")


def failed_task(spark: SparkSession, control: Control) -> None:
    """Let one task fail three times."""
    failing_task, seconds = control.size(3, 1, 6), control.size(1500, 1200, 2500) / 1000

    def work(rows: Iterable[int]) -> Iterator[int]:
        task = TaskContext.get()
        time.sleep(seconds)
        if task.partitionId() == failing_task and task.attemptNumber() < 3:  # noqa: PLR2004
            message = "this attempt fails on purpose"
            raise ValueError(message)
        yield sum(rows)

    spark.sparkContext.setJobDescription("one task fails three times before it succeeds")
    spark.sparkContext.parallelize(range(800), 8).mapPartitions(work).collect()


def failed_job(spark: SparkSession, control: Control) -> None:
    """Let a job fail for good."""
    seconds = control.size(500, 400, 1200) / 1000

    def work(rows: Iterable[int]) -> Iterator[int]:
        time.sleep(seconds)
        if TaskContext.get().partitionId() == 2:  # noqa: PLR2004
            message = "every attempt fails on purpose"
            raise ValueError(message)
        yield sum(rows)

    _even(spark, tasks=4, milliseconds=300, name="a job that succeeds")
    spark.sparkContext.setJobDescription("a job that fails")
    try:
        spark.sparkContext.parallelize(range(800), 4).mapPartitions(work).collect()
    except Exception as error:  # noqa: BLE001  (whatever Spark makes of it)
        print("failed as it should:", str(error).splitlines()[0])


def even_sleep(spark: SparkSession, control: Control) -> None:  # noqa: ARG001
    """Tasks that wait for something outside, as for a slow store: they take the same time on a busy machine."""

    def work(rows: Iterable[int]) -> Iterator[int]:
        time.sleep(0.5)
        yield sum(rows)

    spark.sparkContext.setJobDescription("even tasks that wait for a store")
    spark.sparkContext.parallelize(range(2000), 20).mapPartitions(work).collect()


def uneven_sleep(spark: SparkSession, control: Control) -> None:  # noqa: ARG001
    """Wait for something outside, some tasks longer than others, in two stages."""

    def work(rows: Iterable[int]) -> Iterator[int]:
        partition = TaskContext.get().partitionId()
        time.sleep(0.2 + 0.15 * (partition * 7 % 11))
        yield partition + sum(1 for _ in rows)

    spark.sparkContext.setJobDescription("uneven tasks that wait for a store, twice")
    rows = spark.sparkContext.parallelize(range(1100), 11).mapPartitions(work).map(lambda number: (number, number))
    rows.partitionBy(6).mapPartitions(work).collect()


def even_cpu(spark: SparkSession, control: Control) -> None:  # noqa: ARG001
    """Do even work in two even stages, a little less than `healthy`."""
    _grouped(spark, tasks=12, reducers=12, milliseconds=400, name="even map, even reduce", cost=_spin)


def uneven_cpu(spark: SparkSession, control: Control) -> None:  # noqa: ARG001
    """Do uneven work."""
    _named(spark, "partitions of different cost, one of them long")
    cost = f.when(f.spark_partition_id() == 3, 300).otherwise(15 + f.spark_partition_id() * 5)  # noqa: PLR2004
    _run(_rows(spark, 120, 12).select("id", _spin(cost).alias("value")))


def many_jobs(spark: SparkSession, control: Control) -> None:  # noqa: ARG001
    """Run short jobs with short pauses."""
    for number in range(6):
        _even(spark, tasks=5, milliseconds=250, name=f"job {number}")
        time.sleep(0.3)


def driver_and_tasks(spark: SparkSession, control: Control) -> None:  # noqa: ARG001
    """Work on the executors and pause in the driver in turn."""
    for number in range(3):
        _even(spark, tasks=6, milliseconds=400, name=f"round {number}")
        time.sleep(2)


_EXPORTS = ((1, (8000, 6000, 9000)), (3, (4000, 3000, 5000)), (1, (6000, 4000, 7000)), (5, (2000, 1500, 2500)))
"""Queries that need nothing of each other: their tasks, fewer than cores or an odd number, and milliseconds of each."""


def _export(spark: SparkSession, tasks: int, milliseconds: int) -> None:
    """Wait for a slow store in so many tasks."""
    _named(spark, f"export of {tasks} parts")
    _run(_rows(spark, tasks, tasks).select("id", take(milliseconds).alias("value")))


def one_by_one(spark: SparkSession, control: Control) -> None:
    """Run queries one after the other that need nothing of each other."""
    _export(spark, 2, 500)
    for tasks, sizes in _EXPORTS:
        _export(spark, tasks, control.size(*sizes))


def at_once(spark: SparkSession, control: Control) -> None:
    """Run the same queries, each from a thread of its own."""
    _export(spark, 2, 500)
    threads = [threading.Thread(target=_export, args=[spark, tasks, control.size(*sizes)]) for tasks, sizes in _EXPORTS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


_RAMP_UP = _NO_ADAPTATION | {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "1",
    "spark.dynamicAllocation.maxExecutors": "2",
    "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
}

CAUSES = (
    Cause(
        name="healthy",
        program=healthy,
        done="16 equal map tasks, an even shuffle, 16 equal reduce tasks, two executors.",
        answer="No alarm: both executors work all the time the job runs; what remains is start-up and the work itself.",
        settings=_NO_ADAPTATION,
    ),
    Cause(
        name="skewed-key",
        program=skewed_key,
        done="70 % of the rows have one key; they go by key to 8 partitions, and are worked on row by row there.",
        answer="Key skew in the stage after the shuffle: one task reads more than two thirds of its records and bytes "
        "and takes as much longer; the other executor is idle meanwhile.",
        settings=_NO_ADAPTATION,
    ),
    Cause(
        name="straggler-task",
        program=straggler_task,
        done="10 partitions of equal size in one stage; the work of partition 5 costs 25 times as much.",
        answer="One straggling task (index 5) whose input is like the others': no key skew, and not its executor's "
        "fault, whose other tasks are as fast as any.",
        settings=_NO_ADAPTATION,
    ),
    Cause(
        name="slow-node",
        program=slow_node,
        done="Even work; after a warm-up job the executor on host 127.0.0.2 is stopped five sixths of the time "
        "(SIGSTOP and SIGCONT in turn).",
        answer="Slow node: all tasks on host 127.0.0.2 take several times as long as those on 127.0.0.1, with the same "
        "input; no key skew.",
        # Otherwise reducers would wait for the executor that wrote most of the shuffle: the fast one.
        settings=_NO_ADAPTATION | {"spark.locality.wait": "0s"},
    ),
    Cause(
        name="gc-heavy",
        program=gc_heavy,
        done="collect_set keeps millions of small strings in an executor heap that is only just large enough.",
        answer="Garbage collection: a large part of the run time of the second stage's tasks is JVM GC time.",
        settings=_NO_ADAPTATION
        | {
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "100000000",
            "spark.executor.memory": "480m",
            "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xmn6m",
        },
    ),
    Cause(
        name="spill",
        program=spill,
        done="A sort of wide rows in two partitions, with a tenth of the usual memory for execution.",
        answer="Spill: the sorting stage's tasks spill to memory and disk many times over.",
        settings=_NO_ADAPTATION | {"spark.memory.fraction": "0.06"},
    ),
    Cause(
        name="driver-bound",
        program=driver_bound,
        done="Three times: collect 200,000 rows, then 4 s of work in the driver alone.",
        answer="The driver: most of the time lies between jobs and in results on their way to the driver; "
        "executors are idle.",
        settings=_NO_ADAPTATION,
    ),
    Cause(
        name="lost-executor",
        program=lost_executor,
        done="The executor on 127.0.0.2 is killed when 8 of 20 map tasks are done; the cluster starts another one.",
        answer="A lost executor: the tasks it ran and the map outputs it held are computed again, and its core is "
        "missing until the next executor is up.",
        settings=_NO_ADAPTATION,
    ),
    Cause(
        name="retried-stage",
        program=retried_stage,
        done="A shuffle is used twice; before the second use one executor's shuffle files are deleted.",
        answer="Fetch failures: the second job's reduce stage fails to fetch, and map tasks whose output was lost run "
        "again in a second attempt of their stage.",
    ),
    Cause(
        name="speculation",
        program=speculation,
        done="With speculation on, the first attempt of task 7 hangs for 25 s; its copy takes 0.4 s.",
        answer="A straggling attempt of task 7; a speculative copy won. It cost the time until speculation began, "
        "and the copy. The first attempt was still running when the application ended: the log has its start only.",
        settings={
            "spark.speculation": "true",
            "spark.speculation.interval": "100ms",
            "spark.speculation.multiplier": "8",
            "spark.speculation.quantile": "0.5",
        },
    ),
    Cause(
        name="too-few-partitions",
        program=too_few_partitions,
        done="All the work in one partition, on two executors.",
        answer="Too few partitions: a stage of one task, so one of two cores is idle all the time.",
        settings=_NO_ADAPTATION,
    ),
    Cause(
        name="tiny-tasks",
        program=tiny_tasks,
        done="One stage of 900 tasks, each with one number to count.",
        answer="Too many tiny tasks: launching, deserialising and finishing tasks takes longer than their work.",
    ),
    Cause(
        name="concurrent-jobs",
        program=concurrent_jobs,
        done="Three threads run one job each at the same time, in pools of their own with the fair scheduler.",
        answer="Three jobs overlap and share two cores: each waits for cores that the others have. No negative driver "
        "time, nothing counted twice; the cores are busy, so only more cores or less work helps.",
        settings=_NO_ADAPTATION | {"spark.scheduler.mode": "FAIR"},
    ),
    Cause(
        name="two-jobs",
        program=two_jobs,
        done="Two jobs in a row with a second of sleep in the driver between them.",
        answer="Nothing is wrong; the gap of a second between the jobs is the driver's.",
        settings=_NO_ADAPTATION,
    ),
    Cause(
        name="sql",
        program=sql,
        done="Broadcast join, sort-merge join, window function and a cached table, with adaptive execution.",
        answer="Nothing is wrong; executions, plan nodes and adaptive re-planning have to be named rightly.",
        settings={"spark.sql.adaptive.enabled": "true", "spark.sql.shuffle.partitions": "4"},
    ),
    Cause(
        name="streaming",
        program=streaming,
        done="A streaming aggregate over five or more micro-batches of 400 rows.",
        answer="Each micro-batch is an epoch; its time is the driver's planning and committing, and two small stages.",
        settings={"spark.sql.shuffle.partitions": "2"},
    ),
    Cause(
        name="dynamic-allocation",
        program=dynamic_allocation,
        done="Two bursts of work 8 s apart; executors that are idle for 2 s are given back and asked for again.",
        answer="Between the bursts the driver sleeps and the executors go; the second one waits for new ones to start.",
        settings=_NO_ADAPTATION
        | {
            "spark.dynamicAllocation.enabled": "true",
            "spark.dynamicAllocation.shuffleTracking.enabled": "true",
            "spark.dynamicAllocation.minExecutors": "0",
            "spark.dynamicAllocation.maxExecutors": "2",
            "spark.dynamicAllocation.executorIdleTimeout": "2s",
            "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
        },
    ),
    Cause(
        name="ramp-up",
        program=ramp_up,
        done="40 even tasks, one executor from the start; the second one is asked for after a second of waiting tasks.",
        answer="Waiting for executors: the second executor comes late, and only half of the work is done in parallel.",
        settings=_RAMP_UP | {"spark.dynamicAllocation.initialExecutors": "1"},
    ),
    Cause(
        name="ramp-up-mended",
        program=ramp_up,
        done="The same with two executors from the start.",
        answer="No alarm: both executors work all the time that the job runs.",
        settings=_RAMP_UP | {"spark.dynamicAllocation.initialExecutors": "2"},
    ),
    Cause(
        name="failed-task",
        program=failed_task,
        done="Task 3 fails three times, each time after 1.5 s, before it succeeds.",
        answer="Task retries: the stage lasts as long as the four attempts of task 3 in a row; the other core idles.",
    ),
    Cause(
        name="failed-job",
        program=failed_job,
        done="A job succeeds; a second one fails because one task fails four times.",
        answer="The second job failed (task 2, four attempts); the time it took was for nothing.",
        settings=_NO_ADAPTATION,
    ),
)
"""One program for each cause."""

PAIRS = (
    ("even-sleep", even_sleep, {}),
    ("uneven-sleep", uneven_sleep, {}),
    ("even-cpu", even_cpu, _NO_ADAPTATION),
    ("uneven-cpu", uneven_cpu, _NO_ADAPTATION),
    ("many-jobs", many_jobs, _NO_ADAPTATION),
    ("driver-and-tasks", driver_and_tasks, _NO_ADAPTATION),
    ("healthy", healthy, _NO_ADAPTATION),
    ("skewed-key", skewed_key, _NO_ADAPTATION),
    ("ramp-up", ramp_up, _NO_ADAPTATION),
    ("sql", sql, {"spark.sql.adaptive.enabled": "true", "spark.sql.shuffle.partitions": "4"}),
)

_SHAPES = {"1": (1, 1), "2": (2, 1), "1x2": (1, 2)}

CORES = tuple(
    Cause(
        name=f"cores-{name}-{shape}",
        program=program,
        done=f"{name} with {executors} executor{'s' * (executors > 1)} of {cores} core{'s' * (cores > 1)}.",
        answer="Predict from this one how long the others of the same name take.",
        settings=settings,
        executors=executors,
        executor_cores=cores,
    )
    for name, program, settings in PAIRS
    for shape, (executors, cores) in _SHAPES.items()
)
"""The same programs with one executor, with two, and with one of two cores: predictions of the one from the other."""

ORDERS = (
    Cause(
        name="one-by-one",
        program=one_by_one,
        done="Four queries that need nothing of each other run one after the other; most leave a core without work.",
        answer="Predict from this one how long `at-once` takes.",
        settings=_NO_ADAPTATION,
    ),
    Cause(
        name="at-once",
        program=at_once,
        done="The same four queries, each from a thread of its own.",
        answer="As long as predicted from `one-by-one` with --independent 'query 1,query 2,query 3,query 4'.",
        settings=_NO_ADAPTATION,
    ),
)
"""Queries that need nothing of each other, one after the other and at once: the one predicted from the other."""

ALL = {cause.name: cause for cause in (*CAUSES, *CORES, *ORDERS)}


def session(cause: Cause, *, master: str, log: Path, **more: str) -> SparkSession:
    """Start a session with as many executors as the program wants, logging its events.

    Parameters
    ----------
    cause
        The program.
    master
        Address of the cluster.
    log
        Folder for the log.
    **more
        Settings by name, which go before those of the program.
    """
    settings: dict[str, Any] = {
        "spark.executor.cores": str(cause.executor_cores),
        "spark.executor.memory": "600m",
        "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.driver.memory": "700m",
        "spark.driver.extraJavaOptions": "-Duser.name=spark -XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.cores.max": str(cause.executors * cause.executor_cores),
        # Otherwise a quick first executor would do all the work of a short program before the second one is there.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": log.as_uri(),
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
        "spark.sql.warehouse.dir": (log.parent / "warehouse").as_uri(),
    }
    builder = SparkSession.builder.master(master).appName(cause.name)
    for name, value in (settings | cause.settings | more).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main(name: str, known: Mapping[str, Cause] = ALL) -> None:
    """Run one of the `known` programs; the environment says where (`make_logs.py` sets it)."""
    setup = json.loads(os.environ["SPARK_CAUSES"])
    cause = known[name]
    spark = session(cause, master=setup["master"], log=Path(setup["log"]), **setup.get("settings", {}))
    spark.sparkContext.setLogLevel("ERROR")
    try:
        cause.program(spark, Control(setup["workers"], Path(setup["folder"]), setup.get("seed", 0)))
    finally:
        spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
