"""Causes of lost time: what people call each, and what usually helps."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["CAUSES", "Known"]


class Known(NamedTuple):
    """A cause."""

    title: str
    """As a heading."""
    advice: str
    """What usually helps; detectors say something closer where they know more."""
    kind: str = "B"
    """``M`` where the time lost was measured and the rest is replayed, ``B`` where it is modelled."""


CAUSES: dict[str, Known] = {
    "key_skew": Known("Skewed keys", "Spread the key: salt it, or aggregate before the shuffle."),
    "partition_skew": Known(
        "Uneven partitions", "Make input partitions of equal size: repartition, or split large files."
    ),
    "slow_node": Known("Slow node", "Look at the machine; exclude it, or turn on speculation.", kind="M"),
    "straggler": Known(
        "Straggling task", "Look at what this task computes: the same amount of data costs more there.", kind="M"
    ),
    "deserialization": Known(
        "Tasks that load code and data before they work",
        "Send less with each task: smaller closures, broadcast variables for what tasks share, fewer and longer-lived"
        " executors.",
        kind="M",
    ),
    "gc": Known(
        "Garbage collection", "Give executors more memory or fewer cores each, and keep fewer objects alive.", kind="M"
    ),
    "spill": Known("Spilling to disk", "Use more partitions, or give executors more memory for execution."),
    "driver_bound": Known(
        "The driver alone",
        "The log does not say what the driver did then: the program's own work, planning, garbage collection, input and"
        " output, or waiting. Look at what the program does between these jobs.",
    ),
    "idle_shell": Known(
        "An interactive session without work",
        "Nobody asked for anything: between the jobs of a shell or notebook people read and think.",
    ),
    "stream_idle": Known(
        "Streams with time to spare",
        "Nothing is late: batches begin when input comes or their trigger says so, and what makes batches shorter makes"
        " these pauses longer. Fewer cores may do as well.",
    ),
    "collect_large": Known(
        "Large results for the driver",
        "Write the result instead of collecting it, take a part of it, or aggregate on executors.",
    ),
    "many_small_jobs": Known(
        "Many small jobs", "Ask for all at once: one query over all keys or files instead of a job for each."
    ),
    "aqe_lag": Known(
        "The driver between the stages of adaptive queries",
        "Let queries have fewer exchanges: aggregate and join by one key where they can, and drop repartitions.",
        kind="M",
    ),
    "memory_under": Known(
        "Executors whose memory is full",
        "Give executors more memory, or fewer tasks at once: they collect garbage or spill because nothing is free.",
    ),
    "unused_slots": Known(
        "Cores that no task may use",
        "Lower spark.task.cpus, or what the stages' resource profile asks for each task, unless a task works in"
        " several threads.",
        kind="M",
    ),
    "contention": Known(
        "Tasks that share processors",
        "Let fewer tasks run at once on a host: as many as it has processors.",
    ),
    "output_commit": Known(
        "Committing output files",
        "Write fewer files, and use a committer that does not rename them (S3A magic, manifest).",
    ),
    "listing": Known(
        "Listing files", "Read a table of a catalogue, or fewer and larger directories; compact small files."
    ),
    "lost_executor": Known(
        "A lost executor",
        "Find out why the executor went (memory limits first); replicate or checkpoint what is dear.",
        kind="M",
    ),
    "stage_retry": Known(
        "Stages that ran again",
        "Shuffle files were lost: use an external shuffle service, and look at the disks and nodes.",
        kind="M",
    ),
    "task_retry": Known("Failed tasks", "Look at why the tasks failed; each attempt starts anew.", kind="M"),
    "failed_job": Known("A failed job", "Look at the error of the job; its time was for nothing."),
    "speculation": Known(
        "Hanging tasks with copies",
        "The first attempts hung: find out why. Lower spark.speculation.multiplier to react sooner.",
        kind="M",
    ),
    "too_few_partitions": Known("Too few partitions", "Use more partitions: at least as many as there are cores."),
    "single_window": Known(
        "A window over all rows",
        "Give the window a PARTITION BY: without one all rows go to one task, however many partitions there are. If all"
        " rows must be ranked, divide them into ranges of what orders them (approxQuantile gives bounds), rank within"
        " each range, and add how many rows the ranges before have.",
    ),
    "unsplittable_input": Known(
        "Input that cannot be split",
        "Write it in a form that splits (Parquet, ORC, plain text, bzip2) or as several files, or repartition after"
        " reading: one compressed file is one task.",
    ),
    "tiny_tasks": Known("Tiny tasks", "Use fewer, larger partitions: coalesce, or raise the split size.", kind="M"),
    "concurrent_jobs": Known(
        "Jobs that share the cores", "Add cores, or run the jobs one after the other if one matters more."
    ),
    "scheduling": Known(
        "Tasks that wait for launch or result",
        "Look at the driver's load, locality waits, and the size of tasks and results.",
        kind="M",
    ),
    "shuffle_fetch": Known(
        "Waiting for shuffle blocks",
        "Reduce what is shuffled, or look at the network and the shuffle servers.",
        kind="M",
    ),
    "shuffle_write": Known(
        "Writing shuffle blocks",
        "Shuffle fewer and smaller rows, put spark.local.dir on fast local disks, or change the codec.",
        kind="M",
    ),
    "executor_wait": Known(
        "Waiting for executors",
        "Keep some executors, or ask for them earlier: spark.dynamicAllocation.initialExecutors and minExecutors.",
        kind="M",
    ),
    "python_udf": Known(
        "Python functions",
        "Compute it with built-in functions or SQL: they run in the executors, without sending rows to Python.",
        kind="M",
    ),
    "broadcast_missed": Known(
        "A join that shuffles both sides, one of them small",
        "Send the small side to all executors: raise spark.sql.autoBroadcastJoinThreshold, or give the broadcast hint.",
    ),
    "exploding_join": Known(
        "A join that makes far more rows than it reads",
        "Join on a key that tells rows apart, remove duplicates before, or aggregate before the join.",
    ),
    "small_files_read": Known("Many small files to read", "Compact the table: fewer files of 128 MiB or so.", kind="M"),
    "small_files_written": Known(
        "Many small files written",
        "Bring the rows of a partition together before writing: repartition by the partition columns.",
        kind="M",
    ),
    "repeated_subplan": Known(
        "The same computed again", "Keep what several queries begin with: persist() it, or write it to a table."
    ),
    "huge_partitions": Known(
        "Partitions too large for their tasks' memory",
        "Use so many partitions that each is about 128 MiB: what does not fit into memory goes to disk and back.",
    ),
    "locality_wait": Known(
        "Waiting for a place near the data",
        "Lower spark.locality.wait: a task that runs elsewhere at once is often done before a near core is free.",
        kind="M",
    ),
    "cloud_wait": Known(
        "Requests to the object store",
        "Make fewer and larger requests: larger files, fewer columns, a cache of the files near the executors.",
        kind="M",
    ),
    "driver_gc": Known(
        "Garbage collection of the driver",
        "Give the driver more memory, or collect and broadcast less.",
        kind="M",
    ),
    "batch_overrun": Known("The frame of a stream's batches", "Take more rows into each batch.", kind="M"),
    "state_growth": Known(
        "A stream's state that grows",
        "Let old state go by a watermark, and keep it in RocksDB, outside of the heap.",
        kind="M",
    ),
    "merge_rewrite": Known(
        "A merge that writes rows again unchanged",
        "Let the merge read fewer files (a condition on partitions), or use deletion vectors.",
    ),
    "table_commit": Known(
        "Jobs for a table's log alone",
        "Keep the table's log short: checkpoints, fewer and larger commits, statistics of fewer columns.",
        kind="M",
    ),
    "cache_recomputed": Known(
        "A cache that did not hold",
        "Keep it on disk too (MEMORY_AND_DISK), give executors more memory for storage, or cache fewer columns.",
        kind="M",
    ),
}
"""Causes by the name that programs see."""
