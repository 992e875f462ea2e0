"""When an application began and ended, from the times in its log that can be trusted.

Its own start and end and its tasks, jobs, stages and queries bound it. Times of executors do not: logs exist in which
they lie years apart from all others. What lies outside is moved to the nearer bound, and counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pag_graph.sources.spark.log_tables import LogFinding, SparkLog, note

if TYPE_CHECKING:
    from collections.abc import Iterable

    import polars as pl

__all__ = ["find_extent", "within"]

_BEFORE_MS = 3_600_000
"""Where a log has lost its start, executors that came at most an hour before everything else tell when it was."""


def find_extent(log: SparkLog, findings: list[LogFinding]) -> tuple[int, int]:
    """Return when the application began and ended.

    Parameters
    ----------
    log
        As read.
    findings
        Times outside of the application are added, counted.

    Returns
    -------
    origin, end
        Milliseconds since 1970, `origin` before `end`. The origin is the application's start or the first launch; the
        end is the application's end or the last result; where the log has no end, the last time of a task, job, stage
        or query.
    """
    launches, results = _times(log.tasks, "launch_ms"), _times(log.tasks, "finish_ms")
    driver = [
        *_times(log.jobs, "submitted_ms", "completed_ms"),
        *_times(log.stages, "submitted_ms", "completed_ms"),
        *_times(log.executions, "started_ms", "ended_ms"),
    ]
    executors = _times(log.executors, "added_ms", "removed_ms")
    job_times = [*launches, *results, *driver]
    if log.start_ms is not None:
        origin = min([log.start_ms, *launches])
    elif job_times:
        first_ms = min(job_times)
        origin = min([first_ms, *(t for t in executors if t >= first_ms - _BEFORE_MS)])
    else:
        origin = log.first_ms
    ends = job_times if log.end_ms is None else [log.end_ms, *launches, *results]
    end = max([*(ends or [log.last_ms]), origin + 1])
    outside = sum(not origin <= t <= end for t in (*driver, *executors))
    detail = "times of jobs, stages, queries or executors before the application's start or after its end; moved there"
    note(findings, "time_outside_application", "warning", outside, "times", detail)
    return origin, end


def within(t: int | None, origin: int, end: int) -> int | None:
    """Return a time, moved to the nearer bound if it lies outside.

    Parameters
    ----------
    t
        The time; None stays None.
    origin, end
        The bounds, in the same unit (`find_extent`).
    """
    return None if t is None else min(max(t, origin), end)


def _times(table: pl.DataFrame, *columns: str) -> list[int]:
    """Return the times of some columns: for tasks the first and the last, which bound the others."""
    times: list[int] = []
    for name in columns:
        if name not in table.columns:
            continue
        stated = table[name].drop_nulls().filter(table[name].drop_nulls() > 0)
        instants: Iterable[object] = (stated.min(), stated.max()) if name in {"launch_ms", "finish_ms"} else stated
        times += [t for t in instants if isinstance(t, int)]
    return times
