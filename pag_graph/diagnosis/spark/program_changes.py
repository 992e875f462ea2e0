"""What to change in a program, for causes that no setting helps against: what it does, what it would do, and where."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pag_graph.diagnosis.spark.changes import Change, of_program, of_setting
from pag_graph.sources.spark.settings import setting

if TYPE_CHECKING:
    from collections.abc import Callable

    from pag_graph.diagnosis.spark.look import Cause, Look

__all__ = ["PROGRAM_CHANGES", "salted_key"]

_MODE = "spark.scheduler.mode"


def salted_key(look: Look, cause: Cause) -> tuple[Change, ...]:
    """Propose to divide what one key has, where Spark does not divide it by itself.

    Parameters
    ----------
    look
        The log; not looked at.
    cause
        Whose stage is named.

    Returns
    -------
    tuple of Change
        One change.
    """
    del look
    return (of_program("the key", "all rows of one in one task", "salted, or aggregated in two steps", _place(cause)),)


def _place(cause: Cause) -> str:
    return "" if cause.stage is None else f"stage {cause.stage}"


def _collected(look: Look, cause: Cause) -> tuple[Change, ...]:
    del look
    size = int(cause.signal["result_bytes"])
    return (of_program("results", f"{size / 2**20:,.0f} MiB to the driver", "written by tasks, or a part of them", ""),)


def _one_query(look: Look, cause: Cause) -> tuple[Change, ...]:
    """Propose one query for the jobs of the call site that has most of them."""
    del look
    sites: dict[str, int] = cause.signal["call_sites"]
    site, count = max(sites.items(), key=lambda item: item[1])
    return (of_program("jobs", f"{count:,}, each for a part", "one query for all", site),)


def _catalog(look: Look, cause: Cause) -> tuple[Change, ...]:
    del look
    jobs = len(cause.signal["jobs"])
    recorded = f"listed by {jobs:,} jobs" if jobs else "listed by the driver"
    return (of_program("input files", recorded, "a table of a catalog that knows its files, or fewer files", ""),)


def _committer(look: Look, cause: Cause) -> tuple[Change, ...]:
    del look
    queries = ", ".join(str(query) for query in cause.signal["queries"][:3])
    proposed = "one that renames nothing (of the object store, or of a table format), or fewer files"
    return (of_program("the committer of output files", "moves them after the last job", proposed, f"query {queries}"),)


def _fair(look: Look, cause: Cause) -> tuple[Change, ...]:
    del cause
    log = look.schedule.log
    return (of_setting(log, _MODE, "FAIR"),) if setting(log, _MODE).value == "FIFO" else ()


def _repartitioned(look: Look, cause: Cause) -> tuple[Change, ...]:
    del look
    return (of_program("partitions", "as the input has them", "repartition() after reading", _place(cause)),)


def _window(look: Look, cause: Cause) -> tuple[Change, ...]:
    del look
    ranges = "by ranges of what orders them, plus the rows of the ranges before, if all must be ranked"
    return (
        of_program("the window", "over all rows, in one task", "PARTITION BY a column", _place(cause)),
        of_program("ranks", "counted over all rows", ranges, _place(cause)),
    )


def _splittable(look: Look, cause: Cause) -> tuple[Change, ...]:
    del look
    proposed = "more files, or a format whose parts can be read alone"
    return (of_program("input files", "one task for each, whatever its size", proposed, _place(cause)),)


def _lighter_tasks(look: Look, cause: Cause) -> tuple[Change, ...]:
    del look
    return (of_program("what tasks carry", "with each task", "a broadcast variable", _place(cause)),)


def _less_shuffled(look: Look, cause: Cause) -> tuple[Change, ...]:
    tasks = look.tasks if cause.stage is None else look.tasks.filter(look.tasks["stage"] == cause.stage)
    read = int(tasks["remote_bytes"].sum()) + int(tasks["local_bytes"].sum())
    proposed = "fewer rows and columns before the exchange"
    return (of_program("the shuffle", f"{read / 2**20:,.0f} MiB read", proposed, _place(cause)),)


PROGRAM_CHANGES: dict[str, Callable[[Look, Cause], tuple[Change, ...]]] = {
    "collect_large": _collected,
    "concurrent_jobs": _fair,
    "deserialization": _lighter_tasks,
    "listing": _catalog,
    "many_small_jobs": _one_query,
    "output_commit": _committer,
    "partition_skew": _repartitioned,
    "shuffle_fetch": _less_shuffled,
    "single_window": _window,
    "unsplittable_input": _splittable,
}
"""Per cause."""
