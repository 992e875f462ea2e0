"""Small programs that are slow for what their plan does, each beside one that looks alike and one with the fix.

A *planted* program has the cause; its *twin* computes the same with the advice applied; its *decoy* has the same
operators, and takes its time elsewhere. All run on two cores of one process (`record_plans.py`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as f
from pyspark.storagelevel import StorageLevel

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = [
    "PATTERNS",
    "PROGRAMS",
    "ROLES",
    "Program",
    "Role",
    "broadcast_missed",
    "exploding_join",
    "healthy_work",
    "python_udf",
    "repeated_subplan",
    "sleeping_udf",
    "small_files_written",
]

Role = str
ROLES: tuple[Role, ...] = ("planted", "decoy", "twin")
_DIGITS = 7_919


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A cause that is planted, and what is done about it."""

    name: str
    cause: str
    """What an answer for the planted one names first."""
    run: Callable[[SparkSession, Role, Path], None]
    """Runs it in a role; the folder holds the data that `prepare` made, and may be written to."""
    settings: dict[str, str] = field(default_factory=dict)
    fixed_settings: dict[str, str] = field(default_factory=dict)
    """What the twin's settings are in place of these; empty where the fix is one of the program."""
    prepare: Callable[[Path], None] | None = None
    """Makes the data, outside of any session."""
    data: str = ""
    """Name of the data, where programs share them; else each has its own."""


def _sleep(milliseconds: Column | int) -> Column:
    """Take so many milliseconds per row without the processor, inside of the JVM."""
    duration = f.lit(milliseconds) if isinstance(milliseconds, int) else milliseconds
    return f.call_function("java_method", f.lit("java.lang.Thread"), f.lit("sleep"), duration.cast("bigint"))


def _slowly(frame: DataFrame, milliseconds: int) -> DataFrame:
    return frame.withColumn("slept", _sleep(milliseconds))


def _keep_nothing(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def healthy_work(spark: SparkSession, seconds: float) -> None:
    """Keep two cores at work for so long, in eight tasks that are alike and wait in the JVM."""
    _keep_nothing(_slowly(spark.range(0, 80, 1, 8), round(seconds * 25)))


def _rounds(number: int) -> int:
    for _ in range(12):
        number = (number * 31 + 7) % _DIGITS
    return number


def _rounds_in_sql(column: Column) -> Column:
    for _ in range(12):
        column = (column * 31 + 7) % _DIGITS
    return column


def python_udf(spark: SparkSession, role: Role, folder: Path, rows: int = 1_600_000) -> None:  # noqa: ARG001
    """Compute in Python, row by row, what an expression computes."""
    compute = f.udf(_copied(_rounds), "long")
    if role == "planted":
        _keep_nothing(spark.range(0, rows, 1, 8).select(compute("id")))
    elif role == "twin":
        _keep_nothing(spark.range(0, rows, 1, 8).select(_rounds_in_sql(f.col("id"))))
    else:
        _keep_nothing(_slowly(spark.range(0, 800, 1, 2).select(compute("id").alias("id")), 25))


def _copied(function: Callable[[int], int]) -> Callable[[int], int]:
    """Return a function that Spark sends as code, not as the name of a module that workers do not have."""
    modulus = _DIGITS

    def compute(number: int) -> int:
        for _ in range(12):
            number = (number * 31 + 7) % modulus
        return number

    return compute if function is _rounds else function


def pandas_udf(spark: SparkSession, role: Role, folder: Path) -> None:  # noqa: ARG001
    """Compute in Python, batch by batch, what an expression computes."""
    import pandas as pd

    modulus = _DIGITS

    def digits_of(numbers: pd.Series) -> pd.Series:
        return numbers.map(lambda number: sum(int(digit) for digit in str(number)) % modulus)

    # Spark looks the types up, which are no names of this module.
    digits_of.__annotations__ = {"numbers": pd.Series, "return": pd.Series}
    compute = f.pandas_udf(digits_of, "long")  # type: ignore[attr-defined,call-overload]
    if role == "planted":
        _keep_nothing(spark.range(0, 2_400_000, 1, 8).select(compute("id")))
    elif role == "twin":
        digits = f.split(f.col("id").cast("string"), "")
        total = f.aggregate(digits, f.lit(0).cast("long"), lambda so_far, digit: so_far + digit.try_cast("long"))
        _keep_nothing(spark.range(0, 2_400_000, 1, 8).select(total % modulus))
    else:
        _keep_nothing(_slowly(spark.range(0, 800, 1, 2).select(compute("id").alias("id")), 25))


def sleeping_udf(spark: SparkSession, role: Role, folder: Path, rows: int = 1_000) -> None:  # noqa: ARG001
    """Ask something slow for each row, in Python."""

    def ask(number: int) -> int:
        time.sleep(0.008)
        return number % 97

    asked = f.udf(ask, "long")
    if role == "planted":
        _keep_nothing(spark.range(0, rows, 1, 8).select(asked("id")))
    elif role == "twin":
        answers = spark.range(97).select(f.col("id").alias("key"), (f.col("id") * 1).alias("answer"))
        _keep_nothing(spark.range(0, rows, 1, 8).withColumn("key", f.col("id") % 97).join(answers, "key"))
    else:
        few_rows = spark.range(0, 16, 1, 2).select(asked("id").alias("id"))
        _keep_nothing(_slowly(few_rows, 1_250))


def broadcast_missed(spark: SparkSession, role: Role, folder: Path, rows: int = 2_500_000) -> None:  # noqa: ARG001
    """Join many rows with a thousand, both sides shuffled and sorted."""
    large = spark.range(0, rows, 1, 4).select(
        (f.col("id") % 1_000).alias("key"), f.sha2(f.col("id").cast("string"), 256).alias("payload")
    )
    small = spark.range(0, 1_000, 1, 1).select(f.col("id").alias("key"), (f.col("id") * 3).alias("name"))
    if role == "decoy":
        # Both sides keep all their rows: neither can be sent to all.
        _keep_nothing(large.filter("payload < 'a'").join(small, "key", "full"))
    else:
        _keep_nothing(large.join(small, "key"))


def exploding_join(spark: SparkSession, role: Role, folder: Path, rows: int = 12_000) -> None:  # noqa: ARG001
    """Join on a key that hardly tells rows apart."""
    left = spark.range(0, rows, 1, 4).select((f.col("id") % 12).alias("key"), f.col("id").alias("one"))
    right = spark.range(0, 6_000, 1, 4).select((f.col("id") % 12).alias("key"), f.col("id").alias("two"))
    if role == "twin":
        right = right.dropDuplicates(["key"])
    elif role == "decoy":
        right = spark.range(0, 12, 1, 4).select(f.col("id").alias("key"), f.col("id").alias("two"))
        left = left.limit(1_200).repartition(4)
    joined = left.join(right.hint("shuffle_hash"), "key")
    text = f.concat_ws("-", "one", "two")
    _keep_nothing(joined.select(_sleep(6) if role == "decoy" else f.sha2(text, 512)))


def cartesian(spark: SparkSession, role: Role, folder: Path) -> None:  # noqa: ARG001
    """Compare all rows with all others for want of a key."""
    rows = 200 if role == "decoy" else 9_000
    left = spark.range(0, rows, 1, 4).select(f.col("id").alias("one"), (f.col("id") % 997).alias("a"))
    right = spark.range(0, rows, 1, 4).select(f.col("id").alias("two"), (f.col("id") % 991).alias("b"))
    if role == "twin":
        _keep_nothing(left.join(right, left.a == right.b))
    else:
        joined = left.join(right, f.abs(left.a - right.b) < 1)
        _keep_nothing(_slowly(joined, 25) if role == "decoy" else joined)


def _many_files(folder: Path) -> None:
    _write_files(folder / "many", files=1_200, rows=50)
    _write_files(folder / "few", files=2, rows=30_000)
    _write_files(folder / "some", files=130, rows=10)


def _write_files(place: Path, *, files: int, rows: int) -> None:
    place.mkdir(parents=True)
    for number in range(files):
        ids = pa.array(range(number * rows, (number + 1) * rows), pa.int64())
        pq.write_table(pa.table({"id": ids}), place / f"part-{number:05}.parquet")


def small_files_read(spark: SparkSession, role: Role, folder: Path) -> None:
    """Read a table that lies in very many small files."""
    place = {"planted": "many", "twin": "few", "decoy": "some"}[role]
    rows = spark.read.schema("id long").parquet(str(folder / place))
    _keep_nothing(_slowly(rows, 8) if role == "decoy" else rows.select(f.col("id") + 1))


def small_files_written(spark: SparkSession, role: Role, folder: Path, parts: int = 100) -> None:
    """Write a file of each task for each partition."""
    rows = spark.range(0, 8_000 if role != "decoy" else 800, 1, 8).withColumn("part", f.col("id") % parts)
    if role == "twin":
        rows = rows.repartition(4, "part")
    elif role == "decoy":
        rows = _slowly(rows.repartition(2, "part"), 30)
    target = folder / f"written-{role}-{time.monotonic_ns()}"
    rows.write.partitionBy("part").parquet(str(target))


def repeated_subplan(spark: SparkSession, role: Role, folder: Path, milliseconds: int = 8) -> None:  # noqa: ARG001
    """Ask three questions about a table that is computed anew for each."""

    def costly(below: int) -> DataFrame:
        rows = spark.range(0, 480, 1, 8).filter(f.col("id") < below)
        return _slowly(rows, milliseconds).groupBy((f.col("id") % 12).alias("key")).agg(f.count("slept").alias("rows"))

    base = costly(500)
    if role == "twin":
        base.cache()
    for number in range(3):
        # The decoy asks the same of three tables that differ.
        table = costly(477 + number) if role == "decoy" else base
        table.filter(f.col("rows") > number).collect()


def cache_recomputed(spark: SparkSession, role: Role, folder: Path) -> None:  # noqa: ARG001
    """Keep in memory a table that does not fit, and read it three times."""
    pieces = f.sequence(f.lit(1), f.lit(8 if role == "decoy" else 2_000))
    # Text that does not compress well.
    wide = f.array_join(f.transform(pieces, lambda piece: f.sha2(f.concat(f.col("id"), piece), 512)), "")
    table = _slowly(spark.range(0, 320, 1, 8), 8).withColumn("wide", wide)
    level = StorageLevel.MEMORY_AND_DISK if role == "twin" else StorageLevel.MEMORY_ONLY
    table.persist(level)
    for number in range(3):
        read_rows = table.filter(f.length("wide") > number)
        _keep_nothing(_slowly(read_rows, 10) if role == "decoy" else read_rows.select(f.length("wide")))


def plan_patterns(spark: SparkSession, role: Role, data: Path) -> None:
    """Run queries whose plans look dear, one pattern each; the twin and the decoy have none."""
    del data
    planted = role == "planted"
    rows = spark.range(200_000).withColumn("key", f.col("id") % 20)
    # No two rows have the same key, or many have it.
    unique = (f.col("id") * _DIGITS % 1_000_003).alias("unique")
    _keep_nothing(rows.groupBy(unique if planted else "key").agg(f.sum("key")))
    _keep_nothing(rows.limit(20_000).withColumn("each", f.explode(f.sequence(f.lit(1), f.lit(20 if planted else 2)))))
    groups = rows.groupBy((f.col("id") % (2_000 if planted else 20)).alias("group"))
    _keep_nothing(groups.agg(f.collect_list("key")))
    left = rows.repartition(3) if planted else rows
    _keep_nothing(left.join(spark.range(100).withColumnRenamed("id", "key"), "key"))
    ordered = rows.orderBy(unique) if planted else rows
    _keep_nothing(ordered.groupBy("key").agg(f.first("id")))


def plan_texts(spark: SparkSession, role: Role, data: Path) -> None:
    """Run queries whose plans' texts show what is dear: a scan that keeps nothing back, text work, many columns."""
    planted = role == "planted"
    place = str(data / "rows")
    rows = spark.read.parquet(place)
    # A cast keeps the condition from the files.
    _keep_nothing(rows.filter("cast(id as string) = '17'" if planted else "id = 17"))
    _keep_nothing(rows.select(f.regexp_replace("text", "[0-9]+", "#") if planted else f.length("text")))
    columns = [(f.col("id") + number).alias(f"c{number}") for number in range(150 if planted else 15)]
    _keep_nothing(rows.select(*columns).filter("c1 > 5"))
    cached = rows.filter("id % 2 = 0").cache()
    for _ in range(1 if planted else 2):
        _keep_nothing(cached.select("id"))


def _rows_of_text(folder: Path) -> None:
    (folder / "rows").mkdir(parents=True)
    ids = range(220_000)
    table = pa.table({"id": pa.array(ids, pa.int64()), "text": [f"row {number} of many" for number in ids]})
    pq.write_table(table, folder / "rows" / "part-0.parquet")


def stream_frames(spark: SparkSession, role: Role, folder: Path) -> None:
    """Take a few rows a batch from a stream; the decoy's batches work for long."""
    batches, rows = (4, 700) if role == "twin" else (28, 100)
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).option("numPartitions", 2).load()
    if role == "decoy":
        batches, source = 12, source.filter(f.col("value") % 4 == 0).withColumn("slept", _sleep(120))
    _stream(source.selectExpr("*"), folder / f"frames-{role}-{time.monotonic_ns()}", batches, "append")


def growing_state(spark: SparkSession, role: Role, folder: Path) -> None:
    """Count by a key that never comes again; the twin lets groups go, the decoy has few."""
    source = (
        spark.readStream.format("rate-micro-batch")
        .options(rowsPerBatch=12_000, numPartitions=2, advanceMillisPerBatch=1_000, startTimestamp=0)
        .load()
    )
    if role == "twin":
        counts = source.withWatermark("timestamp", "2 seconds").groupBy(f.window("timestamp", "1 second"), "value")
    else:
        counts = source.groupBy(f.col("value") if role == "planted" else f.col("value") % 50)
    _stream(counts.count(), folder / f"state-{role}-{time.monotonic_ns()}", 15, "update")


def _stream(frame: DataFrame, checkpoint: Path, batches: int, mode: str) -> None:
    """Run a stream until it has had some batches."""
    writer = frame.writeStream.format("noop").outputMode(mode).option("checkpointLocation", str(checkpoint))
    query = writer.start()
    while query.isActive and (not query.lastProgress or query.lastProgress["batchId"] < batches - 1):
        time.sleep(0.05)
    query.stop()


PATTERNS = (
    Program(name="plan-texts", cause="", run=plan_texts, prepare=_rows_of_text),
    Program(
        name="plan-patterns",
        cause="",
        run=plan_patterns,
        settings={"spark.sql.autoBroadcastJoinThreshold": "-1", "spark.sql.shuffle.partitions": "4"},
    ),
    Program(name="growing-state", cause="", run=growing_state, settings={"spark.sql.shuffle.partitions": "2"}),
)
"""Programs whose plans show what has no time in the log, and streams that show what costs none of theirs."""

PROGRAMS = (
    Program(name="python-udf", cause="python_udf", run=python_udf),
    Program(name="pandas-udf", cause="python_udf", run=pandas_udf),
    Program(name="sleeping-udf", cause="python_udf", run=sleeping_udf),
    Program(
        name="broadcast-missed",
        cause="broadcast_missed",
        run=broadcast_missed,
        settings={"spark.sql.autoBroadcastJoinThreshold": "-1", "spark.sql.shuffle.partitions": "4"},
        fixed_settings={"spark.sql.autoBroadcastJoinThreshold": "10485760"},
    ),
    Program(
        name="exploding-join",
        cause="exploding_join",
        run=exploding_join,
        settings={"spark.sql.autoBroadcastJoinThreshold": "-1", "spark.sql.shuffle.partitions": "4"},
    ),
    Program(
        name="cartesian",
        cause="exploding_join",
        run=cartesian,
        settings={"spark.sql.autoBroadcastJoinThreshold": "-1", "spark.sql.shuffle.partitions": "4"},
    ),
    Program(name="small-files-read", cause="small_files_read", run=small_files_read, prepare=_many_files),
    Program(name="small-files-written", cause="small_files_written", run=small_files_written),
    Program(
        name="repeated-subplan",
        cause="repeated_subplan",
        run=repeated_subplan,
        settings={"spark.sql.shuffle.partitions": "4"},
    ),
    Program(
        name="stream-frames",
        cause="batch_overrun",
        run=stream_frames,
        settings={"spark.sql.shuffle.partitions": "2"},
    ),
    Program(
        name="cache-recomputed",
        cause="cache_recomputed",
        run=cache_recomputed,
        settings={"spark.memory.fraction": "0.06", "spark.memory.storageFraction": "0.1"},
    ),
)
"""One program for each cause that a plan shows."""
