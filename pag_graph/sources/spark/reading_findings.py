"""What was odd while a log was read, as findings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from pag_graph.sources.spark.log_lines import LONGEST_LINE
from pag_graph.sources.spark.log_tables import LogFinding, note
from pag_graph.sources.spark.task_rows import ENDED, FAILED, KILLED

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["event_findings", "lost_events"]


def event_findings(
    *,
    unparsed: int,
    too_long: int,
    damaged: Mapping[str, int],
    odd_values: int,
    unknown: Mapping[str, int],
    of_others: int,
    twice: int,
) -> list[LogFinding]:
    """Return findings about lines, events and values that were not taken in.

    Parameters
    ----------
    unparsed, too_long
        Lines that are no event, and that are too long for one.
    damaged, unknown
        Events by name: those that lack something, and those that say nothing to the reader.
    odd_values
        Numbers out of range.
    of_others
        Events of an application that begins after the first one.
    twice
        Ends of tasks that came before.
    """
    findings: list[LogFinding] = []
    detail = "lines that are no event (the last one may be cut short); left out"
    note(findings, "line_unreadable", "warning", unparsed, "lines", detail)
    detail = f"lines longer than {LONGEST_LINE >> 20} MiB; left out"
    note(findings, "line_too_long", "warning", too_long, "lines", detail)
    for name, count in sorted(damaged.items()):
        detail = f"{name} events that lack a value or hold one of another type; left out"
        note(findings, "event_damaged", "warning", count, "events", detail)
    detail = "numbers of tasks or executors that are out of range; taken as 0 or as the largest number"
    note(findings, "value_out_of_range", "warning", odd_values, "values", detail)
    detail = "events of another application that begins later in the log; left out"
    note(findings, "second_application", "warning", of_others, "events", detail)
    detail = "ends of tasks that the log states twice; the first one counts"
    note(findings, "task_end_twice", "warning", twice, "events", detail)
    names = ", ".join(f"{count} x {name.rsplit('.', 1)[-1][:60]}" for name, count in sorted(unknown.items())[:8])
    note(findings, "event_unknown", "info", sum(unknown.values()), "events", f"not needed here: {names}")
    return findings


def lost_events(stages: pl.DataFrame, tasks: pl.DataFrame) -> list[LogFinding]:
    """Return a finding about ends of tasks that must have been, and are not in the log.

    A stage that completed had as many tasks that succeeded as it says. Spark drops events when its queue for the log is
    full.

    Parameters
    ----------
    stages, tasks
        Of a log, as read.
    """
    succeeded = (pl.col("flags") & (ENDED | FAILED | KILLED)) == ENDED
    keys = ("stage", "stage_attempt")
    task_ends = (
        tasks.filter(succeeded)
        .select(pl.col(*keys).cast(pl.Int64), "index")
        .group_by(*keys)
        .agg(pl.col("index").n_unique().cast(pl.Int64).alias("ends"))
    )
    completed = stages.filter(pl.col("completed_ms").is_not_null() & ~pl.col("failed").fill_null(value=False))
    missing = completed.join(task_ends, on=keys, how="left").select(
        (pl.col("tasks") - pl.col("ends").fill_null(0)).clip(lower_bound=0).sum()
    )
    findings: list[LogFinding] = []
    detail = (
        "tasks of completed stages without an end in the log: Spark's queue was full, or a part of the log is missing;"
        " spark.scheduler.listenerbus.eventqueue.capacity makes it longer"
    )
    note(findings, "task_ends_lost", "warning", int(missing.item()), "tasks", detail)
    return findings
