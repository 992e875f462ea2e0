"""Work that was lost or done twice: executors that went, attempts that failed, copies of slow tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from pag_graph.diagnosis.spark.cores import most_cores, with_cores
from pag_graph.diagnosis.spark.look import Cause, Look, seconds
from pag_graph.diagnosis.spark.loss_reasons import loss_of, most_common_loss
from pag_graph.sources.spark.schedule import was_lost

if TYPE_CHECKING:
    from numpy.typing import NDArray

    I64 = NDArray[np.int64]

__all__ = ["losses", "lost_executors", "speculation"]

_SHOWN = 5
"""Names of executors in a text, at most."""


def losses(look: Look) -> list[Cause]:
    """Find executors, stages and tasks that were lost, and what it cost to do their work again: two causes at most.

    Where executors went, what stages did again is their doing.

    Causes: ``lost_executor``, ``stage_retry``, ``task_retry``.
    """
    lost_tasks = _LostTasks.of(look)
    gone_executors = lost_executors(look)
    causes = [
        _executors(look, lost_tasks, gone_executors) if gone_executors else _stages(look, lost_tasks),
        _attempts(look, lost_tasks),
    ]
    return [cause for cause in causes if cause is not None]


def lost_executors(look: Look) -> list[dict[str, Any]]:
    """Return the executors that went while jobs ran, and not because they were to: rows of `Schedule.executors`."""
    jobs = look.schedule.jobs
    first_job_ns, last_job_end = (
        min((job.start_ns for job in jobs), default=0),
        max((job.end_ns for job in jobs), default=0),
    )
    return [
        executor
        for executor in look.schedule.executors.iter_rows(named=True)
        if executor["removed"] is not None
        and first_job_ns <= executor["removed"] < last_job_end
        and was_lost(executor["reason"])
    ]


@dataclass(frozen=True, slots=True)
class _LostTasks:
    """Task attempts that did not count, by what happened to them."""

    with_executor: list[int]
    fetching: list[int]
    """Could not fetch shuffle blocks."""
    failing: list[int]
    """Failed for reasons of their own."""
    reasons: list[str]
    """Of all of them."""
    retried: set[int]
    """Ran in further attempts of their stages."""
    outputs: set[int]
    """Succeeded, and their output was lost."""

    @classmethod
    def of(cls, look: Look) -> _LostTasks:
        tasks, texts = look.tasks, look.schedule.log.texts["reason"]
        failed = tasks.filter(~pl.col("succeeded") & pl.col("ended") & ~pl.col("speculative"))
        rows = [(number, texts[code]) for number, code in failed.select("number", "reason").iter_rows()]
        return cls(
            with_executor=[number for number, text in rows if "ExecutorLost" in text],
            fetching=[number for number, text in rows if "FetchFailed" in text],
            failing=[
                number
                for number, text in rows
                if text.startswith(("ExceptionFailure", "TaskResultLost", "UnknownReason"))
            ],
            reasons=[text for _, text in rows],
            retried=set(tasks.filter(pl.col("stage_attempt") > 0)["number"].to_list()),
            outputs=set(tasks.filter("output_lost")["number"].to_list()),
        )


def _executors(look: Look, lost_tasks: _LostTasks, gone_executors: list[dict[str, Any]]) -> Cause:
    skip = frozenset({*lost_tasks.with_executor, *lost_tasks.fetching, *lost_tasks.retried, *_repeats(look.tasks)})
    # Had none gone, the first ones would have stayed, as many as there ever were at a time.
    saved = look.saved(skip=skip, cores=with_cores(look.schedule, max(1, most_cores(look.cores))))
    wasted = int(
        look.tasks.filter(pl.col("number").is_in([*lost_tasks.with_executor, *lost_tasks.outputs]))["held"].sum()
    )
    names = ", ".join(executor["executor"] for executor in gone_executors[:_SHOWN])
    names += ", ..." if len(gone_executors) > _SHOWN else ""
    loss = most_common_loss([executor["reason"] for executor in gone_executors])
    reason = next((executor["reason"] for executor in gone_executors if loss_of(executor["reason"]) is loss), None)
    text = (
        f"Executor{_s(gone_executors)} {names} went while jobs ran ({reason or 'no reason given'}):"
        f" {len(lost_tasks.with_executor)} running tasks and the output of {len(lost_tasks.outputs)} others were lost,"
        f" {len(lost_tasks.retried)} tasks ran in stages done again."
    )
    signal = {
        "executors": [executor["executor"] for executor in gone_executors],
        "reason": reason,
        "loss": loss.name,
        "lost_tasks": len(lost_tasks.with_executor),
        "lost_outputs": len(lost_tasks.outputs),
        "repeated_tasks": len(lost_tasks.retried),
        "wasted_ns": wasted,
    }
    facts = {"signal": signal, "change": loss.advice, "traps": (loss.trap,) if loss.trap else ()}
    return look.cause("lost_executor", max(saved, 0), text, **facts)


def _stages(look: Look, lost_tasks: _LostTasks) -> Cause | None:
    if not lost_tasks.fetching and not lost_tasks.retried:
        return None
    saved = look.saved(skip=frozenset({*lost_tasks.fetching, *lost_tasks.retried}))
    stages = sorted(
        {
            (int(stage_number), int(attempt))
            for stage_number, attempt in look.tasks.select("stage", "stage_attempt").unique().iter_rows()
            if attempt > 0
        }
    )
    numbers = sorted({stage for stage, _ in stages})
    first_stage = look.stage_name(*stages[0]) if stages else "A stage"
    further = f" and {len(numbers) - 1} more" if len(numbers) > 1 else ""
    text = (
        f"{first_stage}{further} ran again: {len(lost_tasks.fetching)} tasks could not fetch shuffle data, and"
        f" {len(lost_tasks.retried)} tasks ran in further attempts."
    )
    signal = {"stages": numbers, "fetch_failures": len(lost_tasks.fetching), "repeated_tasks": len(lost_tasks.retried)}
    return look.cause("stage_retry", saved, text, stage=numbers[0] if numbers else None, signal=signal)


def _attempts(look: Look, lost_tasks: _LostTasks) -> Cause | None:
    if not lost_tasks.failing or any(job.succeeded is False for job in look.schedule.jobs):
        return None
    saved = look.saved(skip=frozenset(lost_tasks.failing))
    failed_attempts = look.tasks.filter(pl.col("number").is_in(lost_tasks.failing))
    wasted = int(failed_attempts["held"].sum())
    stages = sorted({int(stage) for stage in failed_attempts["stage"].to_list()})
    further = f" and {len(stages) - 1} more" if len(stages) > 1 else ""
    text = (
        f"{look.stage_name(stages[0])}{further}: {len(lost_tasks.failing)} task attempts failed"
        f" ({_most_common(lost_tasks.reasons)}); the time until then, {seconds(wasted)} of cores, was lost."
    )
    signal = {"failed_attempts": len(lost_tasks.failing), "stages": stages, "wasted_ns": wasted}
    return look.cause("task_retry", saved, text, stage=stages[0], signal=signal)


def _s(several: list[Any]) -> str:
    return "s" if len(several) > 1 else ""


def _most_common(texts: list[str]) -> str:
    return max(sorted(set(texts)), key=texts.count).split("\n", 1)[0][:120]


def _repeats(tasks: pl.DataFrame) -> set[int]:
    """Return the tasks that repeat another one which succeeded."""
    succeeded = tasks.filter("succeeded").sort("done", "number")
    first_done = succeeded.unique(["stage", "stage_attempt", "index"], keep="first", maintain_order=True)
    return set(succeeded.filter(~pl.col("number").is_in(first_done["number"].implode()))["number"].to_list())


def speculation(look: Look) -> list[Cause]:
    """Find copies of slow tasks, and say what their first attempts cost: one cause at most.

    The application is replayed without copies, with first attempts that take no longer than the median of their stage.
    """
    copies = look.tasks.filter("speculative")
    if not copies.height:
        return []
    keys = copies.select("stage", "stage_attempt", "index").unique()
    all_attempts = look.tasks.join(keys, on=["stage", "stage_attempt", "index"], how="semi")
    killed_attempts = all_attempts.filter(~pl.col("succeeded"))
    won = all_attempts.filter("succeeded")
    # Had the first attempts been like the others, no copy would have begun.
    typical = (
        look.tasks.filter(pl.col("succeeded"))
        .group_by("stage", "stage_attempt")
        .agg(typical=pl.col("held").median().cast(pl.Int64))
    )
    originals = all_attempts.filter(~pl.col("speculative")).join(typical, on=["stage", "stage_attempt"])
    numbers = originals["number"].to_numpy()
    usual = np.minimum(originals["typical"].to_numpy(), originals["held"].to_numpy())

    def prompt(durations: I64) -> None:
        durations[numbers] = usual

    saved = look.saved(prompt, skip=frozenset(copies["number"].to_list()))
    if not look.matters(saved):
        return []
    wins = won.filter("speculative").height
    stage, attempt = int(copies["stage"][0]), int(copies["stage_attempt"][0])
    indices = ", ".join(str(i) for i in sorted(set(copies["index"].to_list()))[:5])
    text = (
        f"{look.stage_name(stage, attempt)}: speculation began {copies.height}"
        f" cop{'ies' if copies.height > 1 else 'y'} of slow tasks (task {indices}), {wins} of which won;"
        f" {seconds(float(killed_attempts['held'].sum()))} of cores went into attempts that were killed."
    )
    signal = {
        "copies": copies.height,
        "won": wins,
        "killed_ns": int(killed_attempts["held"].sum()),
        "indices": sorted(set(copies["index"].to_list()))[:50],
    }
    return [look.cause("speculation", saved, text, stage=stage, signal=signal)]
