"""Stages of a log with what their tasks took."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from pag_graph.sources.spark.task_rows import widened

if TYPE_CHECKING:
    from pag_graph.sources.spark.schedule import Schedule

__all__ = ["stage_table"]


def stage_table(schedule: Schedule) -> pl.DataFrame:
    """Return one row per stage attempt with tasks, in the order of their begin.

    Parameters
    ----------
    schedule
        Of one log.

    Returns
    -------
    pl.DataFrame
        Times in nanoseconds; `busy_ns` is what its tasks held cores, `skew_ratio` the longest task over the median.
    """
    held_ns = pl.col("free") - pl.col("receipt")
    shuffle_read = pl.col("remote_bytes") + pl.col("local_bytes")
    table = (
        widened(schedule.tasks)
        .group_by("stage", "stage_attempt", maintain_order=True)
        .agg(
            pl.col("job").first(),
            pl.len().cast(pl.Int64).alias("tasks"),
            (~pl.col("succeeded") & ~pl.col("running")).sum().cast(pl.Int64).alias("failed"),
            pl.col("running").sum().cast(pl.Int64).alias("running"),
            pl.col("speculative").sum().cast(pl.Int64).alias("speculative"),
            pl.col("launch").min().alias("start_ns"),
            pl.col("done").max().alias("end_ns"),
            held_ns.sum().alias("busy_ns"),
            held_ns.median().cast(pl.Int64).alias("median_ns"),
            held_ns.max().alias("max_ns"),
            pl.col("run").sum().alias("run_ns"),
            pl.col("cpu_ns").sum(),
            pl.col("gc").sum().alias("gc_ns"),
            pl.col("deserialize").sum().alias("deserialize_ns"),
            pl.col("delay").sum().alias("delay_ns"),
            pl.col("fetch_wait").sum().alias("fetch_wait_ns"),
            pl.col("write").sum().alias("write_ns"),
            pl.col("disk_spilled_bytes").sum().alias("spilled_bytes"),
            pl.col("memory_spilled_bytes").sum(),
            (shuffle_read + pl.col("input_bytes")).sum().alias("read_bytes"),
            (pl.col("shuffle_write_bytes") + pl.col("output_bytes")).sum().alias("written_bytes"),
            pl.col("result_bytes").sum(),
        )
        .sort("start_ns", "stage", "stage_attempt")
    )
    # Where no task of a log took any, processor time was not measured.
    measured = bool((schedule.tasks["cpu_ns"] > 0).any())
    return table.with_columns(
        cpu_ns=pl.col("cpu_ns") if measured else pl.lit(None, pl.Int64),
        skew_ratio=pl.when(pl.col("median_ns") > 0).then(pl.col("max_ns") / pl.col("median_ns")).otherwise(1.0),
        job=pl.Series([None if j is None else schedule.jobs[j].number for j in table["job"].to_list()], dtype=pl.Int64),
    )
