"""The driver between the stages of adaptive queries: after each exchange the rest is planned anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from pag_graph.diagnosis.spark.changes import of_program
from pag_graph.diagnosis.spark.intervals import Interval, common, length, united
from pag_graph.diagnosis.spark.look import Cause, Look, seconds

if TYPE_CHECKING:
    from pag_graph.sources.spark.schedule import Job

__all__ = ["between_query_stages"]

_BROADCAST_TIMERS = ("time to build", "time to broadcast")
"""What the driver does for a broadcast after its job has ended."""


def between_query_stages(look: Look, gaps: list[Interval]) -> tuple[list[Interval], Cause | None]:
    """Find the driver's time between the jobs of queries that are planned again after each exchange.

    Parameters
    ----------
    look
        A log.
    gaps
        The driver's own time.

    Returns
    -------
    intervals
        Between the jobs of such queries, whatever they were for.
    cause
        With the time that broadcasts took there taken off; None where the rest is too little.
    """
    spans: dict[int, list[Interval]] = {}
    for query, jobs in _adaptive(look).items():
        query_gaps = common(gaps, _between(jobs, _last_rdds(look)))
        if query_gaps:
            spans[query] = query_gaps
    all_gaps = united(span for query_gaps in spans.values() for span in query_gaps)
    broadcasts = sum(min(_broadcast_ns(look, query), length(query_gaps)) for query, query_gaps in spans.items())
    planning_ns = length(all_gaps) - broadcasts
    least = max(look.limits.replanning_share * look.active, look.limits.small_job_ns)
    if planning_ns < least or not look.matters(planning_ns):
        return all_gaps, None
    worst = max(spans, key=lambda query: (length(spans[query]), -query))
    exchanges = sum(node.execution in spans and node.name.endswith("Exchange") for node in look.plans)
    quer = "y" if len(spans) == 1 else "ies"
    text = (
        f"Between the stages of {len(spans)} adaptive quer{quer} the driver worked alone for {seconds(planning_ns)}:"
        f" after each exchange it plans the rest again (query {worst} most, {seconds(length(spans[worst]))})."
    )
    signal = {
        "queries": sorted(spans),
        "gaps": sum(map(len, spans.values())),
        "between_ns": length(all_gaps),
        "broadcast_ns": broadcasts,
        "exchanges": exchanges,
    }
    change = of_program("exchanges", f"{exchanges:,}", "fewer: one key for several steps", f"{len(spans)} quer{quer}")
    traps = (
        "Other threads of the program can have worked meanwhile.",
        "A driver without enough processors, or that compiles code for the first time, takes longer for the same.",
    )
    facts = {"signal": signal, "changes": (change,), "traps": traps}
    return all_gaps, look.cause("aqe_lag", planning_ns, text, bound=True, measured=True, **facts)


def _adaptive(look: Look) -> dict[int, list[Job]]:
    """Return the jobs of each query whose plan was stated again while it ran, by start."""
    executions = look.schedule.log.executions
    replanned = set(executions.filter(pl.col("replanned") > 0)["execution"].to_list()) if executions.height else set()
    jobs: dict[int, list[Job]] = {}
    for job in sorted(look.schedule.jobs, key=lambda job: (job.start_ns, job.job)):
        if job.execution in replanned and job.execution is not None:
            jobs.setdefault(job.execution, []).append(job)
    return jobs


def _between(jobs: list[Job], last_rdds: dict[int, int]) -> list[Interval]:
    """Return the stretches between jobs; not before those that take more of the rows that the one before took."""
    stretches: list[Interval] = []
    reached = jobs[0].end_ns
    before = jobs[0]
    for job in jobs[1:]:
        same_rows = last_rdds.get(job.job) is not None and last_rdds.get(job.job) == last_rdds.get(before.job)
        if job.start_ns > reached and not same_rows:
            stretches.append((reached, job.start_ns))
        reached, before = max(reached, job.end_ns), job
    return stretches


def _last_rdds(look: Look) -> dict[int, int]:
    """Return the dataset that each job's last stage computes."""
    rows = look.schedule.log.job_stages.sort("job", "stage").unique("job", keep="last", maintain_order=True)
    return {job: rdd for job, rdd in rows.select("job", "rdd").iter_rows() if rdd is not None}


def _broadcast_ns(look: Look, query: int) -> int:
    nodes = [node for node in look.plans.named("BroadcastExchange") if node.execution == query]
    return sum(node.driver.get(timer, 0) for node in nodes for timer in _BROADCAST_TIMERS)
