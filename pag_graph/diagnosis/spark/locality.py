"""Cores that stayed empty because tasks were kept for places near their data (delay scheduling)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from pag_graph.diagnosis.spark.changes import of_setting
from pag_graph.diagnosis.spark.intervals import length, united
from pag_graph.diagnosis.spark.look import Cause, Look, seconds
from pag_graph.sources.spark.placing import MS
from pag_graph.sources.spark.settings import setting
from pag_graph.sources.spark.task_rows import LOCALITIES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pag_graph.diagnosis.spark.intervals import Interval

    I64 = NDArray[np.int64]

__all__ = ["locality_wait"]

_WAIT = "spark.locality.wait"
_WAIT_ON_NODE = "spark.locality.wait.node"
"""Overrides the other for places on the same host, where it is set."""
_TIME = re.compile(r"(\d{1,9})(ms|s|m|min)?", re.ASCII)
_UNITS = {"ms": MS, "s": 1000 * MS, "m": 60_000 * MS, "min": 60_000 * MS, "": MS}
_NODE = LOCALITIES["NODE_LOCAL"]
_SOON_NS = 200 * MS
"""A task that is launched so soon after its core became free took the next free place of those that it wanted."""
_REVIVED_NS = 1_200 * MS
"""An empty core that was not offered to a stage is offered again once a second (`spark.scheduler.revive.interval`)."""
_CORE_FREE = pl.col("done").shift(1).over("core", order_by="launch")
"""Of all tasks: when the task before ended on the same core; a retry is work as well."""
_FIRST_ATTEMPT = (pl.col("attempt") == 0) & ~pl.col("speculative")
_EXCLUDING = ("spark.excludeOnFailure.enabled", "spark.blacklist.enabled")


def locality_wait(look: Look) -> list[Cause]:
    """Find cores that stayed empty though tasks were pending, because these were kept for places near their data.

    A task waited for its place if it was launched at a lower locality than others of its stage, its core was empty
    before for as long as `spark.locality.wait` says, and no part of the stage was launched meanwhile on that core. Or
    if it was launched near its data, where a core had just become free, and a core farther off had long been empty.
    """
    log = look.schedule.log
    wait = _time(setting(log, _WAIT_ON_NODE).value or setting(log, _WAIT).value)
    if not wait:
        return []
    far, kept = _launched_far(look, wait), _kept_near(look)
    spent = length(united([*far.select("since", "launch").iter_rows(), *kept.spans]))
    if not look.matters(spent):
        return []
    waited = pl.concat([far.select("stage", "stage_attempt"), kept.tasks.select("stage", "stage_attempt")])
    keys = ("stage", "stage_attempt")
    worst = waited.group_by(*keys).len().sort("len", *keys, descending=[True, False, False]).row(0)
    what_became = [f"{far.height:,} of which then ran farther from their data"] if far.height else []
    what_became += [f"{kept.tasks.height:,} of which were kept for a core near it"] if kept.tasks.height else []
    text = (
        f"{look.stage_name(int(worst[0]), int(worst[1]))}: cores were empty for {seconds(spent)} while tasks were"
        f" pending, {' and '.join(what_became)}: Spark waits {seconds(wait)} for a place near it, and again after every"
        " task that gets one."
    )
    signal = {
        "waited_ns": spent,
        "tasks": far.height,
        "kept_near": kept.tasks.height,
        "wait_ns": wait,
        "stages": sorted({*waited["stage"]}),
    }
    name = _WAIT if setting(log, _WAIT_ON_NODE).value is None else _WAIT_ON_NODE
    changes = (of_setting(log, name, "0s"),)
    traps = (
        "Cores were free: one that works for others is no such wait.",
        "What is read from afar can take longer.",
    )
    told = {"signal": signal, "changes": changes, "traps": traps}
    return [look.cause("locality_wait", spent, text, stage=int(worst[0]), bound=True, measured=True, **told)]


def _launched_far(look: Look, wait: int) -> pl.DataFrame:
    """Return tasks that ran farther from their data than others, and since when their cores were empty."""
    known = look.tasks.with_columns(before=_CORE_FREE).filter((pl.col("locality") > 0) & _FIRST_ATTEMPT)
    keys = ("stage", "stage_attempt")
    best = pl.col("locality").min().over(*keys)
    empty_since = pl.max_horizontal("before", pl.col("launch").min().over(*keys))
    return known.with_columns(best=best, since=empty_since).filter(
        (pl.col("locality") > pl.max_horizontal("best", pl.lit(LOCALITIES["NO_PREF"])))
        & (pl.col("best") <= _NODE)
        & (pl.col("launch") - pl.col("since") >= wait)
    )


class _Kept(NamedTuple):
    """Tasks that were pending though cores were empty."""

    tasks: pl.DataFrame
    """Of each stage attempt the last one: `stage`, `stage_attempt`, `executor`, `locality`, `first` and `launch`."""
    spans: list[Interval]
    """When a core farther off was empty meanwhile."""


def _kept_near(look: Look) -> _Kept:
    """Return the last task of each stage attempt that took a core near its data as soon as one was free there."""
    keys = ("stage", "stage_attempt")
    empty = look.tasks.select(*keys, "executor", "locality", first="launch", launch="launch").clear()
    if any(setting(look.schedule.log, name).value == "true" for name in _EXCLUDING):
        # An executor may have been excluded.
        return _Kept(empty, [])
    known = look.tasks.with_columns(first=pl.col("launch").min().over(*keys), before=_CORE_FREE)
    last_tasks = (
        known.filter(
            pl.col("locality").is_between(1, _NODE)
            & _FIRST_ATTEMPT
            & (pl.col("launch") - pl.col("before") <= _SOON_NS)
            & (pl.col("launch") - pl.col("first") >= _REVIVED_NS)
        )
        .sort("launch", "number")
        .group_by(*keys, maintain_order=True)
        .last()
        .select(empty.columns)
    )
    if last_tasks.is_empty():
        return _Kept(empty, [])
    hosts = look.schedule.executors["host"].to_list()
    executor, since, until = _empty_cores(look)
    host_of_gap = np.array(hosts, dtype=object)[executor]
    is_kept = np.zeros(last_tasks.height, np.bool_)
    spans: list[Interval] = []
    for number, task in enumerate(last_tasks.iter_rows(named=True)):
        low, high = np.maximum(since, task["first"]), np.minimum(until, task["launch"])
        # A place on the same host is as near, unless the task wants the very executor.
        is_far = executor != task["executor"] if task["locality"] < _NODE else host_of_gap != hosts[task["executor"]]
        chosen = np.flatnonzero(is_far & (high - low >= _REVIVED_NS))
        is_kept[number] = len(chosen) > 0
        spans += zip(low[chosen].tolist(), high[chosen].tolist(), strict=True)
    return _Kept(last_tasks.filter(pl.Series(is_kept)), spans)


def _empty_cores(look: Look) -> tuple[I64, I64, I64]:
    """Return when cores were empty for long, unless their executor may have been dead.

    Returns
    -------
    executor
        Per such time: index of the executor.
    since, until
        In nanoseconds from the origin.
    """
    end = max(job.end_ns for job in look.schedule.jobs)
    work = look.tasks.sort("core", "launch", "number").select("core", "launch", "done")
    gaps = work.select("core", since=pl.col("done").shift(1).over("core"), until="launch").drop_nulls()
    executors = look.schedule.executors.with_row_index("executor_index")
    lives = {
        index: (added, end if removed is None else removed)
        for index, added, removed in executors.select("executor_index", "added", "removed").iter_rows()
    }
    used = {
        core: (first, last)
        for core, first, last in work.group_by("core")
        .agg(pl.col("launch").min().alias("first"), pl.col("done").max().alias("last"))
        .iter_rows()
    }
    at_ends = []
    one_core_each = setting(look.schedule.log, "spark.task.cpus").value == "1"
    for core, place in enumerate(look.schedule.cores):
        added, removed = lives[place.executor]
        stayed = removed >= end
        if core in used:
            first, last = used[core]
            at_ends.append((core, added, first))
            if stayed:
                at_ends.append((core, last, removed))
        elif stayed and one_core_each:
            at_ends.append((core, added, removed))
    gaps = pl.concat([gaps, pl.DataFrame(at_ends, schema=gaps.schema, orient="row")])
    gaps = gaps.filter(pl.col("until") - pl.col("since") >= _REVIVED_NS)
    executor_of_core = np.array([place.executor for place in look.schedule.cores], np.int64)
    return executor_of_core[gaps["core"].to_numpy()], gaps["since"].to_numpy(), gaps["until"].to_numpy()


def _time(value: str | None) -> int | None:
    """Return a time as Spark's settings write it, in nanoseconds; None for what is none."""
    match = _TIME.fullmatch((value or "").strip())
    return int(match[1]) * _UNITS[match[2] or ""] if match else None
