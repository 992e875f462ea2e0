"""Jobs that failed: which one failed first and why, and what only followed from it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pag_graph.diagnosis.spark.intervals import length, united, without
from pag_graph.diagnosis.spark.look import Cause, Look, seconds

if TYPE_CHECKING:
    from pag_graph.diagnosis.spark.intervals import Interval
    from pag_graph.sources.spark.schedule import Job

__all__ = ["failed_jobs"]

_FOLLOWED = re.compile(r"cancel(?:l?ed|lation)|shut ?down|sparkcontext was stopped", re.IGNORECASE)
"""Jobs with such a reason were given up because of something else."""

_SHOWN = 6


def failed_jobs(look: Look) -> list[Cause]:
    """Find the jobs that failed for reasons of their own, one cause for each reason.

    Jobs that were cancelled, or given up when the application stopped, followed from the first of them. Jobs that
    failed for the same reason are one cause: a program tries again. No instant counts twice.

    Cause: ``failed_job``.
    """
    failed = sorted(
        (job for job in look.schedule.jobs if job.succeeded is False), key=lambda job: (job.end_ns, job.job)
    )
    if not failed:
        return []
    failed_themselves = [job for job in failed if not _FOLLOWED.search(job.failure)] or failed[:1]
    followed = [job for job in failed if job not in failed_themselves]
    groups: dict[str, list[Job]] = {}
    for job in failed_themselves:
        groups.setdefault(job.failure, []).append(job)
    causes: list[Cause] = []
    counted: list[Interval] = []
    for group in groups.values():
        after = followed if group[0] is failed_themselves[0] else []
        spans = united((job.start_ns, job.end_ns) for job in [*group, *after])
        uncounted = without(spans, counted)
        counted = united([*counted, *uncounted])
        causes.append(_cause(look, group, after, length(uncounted)))
    return causes


def _cause(look: Look, group: list[Job], after: list[Job], lost: int) -> Cause:
    root = group[0]
    text = f"{root.label[0].upper()}{root.label[1:]}"
    text += f" ({root.name})" if root.name else ""
    text += f" failed after {seconds(root.end_ns - root.start_ns)}: {root.failure or 'the log does not say why'}."
    if len(group) > 1:
        text += f" {_jobs(group[1:])} failed in the same way."
    if after:
        text += f" {_jobs(after)} {'was' if len(after) == 1 else 'were'} given up because of it."
    text += " What they did was for nothing." if len(group) + len(after) > 1 else " What it did was for nothing."
    signal = {
        "job": root.number,
        "reason": root.failure,
        "same": [job.number for job in group[1:]],
        "followed": [job.number for job in after],
        "span_ns": lost,
    }
    return look.cause("failed_job", lost, text, signal=signal, measured=True)


def _jobs(jobs: list[Job]) -> str:
    labels = ", ".join(job.label.removeprefix("job ") for job in jobs[:_SHOWN])
    further = f" and {len(jobs) - _SHOWN} more" if len(jobs) > _SHOWN else ""
    return f"Job{'s' if len(jobs) > 1 else ''} {labels}{further}"
