"""Work that was lost or done twice: executors that went, attempts that failed, copies of slow tasks."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from pag_graph.diagnosis.spark.cores import first_cores
from pag_graph.diagnosis.spark.look import Cause, Look, seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pag_graph.diagnosis.spark.list_schedule import Cores

    I64 = NDArray[np.int64]

__all__ = ["losses", "speculation"]

_ORDERLY = ("killed by driver", "idle", "decommission", "finished", "shutdown")


def losses(look: Look) -> list[Cause]:
    """Executors, tasks, stages and jobs that were lost, and what it cost to do their work again."""
    schedule, tasks, found = look.schedule, look.tasks, []
    reasons = schedule.log.texts["reason"]
    failed = tasks.filter(~pl.col("succeeded") & pl.col("ended") & ~pl.col("speculative"))
    why = [reasons[code] for code in failed["reason"].to_list()]
    by_loss = [number for number, text in zip(failed["number"].to_list(), why, strict=True) if "ExecutorLost" in text]
    fetch = [number for number, text in zip(failed["number"].to_list(), why, strict=True) if "FetchFailed" in text]
    errors = [
        number
        for number, text in zip(failed["number"].to_list(), why, strict=True)
        if text.startswith(("ExceptionFailure", "TaskResultLost", "UnknownReason"))
    ]
    first = min((job.start_ns for job in schedule.jobs), default=0)
    last = max((job.end_ns for job in schedule.jobs), default=0)
    gone = [
        row
        for row in schedule.executors.iter_rows(named=True)
        if row["removed"] is not None
        and first <= row["removed"] < last
        and not any(word in (row["reason"] or "").lower() for word in _ORDERLY)
    ]
    retried = set(tasks.filter(pl.col("stage_attempt") > 0)["number"].to_list())
    again = set(tasks.filter(pl.col("output_lost"))["number"].to_list())
    if gone:
        skip = frozenset({*by_loss, *fetch, *retried, *_repeats(tasks)})
        # Had none gone, the first ones would have stayed, as many as there ever were at a time.
        kept = first_cores(look.cores, max(1, _most_at_a_time(look.cores)))
        saved = look.saved(skip=skip, cores=kept)
        wasted = int(tasks.filter(pl.col("number").is_in([*by_loss, *again]))["held"].sum())
        names = ", ".join(row["executor"] for row in gone)
        text = (
            f"Executor{_s(gone)} {names} went while jobs ran ({gone[0]['reason'] or 'no reason given'}):"
            f" {len(by_loss)} running tasks and the output of {len(again)} others were lost,"
            f" {len(retried)} tasks ran in stages done again."
        )
        signal = {
            "executors": [row["executor"] for row in gone],
            "reason": gone[0]["reason"],
            "lost_tasks": len(by_loss),
            "lost_outputs": len(again),
            "repeated_tasks": len(retried),
            "wasted_ns": wasted,
        }
        if by_loss or again or retried or look.matters(saved):
            found.append(look.cause("lost_executor", max(saved, 0), text, signal=signal))
    elif fetch or retried:
        saved = look.saved(skip=frozenset({*fetch, *retried}))
        stages = sorted({int(s) for s in tasks.filter(pl.col("stage_attempt") > 0)["stage"].to_list()})
        text = (
            f"Stage{_s(stages)} {', '.join(map(str, stages))} ran again: {len(fetch)} tasks could not fetch shuffle"
            f" data, and {len(retried)} tasks ran in further attempts."
        )
        signal = {"stages": stages, "fetch_failures": len(fetch), "repeated_tasks": len(retried)}
        if look.matters(saved):
            found.append(look.cause("stage_retry", saved, text, stage=stages[0] if stages else None, signal=signal))
    if errors:
        saved = look.saved(skip=frozenset(errors))
        wasted = int(tasks.filter(pl.col("number").is_in(errors))["held"].sum())
        stages = sorted({int(s) for s in tasks.filter(pl.col("number").is_in(errors))["stage"].to_list()})
        text = (
            f"{len(errors)} task attempts failed in stage{'s' if len(stages) > 1 else ''}"
            f" {', '.join(map(str, stages[:5]))} ({_most_common(why)}); the time until then,"
            f" {seconds(wasted)} of cores, was lost."
        )
        signal = {"failed_attempts": len(errors), "stages": stages, "wasted_ns": wasted}
        broken = [job for job in schedule.jobs if job.succeeded is False]
        if not broken and look.matters(saved):
            found.append(look.cause("task_retry", saved, text, stage=stages[0], signal=signal))
    for job in schedule.jobs:
        span = job.end_ns - job.start_ns
        if job.succeeded is False:
            text = f"Job {job.job} failed after {seconds(span)}: what it did was for nothing."
            found.append(look.cause("failed_job", span, text, signal={"job": job.job, "span_ns": span}))
    return found


def _most_at_a_time(cores: Sequence[Cores]) -> int:
    changes = [(group.since, group.cores) for group in cores]
    changes += [(group.until, -group.cores) for group in cores if group.until is not None]
    # Of one instant those that go come first, for their numbers are negative.
    return max(accumulate(change for _, change in sorted(changes)), default=0)


def _s(several: list[Any]) -> str:
    return "s" if len(several) > 1 else ""


def _most_common(texts: list[str]) -> str:
    return max(sorted(set(texts)), key=texts.count).split("\n", 1)[0][:120]


def _repeats(tasks: pl.DataFrame) -> set[int]:
    """Return the tasks that repeat another one which succeeded."""
    done = tasks.filter("succeeded").sort("done")
    first = done.unique(["stage", "stage_attempt", "index"], keep="first", maintain_order=True)
    return set(done.filter(~pl.col("number").is_in(first["number"].implode()))["number"].to_list())


def speculation(look: Look) -> list[Cause]:
    """Find copies of slow tasks, and say what their first attempts cost."""
    copies = look.tasks.filter("speculative")
    if not copies.height:
        return []
    keys = copies.select("stage", "stage_attempt", "index").unique()
    both = look.tasks.join(keys, on=["stage", "stage_attempt", "index"], how="semi")
    lost = both.filter(~pl.col("succeeded"))
    won = both.filter("succeeded")
    # Had the first attempts been like the others, no copy would have begun.
    typical = (
        look.tasks.filter(pl.col("succeeded"))
        .group_by("stage", "stage_attempt")
        .agg(typical=pl.col("held").median().cast(pl.Int64))
    )
    originals = both.filter(~pl.col("speculative")).join(typical, on=["stage", "stage_attempt"])
    numbers = originals["number"].to_numpy()
    usual = np.minimum(originals["typical"].to_numpy(), originals["held"].to_numpy())

    def prompt(durations: I64) -> None:
        durations[numbers] = usual

    saved = look.saved(prompt, skip=frozenset(copies["number"].to_list()))
    if not look.matters(saved):
        return []
    wins = won.filter("speculative").height
    stage = int(copies["stage"][0])
    indices = ", ".join(str(i) for i in sorted(set(copies["index"].to_list()))[:5])
    text = (
        f"Stage {stage}: speculation began {copies.height} cop{'ies' if copies.height > 1 else 'y'} of slow tasks"
        f" (task {indices}), {wins} of which won; {seconds(float(lost['held'].sum()))} of cores went into attempts"
        " that were killed."
    )
    signal = {
        "copies": copies.height,
        "won": wins,
        "killed_ns": int(lost["held"].sum()),
        "indices": sorted(set(copies["index"].to_list()))[:50],
    }
    return [look.cause("speculation", saved, text, stage=stage, signal=signal)]
