"""What a task takes longer only because it is the first of its stage on a core, or of its executor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pag_graph.sources.spark.schedule import Schedule

    I64 = NDArray[np.int64]

__all__ = ["COLD_START", "settled", "warm_up"]

COLD_START = 6
"""How many times the excess of its deserialisation a core's first task takes longer, at most, for being the first.

It loads the code of the work as well, and starts Python where the work is in Python. In logs of a standalone cluster
all of it was 2 to 5 times what deserialisation took more."""


def warm_up(schedule: Schedule) -> tuple[I64, dict[tuple[int, int], int]]:
    """Return how long tasks take on a core that has had one of their stage, and what the first one there takes more.

    The first task of a stage on a core loads classes and code, and reads what all tasks of the stage share. What that
    adds is taken to be the lower median, over the cores, of how much their first task exceeds the median of the stage's
    other tasks: where one core's first task has a trouble of its own, the others tell.

    Where a stage had one core, nothing tells but the deserialisation, which no trouble of the data makes longer: of the
    first task's excess as much as `COLD_START` times that of its deserialisation goes with the core.

    Parameters
    ----------
    schedule
        Of one log.

    Returns
    -------
    durations
        Per task, nanoseconds.
    first
        Stage and attempt to nanoseconds.
    """
    first_tasks = _first_tasks(schedule)
    extra_ns = first_tasks.select(pl.min_horizontal("usual", "extra")).to_series().to_numpy()
    by_stage = first_tasks.unique(["stage", "stage_attempt"], maintain_order=True)
    return _held_without(schedule, first_tasks["number"].to_numpy(), extra_ns), {
        (int(stage), int(attempt)): int(ns)
        for stage, attempt, ns in by_stage.select("stage", "stage_attempt", "usual").iter_rows()
    }


def settled(schedule: Schedule) -> I64:
    """Return how long tasks take without what their core or executor took for them only because they were the first.

    As `warm_up`, but by task: what its own deserialisation took more than usual counts as well, and of an executor's
    very first task `COLD_START` times that. An executor that starts when others are at work is no reason to call its
    first task slow.

    Parameters
    ----------
    schedule
        Of one log.

    Returns
    -------
    array
        Per task, nanoseconds.
    """
    first_tasks = _first_tasks(schedule)
    cold = pl.when("ever").then(COLD_START * pl.col("loading")).otherwise("loading")
    extra_ns = first_tasks.select(pl.min_horizontal("extra", pl.max_horizontal("usual", cold))).to_series().to_numpy()
    return _held_without(schedule, first_tasks["number"].to_numpy(), extra_ns)


def _held_without(schedule: Schedule, numbers: I64, extra_ns: I64) -> I64:
    held_ns = (schedule.tasks["free"] - schedule.tasks["receipt"]).to_numpy().copy()
    held_ns[numbers] -= extra_ns
    return held_ns


def _first_tasks(schedule: Schedule) -> pl.DataFrame:
    """Return the first task of each stage on each core.

    How much longer than the median of the others it took (`extra`), how much of that its deserialisation (`loading`),
    what is `usual` in the stage, and whether it was the first that its executor `ever` had.
    """
    columns = ("stage", "stage_attempt", "core", "executor", "receipt", "deserialize", "succeeded")
    tasks = schedule.tasks.select(*columns, held=pl.col("free") - pl.col("receipt")).with_row_index("number")
    key = ["stage", "stage_attempt"]
    order = tasks.sort("receipt", "number")
    ever = order.unique("executor", keep="first", maintain_order=True)["number"]
    first_tasks = order.unique([*key, "core"], keep="first", maintain_order=True)
    later_tasks = (
        tasks.filter(~pl.col("number").is_in(first_tasks["number"].implode()) & pl.col("succeeded"))
        .group_by(key)
        .agg(pl.col("held").median().alias("typical"), pl.col("deserialize").median().alias("usual_deserialize"))
    )
    extra = (
        first_tasks.join(later_tasks, on=key, how="inner", maintain_order="left")
        .with_columns(
            extra=(pl.col("held") - pl.col("typical")).clip(lower_bound=0).cast(pl.Int64),
            loading=(pl.col("deserialize") - pl.col("usual_deserialize")).clip(lower_bound=0).cast(pl.Int64),
            ever=pl.col("number").is_in(ever.implode()),
        )
        .with_columns(
            told=pl.when(pl.len().over(key) > 1)
            .then("extra")
            .otherwise(pl.min_horizontal("extra", COLD_START * pl.col("loading")))
        )
    )
    usual = extra.group_by(key).agg(usual=pl.col("told").sort().get((pl.len() - 1) // 2))
    return extra.join(usual, on=key, how="inner", maintain_order="left")
