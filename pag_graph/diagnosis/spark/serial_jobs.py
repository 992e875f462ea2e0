"""Queries and jobs that ran one after another though nothing that a log tells makes one wait for the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from pag_graph.diagnosis.spark.cores import cores_at
from pag_graph.diagnosis.spark.look import seconds
from pag_graph.diagnosis.spark.reuse import CACHE
from pag_graph.diagnosis.spark.suspicions import Suspicion

if TYPE_CHECKING:
    from pag_graph.diagnosis.spark.look import Look

__all__ = ["serial_jobs"]

_LEAST_UNITS = 3
_ADVICE = (
    "Start them from several threads of the program, if none reads what another wrote and none needs another's result:"
    " files and collected values are not in the log."
)


class _Unit(NamedTuple):
    """A query with its jobs, or a job outside of queries."""

    start_ns: int
    end_ns: int
    label: str
    lineage: frozenset[tuple[str, int]]
    """Stages, and datasets that several jobs can have in common."""
    idle: bool
    """Whether it left at least half of the cores' time unused."""


def serial_jobs(look: Look) -> list[Suspicion]:
    """Find the longest chain of queries and jobs without common lineage, each of which left half of the cores idle.

    Parameters
    ----------
    look
        A log.

    Returns
    -------
    list of Suspicion
        One at most: how much threads would save is not in a log. Batches of streams, units that are small, and chains
        that are a small part of the time are left out.
    """
    best: list[_Unit] = []
    chain: list[_Unit] = []
    reached = 0
    for unit in _units(look):
        alone = unit.start_ns >= reached
        reached = max(reached, unit.end_ns)
        apart = alone and not any(unit.lineage & earlier.lineage for earlier in chain)
        chain = [*chain, unit] if apart else [unit] if alone else []
        if not unit.idle or unit.end_ns - unit.start_ns < look.limits.small_job_ns:
            chain = []
        best = max(best, chain, key=_length)
    if len(best) < _LEAST_UNITS or _length(best) < look.limits.driver_share * look.active:
        return []
    text = (
        f"{len(best)} queries or jobs ran one after another for {seconds(_length(best))}, each with half of the cores"
        " idle at least, and none shares a dataset with another."
    )
    return [Suspicion("serial_jobs", text, _ADVICE, f"{best[0].label} to {best[-1].label}")]


def _length(units: list[_Unit]) -> int:
    return sum(unit.end_ns - unit.start_ns for unit in units)


def _units(look: Look) -> list[_Unit]:
    """Return the units of the application by start; none of an application that runs a stream."""
    schedule = look.schedule
    if schedule.log.progress.height or any(job.unit.startswith("batch ") for job in schedule.jobs):
        return []
    held_ns = dict(look.tasks.group_by("job").agg(pl.col("held").sum()).iter_rows())
    datasets: dict[int, set[tuple[str, int]]] = {}
    for job, stage, rdd in schedule.log.job_stages.select("job", "stage", "rdd").iter_rows():
        datasets.setdefault(job, set()).update([("stage", stage), *([] if rdd is None else [("rdd", rdd)])])
    caches: dict[int, set[tuple[str, int]]] = {}
    for node in look.plans.named(CACHE):
        caches.setdefault(node.execution, set()).add(("cache", node.mark))
    groups: dict[str, list[int]] = {}
    for index, job in enumerate(schedule.jobs):
        if job.number is not None:
            groups.setdefault(job.unit, []).append(index)
    units = []
    for label, indices in groups.items():
        jobs = [schedule.jobs[index] for index in indices]
        start, end = min(job.start_ns for job in jobs), max(job.end_ns for job in jobs)
        lineage = {dataset for job in jobs for dataset in datasets.get(job.job, ())}
        lineage |= {dataset for job in jobs if job.execution is not None for dataset in caches.get(job.execution, ())}
        used = sum(held_ns.get(index, 0) for index in indices)
        room = max(1, cores_at(look.cores, (start + end) // 2)) * max(end - start, 1)
        idle = used <= look.limits.fewer_share * room
        units.append(_Unit(start, end, label, frozenset(lineage), idle))
    return sorted(units)
