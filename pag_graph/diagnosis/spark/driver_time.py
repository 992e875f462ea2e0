"""The driver's own time: what results, commits, listings, many jobs, idle shells and streams explain, and the rest.

Each part is taken from what the parts before it leave. What is left over nothing in a log explains.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import polars as pl

from pag_graph.diagnosis.spark.intervals import Interval, common, length, united, without
from pag_graph.diagnosis.spark.look import Cause, Look, seconds
from pag_graph.diagnosis.spark.pauses import executions_of, stream_pauses
from pag_graph.diagnosis.spark.query_stages import between_query_stages
from pag_graph.diagnosis.spark.streams import batch_frames
from pag_graph.sources.spark.operators import metrics_once
from pag_graph.sources.spark.schedule import MS
from pag_graph.sources.spark.texts import LISTING

if TYPE_CHECKING:
    from pag_graph.sources.spark.schedule import Schedule

__all__ = ["driver_gaps", "driver_time"]

_SHELL = re.compile(
    r"spark ?shell|pyspark ?shell|sparkr|databricks shell|spark-sql.*|sparksql::.*|.*zeppelin.*|.*jupyter.*|"
    r".*livy[- ]session.*|thrift ?(?:server|jdbc).*",
    re.IGNORECASE | re.ASCII,
)
"""Names that shells, notebooks and servers give to their applications."""

_WRITES = re.compile(
    r"Execute (?:Insert|Save|Create|Optimized|Replace|Overwrite|Append)\w*|InsertInto\w*|AppendData\w*|"
    r"OverwriteBy\w*|OverwritePartitions\w*|WriteFiles|Replace(?:Table|Data)\w*|Create(?:Table|DataSource)\w*",
    re.ASCII,
)
"""Plan nodes that write."""


def driver_gaps(schedule: Schedule) -> list[Interval]:
    """Return the stretches since the first job in which no job ran: disjoint, by time, in nanoseconds."""
    first_job_ns = min((job.start_ns for job in schedule.jobs), default=schedule.end_ns)
    return without([(first_job_ns, schedule.end_ns)], [(job.start_ns, job.end_ns) for job in schedule.jobs])


def driver_time(look: Look) -> list[Cause]:
    """Say what the driver's time went into.

    Stretches without a job are divided in turn: commits of queries that write, frames and pauses of streams, planning
    between the stages of adaptive queries, launches of many small jobs, a shell in which nobody typed. What is left is
    unexplained.

    Causes: ``collect_large``, ``listing``, ``output_commit``, ``stream_idle``, ``aqe_lag``, ``many_small_jobs``,
    ``idle_shell``, ``driver_bound``.
    """
    gaps = driver_gaps(look.schedule)
    queries = executions_of(look.schedule)
    causes = [_results(look), _listing(look)]
    commits, cause = _commits(look, gaps, queries)
    causes.append(cause)
    unexplained = without(without(gaps, commits), batch_frames(look))
    pauses = common(unexplained, stream_pauses(look.schedule))
    causes.append(_stream_idle(look, pauses))
    unexplained = without(unexplained, pauses)
    replanning, cause = between_query_stages(look, unexplained)
    causes.append(cause)
    unexplained = without(unexplained, replanning if cause is not None else [])
    between, cause = _many_jobs(look, unexplained)
    causes.append(cause)
    unexplained = without(unexplained, between)
    schedule = look.schedule
    if _SHELL.fullmatch(schedule.log.app_name.strip()):
        idle = without(unexplained, queries.values())
        causes.append(_idle_shell(look, idle))
        unexplained = common(unexplained, queries.values())
    causes.append(_unexplained(look, unexplained, united(queries.values())))
    return [cause for cause in causes if cause is not None]


def _results(look: Look) -> Cause | None:
    """Results that were too large to come with the message of their task's end: the driver fetched them."""
    fetched = look.tasks.filter(pl.col("done") > pl.col("delivered"))
    spans = united(fetched.select("delivered", "done").iter_rows())
    fetching_ns, result_bytes = length(spans), int(fetched["result_bytes"].sum())
    if not look.matters(fetching_ns):
        return None
    text = (
        f"The driver fetched {result_bytes / 2**20:,.0f} MiB of results of {fetched.height:,} tasks for"
        f" {seconds(fetching_ns)}: they were too large to come with the messages of the tasks' ends."
    )
    signal = {"getting_result_ns": fetching_ns, "result_bytes": result_bytes, "tasks": fetched.height}
    return look.cause("collect_large", fetching_ns, text, signal=signal, bound=True, measured=True)


def _listing(look: Look) -> Cause | None:
    """Jobs that only list files, and the time that scans took for it on the driver."""
    jobs = [job for job in look.schedule.jobs if job.name.startswith(LISTING)]
    metrics = metrics_once(look.schedule.log).filter(pl.col("kind") == "timing")
    metadata = metrics.filter(pl.col("metric") == "metadata time")["driver_value"]
    in_scans = max(0, int(metadata.sum() or 0)) * MS
    listing_ns = min(length(united((job.start_ns, job.end_ns) for job in jobs)) + in_scans, look.active)
    if not look.matters(listing_ns):
        return None
    text = f"Listing files took {seconds(listing_ns)}: {len(jobs)} jobs, and {seconds(in_scans)} on the driver."
    signal = {"jobs": [job.number for job in jobs], "metadata_ns": in_scans}
    return look.cause("listing", listing_ns, text, signal=signal, measured=True)


def _commits(look: Look, gaps: list[Interval], queries: dict[int, Interval]) -> tuple[list[Interval], Cause | None]:
    """Time of queries that write, after their last job: files are moved to their place."""
    log = look.schedule.log
    writing = {
        execution for execution, name in log.nodes.select("execution", "name").iter_rows() if _WRITES.fullmatch(name)
    }
    last_job_end: dict[int, int] = {}
    for job in look.schedule.jobs:
        if job.execution is not None and job.execution in writing:
            last_job_end[job.execution] = max(last_job_end.get(job.execution, 0), job.end_ns)
    tails = [
        (last_job_end[query], queries[query][1]) for query in sorted(writing & last_job_end.keys() & queries.keys())
    ]
    commits = common(gaps, tails)
    committing_ns = length(commits)
    if not look.matters(committing_ns):
        return commits, None
    stated = metrics_once(log).filter(pl.col("metric") == "job commit time")["driver_value"]
    text = (
        f"Queries that write worked on for {seconds(committing_ns)} after their last job, in which the driver commits"
        f" the output ({len(tails)} quer{'ies' if len(tails) > 1 else 'y'})."
    )
    signal: dict[str, Any] = {"queries": sorted(writing & last_job_end.keys()), "after_jobs_ns": committing_ns}
    if (commit := int(stated.sum() or 0)) > 0:
        signal["job_commit_ns"] = commit * MS
    return commits, look.cause("output_commit", committing_ns, text, signal=signal, bound=True, measured=True)


def _many_jobs(look: Look, gaps: list[Interval]) -> tuple[list[Interval], Cause | None]:
    """Time before jobs of call sites that have many small ones, of queries that differ in numbers only."""
    plans = dict(look.schedule.log.executions.select("execution", "mark").iter_rows())
    # A stream has as many batches as its input asks for.
    of_streams = set(look.schedule.log.jobs.filter(pl.col("query").is_not_null())["job"].to_list())
    jobs = sorted(
        (job for job in look.schedule.jobs if job.number is not None and job.number not in of_streams),
        key=lambda job: job.start_ns,
    )
    small: dict[tuple[str, int | None], list[Interval]] = {}
    # The jobs of one query are its own doing, however many there are.
    units: dict[tuple[str, int | None], set[tuple[bool, int]]] = {}
    for before, job in pairwise(jobs):
        if job.end_ns - min(before.end_ns, job.start_ns) < look.limits.small_job_ns:
            kind = None if job.execution is None else plans.get(job.execution)
            small.setdefault((job.name, kind), []).append((min(before.end_ns, job.start_ns), job.start_ns))
            unit = (True, job.job) if job.execution is None else (False, job.execution)
            units.setdefault((job.name, kind), set()).add(unit)
    repeated = {kind: spans for kind, spans in small.items() if len(units[kind]) >= look.limits.small_jobs}
    between = common(gaps, [span for spans in repeated.values() for span in spans])
    driver_ns = length(between)
    if not look.matters(driver_ns):
        return between, None
    (name, _), spans = max(repeated.items(), key=lambda site_spans: len(site_spans[1]))
    sites: dict[str, int] = {}
    for (site, _), gaps_before in repeated.items():
        sites[site] = sites.get(site, 0) + len(gaps_before)
    count = sum(map(len, repeated.values()))
    text = f"{count} jobs of less than {seconds(look.limits.small_job_ns)} each, one after the other"
    text += f" ({len(spans)} of them {name})" if name else ""
    text += f": between them the driver worked for {seconds(driver_ns)}."
    signal = {"jobs": count, "call_sites": sites, "driver_ns": driver_ns}
    return between, look.cause("many_small_jobs", driver_ns, text, signal=signal, bound=True, measured=True)


def _idle_shell(look: Look, idle: list[Interval]) -> Cause | None:
    idle_ns = length(idle)
    if not look.matters(idle_ns):
        return None
    text = (
        f"{look.schedule.log.app_name} is an interactive session: {seconds(idle_ns)} of {seconds(look.active)} since"
        f" the first job passed outside of jobs and queries ({_stretches(idle)})."
    )
    return look.cause(
        "idle_shell", idle_ns, text, signal={"idle_ns": idle_ns, "stretches": len(idle)}, bound=True, measured=True
    )


def _stream_idle(look: Look, pauses: list[Interval]) -> Cause | None:
    idle_ns = length(pauses)
    if not look.matters(idle_ns):
        return None
    text = (
        f"Streams had nothing to do for {seconds(idle_ns)} of {seconds(look.active)} since the first job"
        f" ({_stretches(pauses)}): a batch had ended, and the next one had not begun."
    )
    signal = {"idle_ns": idle_ns, "stretches": len(pauses)}
    return look.cause("stream_idle", idle_ns, text, signal=signal, bound=True, measured=True)


def _unexplained(look: Look, unexplained: list[Interval], queries: list[Interval]) -> Cause | None:
    """Return what no part of the log explains."""
    driver_ns = length(unexplained)
    if driver_ns < look.limits.driver_share * look.active or not look.matters(driver_ns):
        return None
    in_queries = length(common(unexplained, queries))
    text = (
        f"The driver worked alone for {seconds(driver_ns)} of {seconds(look.active)} since the first job"
        f" ({_stretches(unexplained)}): {seconds(in_queries)} within SQL queries, {seconds(driver_ns - in_queries)}"
        " outside of them."
    )
    signal = {
        "driver_ns": driver_ns,
        "stretches": len(unexplained),
        "in_queries_ns": in_queries,
        "result_bytes": int(look.tasks["result_bytes"].sum()),
        "getting_result_ns": int((look.tasks["done"] - look.tasks["delivered"]).sum()),
    }
    return look.cause("driver_bound", driver_ns, text, signal=signal, measured=True)


def _stretches(intervals: list[Interval]) -> str:
    longest = max((end - start for start, end in intervals), default=0)
    return f"{len(intervals)} stretch{'es' if len(intervals) != 1 else ''}, the longest {seconds(longest)}"
