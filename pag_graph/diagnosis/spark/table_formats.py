"""What tables with a log of their own (Delta) cost: rows that a merge writes again unchanged, and the table's log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pag_graph.diagnosis.spark.changes import of_program
from pag_graph.diagnosis.spark.intervals import length, united, without
from pag_graph.diagnosis.spark.look import Cause, Look, seconds
from pag_graph.sources.spark.texts import TABLE_LOG

if TYPE_CHECKING:
    from pag_graph.diagnosis.spark.plan_view import PlanNode

__all__ = ["table_formats"]

_UNCHANGED = ("number of target rows rewritten unmodified", "number of target rows copied")
_CHANGED = (
    *("number of updated rows", "number of deleted rows", "number of inserted rows"),
    *("number of target rows updated", "number of target rows deleted", "number of target rows inserted"),
)
_MANY_TIMES = 10


def table_formats(look: Look) -> list[Cause]:
    """Find merges that write far more rows than they change, and jobs that work for the table's log alone.

    Causes: ``merge_rewrite``, ``table_commit``.
    """
    causes = [*(_merge(look, node) for node in look.plans), _log_jobs(look)]
    return [cause for cause in causes if cause is not None]


def _merge(look: Look, merge: PlanNode) -> Cause | None:
    unchanged_rows = sum(merge.total(metric) for metric in _UNCHANGED)
    changed_rows = sum(merge.total(metric) for metric in _CHANGED)
    if unchanged_rows < _MANY_TIMES * max(changed_rows, 1):
        return None
    keys = sorted(
        key
        for key, job in look.schedule.stage_jobs.items()
        if look.schedule.jobs[job].execution == merge.execution
        and key in look.by_stage
        and (look.by_stage[key]["output_bytes"] > 0).any()
    )
    share = unchanged_rows / (unchanged_rows + changed_rows)
    changed = look.cut(keys, lambda _: share)
    saved = look.saved_in(keys, changed)
    if not look.matters(saved):
        return None
    stage = max(keys, key=lambda key: look.plans.run_ns[key])
    text = (
        f"{look.stage_name(*stage)}: a merge changed {changed_rows:,} rows, and wrote {unchanged_rows:,} others again."
    )
    signal = {"changed_rows": changed_rows, "unchanged_rows": unchanged_rows, "query": merge.execution}
    changes = (
        of_program(
            "rows written again",
            f"{unchanged_rows:,}",
            "0, by deletion vectors, or a condition on the table's partitions",
            f"stage {stage[0]}, {merge.label}",
        ),
    )
    traps = ("Tables that are copied on write are faster to read.",)
    facts = {"signal": signal, "changes": changes, "traps": traps, "changed": changed}
    return look.cause("merge_rewrite", saved, text, stage=stage[0], bound=True, **facts)


def _log_jobs(look: Look) -> Cause | None:
    log_jobs = [job for job in look.schedule.jobs if job.name == TABLE_LOG]
    other_jobs = [job for job in look.schedule.jobs if job.name != TABLE_LOG]
    spans = united((job.start_ns, job.end_ns) for job in log_jobs)
    log_ns = length(without(spans, [(job.start_ns, job.end_ns) for job in other_jobs]))
    if not look.matters(log_ns):
        return None
    text = f"{len(log_jobs)} jobs worked for {seconds(log_ns)} on the log of a table alone."
    signal = {"jobs": [job.number for job in log_jobs], "time_ns": log_ns}
    return look.cause("table_commit", log_ns, text, signal=signal, measured=True)
