"""Why a Spark application was slow: causes with what each cost, found in the log's tables.

Each detector looks at recorded numbers and asks the list schedule (`cores.py`) how much earlier the application would
have ended without the trouble. Only what would save a stated share of the time since the first job is a cause; the
order is by what it would save.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from pag_graph.sources.spark.cores import WorkPlan, list_schedule, plan_work, recorded_cores, warm_up

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from pag_graph.sources.spark.schedule import Schedule

    I64 = NDArray[np.int64]

# A part that explains most of a difference; a node that is so much slower than the others is slow.
_MOST_OF_IT, _SLOWER = 0.5, 2.0

__all__ = ["CAUSES", "Cause", "Diagnosis", "Thresholds", "diagnose"]

CAUSES: dict[str, str] = {
    "key_skew": "Spread the key: salt it, aggregate before the shuffle, or turn on adaptive skew joins.",
    "partition_skew": "Make input partitions of equal size: repartition, or split large files.",
    "slow_node": "Look at the machine; exclude it, or turn on speculation.",
    "straggler": "Look at what this task computes: the same amount of data costs more there.",
    "gc": "Give executors more memory or fewer cores each, and keep fewer objects alive.",
    "spill": "Use more partitions, or give executors more memory for execution.",
    "driver_bound": "Bring less to the driver and do less there: aggregate on executors, write instead of collect.",
    "lost_executor": "Find out why the executor went (memory limits first); replicate or checkpoint what is dear.",
    "stage_retry": "Shuffle files were lost: use an external shuffle service, and look at the disks and nodes.",
    "task_retry": "Look at why the tasks failed; each attempt starts anew.",
    "failed_job": "Look at the error of the job; its time was for nothing.",
    "speculation": "The first attempts hung: find out why. Lower spark.speculation.multiplier to react sooner.",
    "too_few_partitions": "Use more partitions: at least as many as there are cores.",
    "tiny_tasks": "Use fewer, larger partitions: coalesce, or raise the split size.",
    "concurrent_jobs": "The jobs share the cores: add cores, or run them one after the other if one matters more.",
    "scheduling": "Tasks wait for their launch or result: look at the driver's load, locality waits, and task size.",
    "shuffle_fetch": "Reduce what is shuffled, or look at the network and the shuffle servers.",
    "executor_wait": "Jobs waited for executors to start: keep some, or ask for them earlier.",
}
"""Causes and what usually helps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """From where on something is a cause; all of them parameters."""

    saved_share: float = 0.06
    """Least saving, as a share of the time since the first job."""
    slow_ratio: float = 2.5
    """A task is slow if it took so many times the median of its stage."""
    data_ratio: float = 0.4
    """Skewed data explains a slow task if it is so much of the ratio of times."""
    gc_share: float = 0.15
    """Least share of garbage collection in a stage's run time."""
    driver_share: float = 0.3
    """Least share of the driver's own time in the time since the first job."""
    overhead_share: float = 0.3
    """Least share of launching and finishing tasks in the cores' time of a stage with tiny tasks."""
    tiny_ns: int = 300_000_000
    """Tasks whose median run time is below this are tiny."""
    tiny_waves: int = 10
    """Only a stage with so many tasks per core has too many of them."""
    spill_share: float = 0.2
    """Least ratio of the bytes spilled to disk to those read and written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One reason for lost time."""

    cause: str
    """One of `CAUSES`."""
    saved_ns: int
    """How much earlier the application would have ended without it, by the list schedule."""
    share: float
    """The same as a share of the time since the first job."""
    stage: int | None = None
    """Stage concerned."""
    signal: dict[str, Any] = field(default_factory=dict)
    """The numbers that show it, for programs."""
    text: str = ""
    """The same in plain words."""
    bound: bool = False
    """Whether `saved_ns` is an upper bound, not an estimate."""

    @property
    def advice(self) -> str:
        """What usually helps."""
        return CAUSES[self.cause]

    def facts(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return {
            "cause": self.cause,
            "saved_ns": self.saved_ns,
            "share": self.share,
            "upper_bound": self.bound,
            "stage": self.stage,
            "signal": self.signal,
            "text": self.text,
            "advice": self.advice,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What the tables of a log tell."""

    causes: list[Cause]
    """Greatest saving first."""
    stages: pl.DataFrame
    """One row per stage attempt with tasks."""
    span_ns: int
    """The application's time."""
    active_ns: int
    """Its time since the first job."""
    simulated_ns: int
    """What the list schedule gives for the recorded cores: how far off predictions are."""
    core_ns: dict[str, int]
    """Time of all cores since the first job: busy for tasks that counted, wasted, idle."""
    plan: WorkPlan
    cores: list[tuple[int, int | None]]


def diagnose(schedule: Schedule, thresholds: Thresholds | None = None) -> Diagnosis:
    """Find the causes of lost time in a log.

    Parameters
    ----------
    schedule
        Of one log.
    thresholds
        From where on something is a cause.

    Returns
    -------
    Diagnosis
        With no cause where nothing stands out.
    """
    limits = thresholds or Thresholds()
    plan, cores = plan_work(schedule), recorded_cores(schedule)
    first = min((job.start_ns for job in schedule.jobs), default=0)
    active = max(schedule.end_ns - first, 1)
    stages = stage_table(schedule)
    if not schedule.tasks.height or not cores:
        return Diagnosis(
            causes=[],
            stages=stages,
            span_ns=schedule.end_ns,
            active_ns=active,
            simulated_ns=schedule.end_ns,
            core_ns={"busy": 0, "wasted": 0, "idle": 0},
            plan=plan,
            cores=cores,
        )
    look = _Look(schedule, plan, cores, limits, active, stages)
    found = [
        *_slow_tasks(look),
        *_gc(look),
        *_spill(look),
        *_driver(look),
        *_losses(look),
        *_speculation(look),
        *_partitions(look),
        *_concurrency(look),
        *_delays(look),
    ]
    causes = sorted(found, key=lambda cause: (-cause.saved_ns, cause.cause, cause.stage or 0))
    return Diagnosis(
        causes=_without_echoes(causes),
        stages=stages,
        span_ns=schedule.end_ns,
        active_ns=active,
        simulated_ns=look.base,
        core_ns=_core_time(schedule, first),
        plan=plan,
        cores=cores,
    )


class _Look:
    """A log with what the detectors share."""

    def __init__(
        self,
        schedule: Schedule,
        plan: WorkPlan,
        cores: list[tuple[int, int | None]],
        limits: Thresholds,
        active: int,
        stages: pl.DataFrame,
    ) -> None:
        self.schedule, self.plan, self.cores, self.limits, self.active = schedule, plan, cores, limits, active
        self.stages = stages
        self.tasks = schedule.tasks.with_row_index("number").with_columns(
            held=pl.col("free") - pl.col("receipt"), number=pl.col("number").cast(pl.Int64)
        )
        self.base = list_schedule(plan, cores)
        self.warm = warm_up(schedule)[0]

    def saved(self, change: Callable[[I64], None] | None = None, **more: Any) -> int:
        """Return how much earlier the application ends with changed durations."""
        durations = self.plan.durations.copy()
        if change is not None:
            change(durations)
        return self.base - list_schedule(self.plan, more.pop("cores", self.cores), durations=durations, **more)

    def matters(self, saved: int) -> bool:
        return saved >= self.limits.saved_share * self.active

    def cause(self, name: str, saved: int, text: str, **more: Any) -> Cause:
        return Cause(cause=name, saved_ns=int(saved), share=saved / self.active, text=text, **more)


def stage_table(schedule: Schedule) -> pl.DataFrame:
    """Return one row per stage attempt with tasks, in the order of their begin.

    Parameters
    ----------
    schedule
        Of one log.

    Returns
    -------
    pl.DataFrame
        Times in nanoseconds; `busy_ns` is what its tasks held cores, `skew_ratio` the longest task over the median.
    """
    held = pl.col("free") - pl.col("receipt")
    read = pl.col("remote_bytes") + pl.col("local_bytes")
    table = (
        schedule.tasks.group_by("stage", "stage_attempt", maintain_order=True)
        .agg(
            pl.col("job").first(),
            pl.len().cast(pl.Int64).alias("tasks"),
            (~pl.col("succeeded")).sum().cast(pl.Int64).alias("failed"),
            pl.col("speculative").sum().cast(pl.Int64).alias("speculative"),
            pl.col("launch").min().alias("start_ns"),
            pl.col("done").max().alias("end_ns"),
            held.sum().alias("busy_ns"),
            held.median().cast(pl.Int64).alias("median_ns"),
            held.max().alias("max_ns"),
            pl.col("run").sum().alias("run_ns"),
            pl.col("gc").sum().alias("gc_ns"),
            pl.col("deserialize").sum().alias("deserialize_ns"),
            pl.col("delay").sum().alias("delay_ns"),
            pl.col("fetch_wait").sum().alias("fetch_wait_ns"),
            pl.col("write").sum().alias("write_ns"),
            pl.col("disk_spilled_bytes").sum().alias("spilled_bytes"),
            pl.col("memory_spilled_bytes").sum(),
            (read + pl.col("input_bytes")).sum().alias("read_bytes"),
            (pl.col("shuffle_write_bytes") + pl.col("output_bytes")).sum().alias("written_bytes"),
            pl.col("result_bytes").sum(),
        )
        .sort("start_ns", "stage", "stage_attempt")
    )
    return table.with_columns(
        skew_ratio=pl.when(pl.col("median_ns") > 0).then(pl.col("max_ns") / pl.col("median_ns")).otherwise(1.0),
        job=pl.Series([None if j is None else schedule.jobs[j].job for j in table["job"].to_list()], dtype=pl.Int64),
    )


def _seconds(ns: float) -> str:
    return f"{ns / 1e9:.1f} s" if ns >= 1e9 else f"{ns / 1e6:.0f} ms"  # noqa: PLR2004 a second


def _slow_tasks(look: _Look) -> list[Cause]:
    """Tasks that take far longer than the others of their stage, and why."""
    limits, found = look.limits, []
    tasks = look.tasks.with_columns(warm=pl.Series(look.warm)).filter("succeeded")
    for (stage, attempt), own in tasks.group_by("stage", "stage_attempt", maintain_order=True):
        if own.height < 3:  # noqa: PLR2004 two tasks have no typical one
            continue
        held = own["warm"].to_numpy()
        typical = float(np.median(held))
        slow = held > limits.slow_ratio * max(typical, 1.0)
        if not slow.any() or (held.max() - typical) * 1.0 < limits.saved_share * look.active:
            continue
        numbers = own["number"].to_numpy()
        raw = own["held"].to_numpy()
        mean = int(raw.sum() / own.height)
        excess = raw[slow] - held[slow] + int(typical)

        def even(durations: I64, numbers: I64 = numbers, mean: int = mean) -> None:
            durations[numbers] = mean

        def usual(durations: I64, numbers: I64 = numbers[slow], excess: I64 = excess) -> None:
            durations[numbers] = excess

        signal = _why_slow(own, slow, look)
        kind = signal["signal"]
        saved = look.saved(even if kind in {"key_skew", "partition_skew"} else usual)
        if not look.matters(saved):
            continue
        number, place = int(stage), int(np.argmax(held))
        index, executor = int(own["index"][place]), look.schedule.log.texts["executor"][own["executor"][place]]
        signal |= {
            "stage": number,
            "stage_attempt": int(attempt),
            "slow_tasks": int(slow.sum()),
            "tasks": own.height,
            "index": index,
            "executor": executor,
            "host": look.schedule.log.texts["host"][own["host"][place]],
            "longest_ns": int(held.max()),
            "median_ns": int(typical),
        }
        found.append(look.cause(kind, saved, _slow_text(kind, signal), stage=number, signal=signal))
    return found


def _why_slow(own: pl.DataFrame, slow: NDArray[np.bool_], look: _Look) -> dict[str, Any]:
    """Say what sets slow tasks apart from the others of their stage."""
    others, those = own.filter(~pl.Series(slow)), own.filter(pl.Series(slow))
    if not others.height:
        others = own

    def ratio(values: pl.Expr) -> float:
        base = float(others.select(values.median()).item() or 0)
        top = float(those.select(values.median()).item() or 0)
        return top / base if base > 0 else (float("inf") if top > 0 else 1.0)

    time = ratio(pl.col("warm"))
    shuffled = max(ratio(pl.col("shuffle_read_records")), ratio(pl.col("remote_bytes") + pl.col("local_bytes")))
    taken = max(ratio(pl.col("input_records")), ratio(pl.col("input_bytes")))
    excess = max(
        float(those.select((pl.col("warm")).median()).item() - others.select(pl.col("warm").median()).item()), 1.0
    )

    def part(name: str) -> float:
        return (float(those[name].median() or 0) - float(others[name].median() or 0)) / excess  # type: ignore[arg-type]

    node = _node_ratio(own, those, look)
    facts = {
        "time_ratio": round(time, 2),
        "shuffle_read_ratio": _finite(shuffled),
        "input_ratio": _finite(taken),
        "gc_part": round(part("gc"), 3),
        "scheduling_part": round(part("delay"), 3),
        "fetch_part": round(part("fetch_wait"), 3),
        "node_ratio": _finite(node),
    }
    needed = max(2.0, look.limits.data_ratio * time)
    if shuffled >= needed:
        kind = "key_skew"
    elif taken >= needed:
        kind = "partition_skew"
    elif part("gc") >= _MOST_OF_IT:
        kind = "gc"
    elif part("delay") >= _MOST_OF_IT:
        kind = "scheduling"
    elif part("fetch_wait") >= _MOST_OF_IT:
        kind = "shuffle_fetch"
    elif node >= _SLOWER:
        kind = "slow_node"
    else:
        kind = "straggler"
    return {"signal": kind, **facts}


def _finite(value: float) -> float | None:
    return round(value, 2) if np.isfinite(value) else None


def _node_ratio(own: pl.DataFrame, those: pl.DataFrame, look: _Look) -> float:
    """Return how much slower a node is at everything, 1 if the slow tasks are on several nodes or it is not slower.

    Its other tasks count, and of the slow tasks themselves what does not depend on their data: deserialisation.
    """
    column = "host" if look.tasks["host"].n_unique() > 1 else "executor"
    places = those[column].unique().to_list()
    if len(places) != 1 or own[column].n_unique() == 1:
        return 1.0
    others = own.filter(pl.col(column) != places[0])
    # All tasks of the application after the first of each core, against the median of their stage elsewhere.
    first = look.tasks.sort("receipt", "number").unique("core", keep="first", maintain_order=True)
    warm = look.tasks.filter(pl.col("succeeded") & ~pl.col("number").is_in(first["number"].implode()))
    since = those["launch"].min()
    elsewhere = (
        warm.filter(pl.col(column) != places[0]).group_by("stage", "stage_attempt").agg(typical=pl.col("held").median())
    )
    here = (
        warm.filter((pl.col(column) == places[0]) & (pl.col("launch") >= since))
        .join(elsewhere, on=["stage", "stage_attempt"])
        .with_columns(ratio=pl.col("held") / pl.col("typical").clip(lower_bound=1))
    )
    not_slow = here.filter(~pl.col("number").is_in(those["number"].implode()))
    if not_slow.height >= 2:  # noqa: PLR2004 one task is no pattern
        return float(not_slow["ratio"].median() or 1.0)  # type: ignore[arg-type]
    if here.height >= 3:  # noqa: PLR2004 one task is no pattern
        return float(here["ratio"].median() or 1.0)  # type: ignore[arg-type]
    # Too few tasks there: what every task of the stage does alike must be slower too.
    alike = those.filter(pl.col("number").is_in(warm["number"].implode()))
    if not alike.height:
        return 1.0
    fixed, usual = float(alike["deserialize"].median() or 0), float(others["deserialize"].median() or 0)  # type: ignore[arg-type]
    if fixed - usual < 100e6:  # noqa: PLR2004 less than 100 ms says nothing
        return 1.0
    return fixed / max(usual, 50e6)


def _slow_text(kind: str, signal: dict[str, Any]) -> str:
    many = f"{signal['slow_tasks']} of {signal['tasks']} tasks"
    head = (
        f"Stage {signal['stage']}: {many} took far longer than the others (task {signal['index']}:"
        f" {_seconds(signal['longest_ns'])}, median {_seconds(signal['median_ns'])})"
    )
    if kind == "key_skew":
        more = signal["shuffle_read_ratio"]
        return f"{head}, and read {more or 'far more than 100'} x as much from the shuffle: skewed keys."
    if kind == "partition_skew":
        return f"{head}, and read {signal['input_ratio'] or 'far more than 100'} x as much input: uneven partitions."
    if kind == "slow_node":
        return (
            f"{head}; all of them ran on {signal['host'] or 'executor ' + signal['executor']}, which is slower at"
            " everything, and not at their data: a slow node."
        )
    if kind == "gc":
        return f"{head}; {signal['gc_part']:.0%} of the difference is garbage collection."
    if kind == "scheduling":
        return f"{head}; {signal['scheduling_part']:.0%} of the difference is scheduler delay."
    if kind == "shuffle_fetch":
        return f"{head}; {signal['fetch_part']:.0%} of the difference is waiting for shuffle blocks."
    return f"{head} with as much data as the others, on a node that is as fast: a straggler."


def _gc(look: _Look) -> list[Cause]:
    heavy = look.stages.filter(pl.col("gc_ns") >= look.limits.gc_share * pl.col("run_ns").clip(lower_bound=1))
    if not heavy.height:
        return []
    keys = heavy.select("stage", "stage_attempt")
    own = look.tasks.join(keys, on=["stage", "stage_attempt"], how="semi")
    numbers, gc = own["number"].to_numpy(), own["gc"].to_numpy()

    def without(durations: I64) -> None:
        durations[numbers] -= gc

    saved = look.saved(without)
    if not look.matters(saved):
        return []
    worst = heavy.sort("gc_ns", descending=True).row(0, named=True)
    stages = ", ".join(str(s) for s in heavy.sort("gc_ns", descending=True)["stage"].to_list()[:5])
    share = int(heavy["gc_ns"].sum()) / max(int(heavy["run_ns"].sum()), 1)
    text = (
        f"Stage{'s' if heavy.height > 1 else ''} {stages}: executors spent {share:.0%} of their run time"
        f" ({_seconds(float(heavy['gc_ns'].sum()))}) collecting garbage."
    )
    signal = {"gc_ns": int(heavy["gc_ns"].sum()), "gc_share": round(share, 4), "stages": heavy["stage"].to_list()}
    return [look.cause("gc", saved, text, stage=worst["stage"], signal=signal)]


def _spill(look: _Look) -> list[Cause]:
    moved = pl.col("read_bytes") + pl.col("written_bytes")
    heavy = look.stages.filter(
        (pl.col("spilled_bytes") > 0) & (pl.col("spilled_bytes") >= look.limits.spill_share * moved)
    )
    if not heavy.height:
        return []
    keys = heavy.select("stage", "stage_attempt")
    own = look.tasks.join(keys, on=["stage", "stage_attempt"], how="semi")
    numbers = own["number"].to_numpy()
    spilled = own["disk_spilled_bytes"].to_numpy().astype(float)
    once = (
        own.select(
            pl.sum_horizontal("remote_bytes", "local_bytes", "input_bytes", "shuffle_write_bytes", "output_bytes")
        )
        .to_series()
        .to_numpy()
    )
    # Spark does not log how long spilling took. Work is taken to go with the bytes that pass through a task.
    part = spilled / np.maximum(spilled + once, 1)
    less = (own["work"].to_numpy() * part).astype(np.int64)

    def without(durations: I64) -> None:
        durations[numbers] -= less

    saved = look.saved(without)
    if not look.matters(saved):
        return []
    worst = heavy.sort("spilled_bytes", descending=True).row(0, named=True)
    text = (
        f"Stage {worst['stage']}: its tasks spilled {worst['spilled_bytes'] / 2**20:,.0f} MiB to disk"
        f" ({worst['memory_spilled_bytes'] / 2**20:,.0f} MiB in memory), having read"
        f" {worst['read_bytes'] / 2**20:,.0f} MiB: too little memory for execution."
    )
    signal = {
        name: int(worst[name]) for name in ("spilled_bytes", "memory_spilled_bytes", "read_bytes", "written_bytes")
    }
    return [look.cause("spill", saved, text, stage=worst["stage"], signal=signal, bound=True)]


def driver_gaps(schedule: Schedule) -> list[tuple[int, int]]:
    """Return the stretches since the first job in which no job ran: the driver's own time."""
    out: list[tuple[int, int]] = []
    reached = min((job.start_ns for job in schedule.jobs), default=schedule.end_ns)
    for job in sorted(schedule.jobs, key=lambda job: job.start_ns):
        if job.start_ns > reached:
            out.append((reached, job.start_ns))
        reached = max(reached, job.end_ns)
    if schedule.end_ns > reached:
        out.append((reached, schedule.end_ns))
    return out


def _driver(look: _Look) -> list[Cause]:
    gaps = driver_gaps(look.schedule)
    own = sum(end - start for start, end in gaps)
    fetch = int((look.tasks["done"] - look.tasks["delivered"]).sum())
    share = own / look.active
    if share < look.limits.driver_share or not look.matters(own):
        return []
    result = int(look.tasks["result_bytes"].sum())
    text = (
        f"The driver worked alone for {_seconds(own)} of {_seconds(look.active)} since the first job"
        f" ({len(gaps)} stretches, the longest {_seconds(max(end - start for start, end in gaps))})"
    )
    if result >= 1 << 20:
        text += f"; tasks sent it {result / 2**20:,.0f} MiB of results"
    signal = {"driver_ns": own, "stretches": len(gaps), "result_bytes": result, "getting_result_ns": fetch}
    return [look.cause("driver_bound", own, f"{text}.", signal=signal)]


_ORDERLY = ("killed by driver", "idle", "decommission", "finished", "shutdown")


def _losses(look: _Look) -> list[Cause]:
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
        came = sorted(since for since, _ in look.cores)
        most = max(sum(s <= t and (u is None or u > t) for s, u in look.cores) for t in came)
        kept = [(since, None) for since in came[: max(1, most)]]
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
            f" {_seconds(wasted)} of cores, was lost."
        )
        signal = {"failed_attempts": len(errors), "stages": stages, "wasted_ns": wasted}
        broken = [job for job in schedule.jobs if job.succeeded is False]
        if not broken and look.matters(saved):
            found.append(look.cause("task_retry", saved, text, stage=stages[0], signal=signal))
    for job in schedule.jobs:
        span = job.end_ns - job.start_ns
        if job.succeeded is False:
            text = f"Job {job.job} failed after {_seconds(span)}: what it did was for nothing."
            found.append(look.cause("failed_job", span, text, signal={"job": job.job, "span_ns": span}))
    return found


def _s(several: list[Any]) -> str:
    return "s" if len(several) > 1 else ""


def _most_common(texts: list[str]) -> str:
    return max(sorted(set(texts)), key=texts.count).split("\n", 1)[0][:120]


def _repeats(tasks: pl.DataFrame) -> set[int]:
    """Return the tasks that repeat another one which succeeded."""
    done = tasks.filter("succeeded").sort("done")
    first = done.unique(["stage", "stage_attempt", "index"], keep="first", maintain_order=True)
    return set(done.filter(~pl.col("number").is_in(first["number"].implode()))["number"].to_list())


def _speculation(look: _Look) -> list[Cause]:
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
        f" (task {indices}), {wins} of which won; {_seconds(float(lost['held'].sum()))} of cores went into attempts"
        " that were killed."
    )
    signal = {
        "copies": copies.height,
        "won": wins,
        "killed_ns": int(lost["held"].sum()),
        "indices": sorted(set(copies["index"].to_list()))[:50],
    }
    return [look.cause("speculation", saved, text, stage=stage, signal=signal)]


def _partitions(look: _Look) -> list[Cause]:
    """Stages with fewer tasks than cores, or with so many that launching them is most of the work."""
    found = []
    limits = look.limits
    for row in look.stages.iter_rows(named=True):
        own = look.tasks.filter((pl.col("stage") == row["stage"]) & (pl.col("stage_attempt") == row["stage_attempt"]))
        numbers = own["number"].to_numpy()
        available = _cores_at(look, row["start_ns"], row["end_ns"])
        if row["tasks"] < available and row["stage_attempt"] == 0 and not row["failed"]:
            whole = int(look.warm[numbers].sum() // available)

            def split(durations: I64, numbers: I64 = numbers, whole: int = whole) -> None:
                durations[numbers] = np.minimum(durations[numbers], whole)

            saved = look.saved(split)
            if look.matters(saved):
                span = row["end_ns"] - row["start_ns"]
                text = (
                    f"Stage {row['stage']} had {row['tasks']} task{'s' if row['tasks'] > 1 else ''} for {available}"
                    f" cores: {available - row['tasks']} of them had nothing to do for {_seconds(span)}."
                )
                signal = {"tasks": row["tasks"], "cores": available, "span_ns": span}
                found.append(look.cause("too_few_partitions", saved, text, stage=row["stage"], signal=signal))
        run = own["work"].to_numpy()
        overhead = own["held"].to_numpy() - run
        between = look.plan.stages[_stage_index(look, int(numbers[0]))].between_ns if numbers.size else 0
        spent = float(own["held"].sum()) + between * own.height
        if (
            row["tasks"] >= limits.tiny_waves * available
            and np.median(run) <= limits.tiny_ns
            and (float(overhead.sum()) + between * own.height) >= limits.overhead_share * max(spent, 1.0)
        ):
            bare = run

            def merged(durations: I64, numbers: I64 = numbers, bare: I64 = bare) -> None:
                durations[numbers] = bare

            saved = look.saved(merged) + int(between * own.height // max(available, 1))
            if look.matters(saved):
                share = (float(overhead.sum()) + between * own.height) / max(spent, 1.0)
                text = (
                    f"Stage {row['stage']} had {row['tasks']:,} tasks, of which the usual one worked"
                    f" {_seconds(float(np.median(run)))}: {share:.0%} of the cores' time went into launching and"
                    " finishing them."
                )
                signal = {
                    "tasks": row["tasks"],
                    "median_work_ns": int(np.median(run)),
                    "overhead_share": round(share, 4),
                }
                found.append(look.cause("tiny_tasks", saved, text, stage=row["stage"], signal=signal))
    return found


def _stage_index(look: _Look, task: int) -> int:
    return next((k for k, stage in enumerate(look.plan.stages) if task in stage.tasks), 0)


def _cores_at(look: _Look, start: int, end: int) -> int:
    middle = (start + end) // 2
    return max(1, sum(since <= middle and (until is None or until > middle) for since, until in look.cores))


def _concurrency(look: _Look) -> list[Cause]:
    """Jobs that overlapped others and took longer than they would have alone."""
    jobs = look.schedule.jobs
    order = sorted(range(len(jobs)), key=lambda i: jobs[i].start_ns)
    together: set[int] = set()
    reach, holder = -1, -1
    for index in order:
        # Jobs of one query overlap because it wants them to.
        own = jobs[index].execution is not None and jobs[index].execution == jobs[holder].execution
        if jobs[index].start_ns < reach and not own:
            together |= {index, holder}
        if jobs[index].end_ns > reach:
            reach, holder = jobs[index].end_ns, index
    if not together:
        return []
    lost: dict[int, int] = {}
    for index in sorted(together):
        alone = _alone(look, index)
        lost[index] = max(0, jobs[index].end_ns - jobs[index].start_ns - alone)
    worst = max(lost, key=lambda index: lost[index])
    total = lost[worst]
    if not look.matters(total):
        return []
    numbers = [jobs[index].job for index in sorted(together)]
    text = (
        f"{len(together)} jobs ({', '.join(str(n) for n in numbers[:6])}) overlapped and shared the cores: job"
        f" {jobs[worst].job} took {_seconds(jobs[worst].end_ns - jobs[worst].start_ns)}, and would have taken"
        f" {_seconds(jobs[worst].end_ns - jobs[worst].start_ns - total)} alone."
    )
    signal = {"jobs": numbers, "slowed_ns": {str(jobs[index].job): ns for index, ns in lost.items()}}
    return [look.cause("concurrent_jobs", total, text, signal=signal, bound=True)]


def _alone(look: _Look, index: int) -> int:
    """Return how long a job would have taken with all cores for itself."""
    stages = [stage for stage in look.plan.stages if stage.job == index]
    place = {id(stage): k for k, stage in enumerate(stages)}
    numbers = {k: place[id(stage)] for k, stage in enumerate(look.plan.stages) if id(stage) in place}
    from dataclasses import replace

    plan = replace(
        look.plan,
        jobs=(replace(look.plan.jobs[index], after=(), begun=-1, gap_ns=0),),
        stages=tuple(
            replace(stage, job=0, after=tuple(numbers[k] for k in stage.after if k in numbers)) for stage in stages
        ),
        last=(0,),
        tail_ns=0,
    )
    start = look.schedule.jobs[index].start_ns
    cores = [(max(0, since - start), None) for since, until in look.cores if until is None or until > start]
    return list_schedule(plan, cores or [(0, None)])


def _delays(look: _Look) -> list[Cause]:
    """Time that tasks spent neither working nor deserialising: scheduler delay and waiting for shuffle blocks."""
    found = []
    numbers = look.tasks["number"].to_numpy()
    for column, name, what in (
        ("delay", "scheduling", "between the driver's launch and its notice of the end"),
        ("fetch_wait", "shuffle_fetch", "waiting for shuffle blocks"),
    ):
        spent = look.tasks[column].to_numpy()
        share = float(spent.sum()) / max(float(look.tasks["held"].sum()), 1.0)
        if share < 0.25:  # noqa: PLR2004 a quarter of all time
            continue

        def without(durations: I64, spent: I64 = spent) -> None:
            durations[numbers] = np.maximum(durations[numbers] - spent, 0)

        saved = look.saved(without)
        if look.matters(saved):
            text = f"Tasks spent {share:.0%} of their time ({_seconds(float(spent.sum()))}) {what}."
            found.append(look.cause(name, saved, text, signal={"share": round(share, 4), "time_ns": int(spent.sum())}))
    found += _executor_wait(look)
    return found


def _executor_wait(look: _Look) -> list[Cause]:
    """Stretches of jobs in which there was no executor at all."""
    spans = sorted((since, until if until is not None else look.schedule.end_ns) for since, until in look.cores)
    waited = 0
    for job in look.schedule.jobs:
        reached = job.start_ns
        for since, until in spans:
            if since > reached:
                break
            reached = max(reached, until)
        following = min((since for since, _ in spans if since > reached), default=job.end_ns)
        if reached < job.end_ns:
            waited += min(following, job.end_ns) - reached
    if not look.matters(waited):
        return []
    text = f"Jobs waited {_seconds(waited)} for executors: there was none."
    return [look.cause("executor_wait", waited, text, signal={"waited_ns": waited})]


def _without_echoes(causes: list[Cause]) -> list[Cause]:
    """Leave out what only repeats a cause of the same stage that says more."""
    stages = {cause.stage for cause in causes if cause.cause == "tiny_tasks"}
    speculated = {cause.stage for cause in causes if cause.cause == "speculation"}
    kept = []
    for cause in causes:
        if cause.cause == "scheduling" and stages:
            # Launching tiny tasks is scheduler delay by another name.
            continue
        if cause.cause == "straggler" and cause.stage in speculated:
            continue
        kept.append(cause)
    return kept


def _core_time(schedule: Schedule, first: int) -> dict[str, int]:
    """Return the time of all cores since the first job: used, wasted on attempts that did not count, and idle."""
    tasks = schedule.tasks.with_columns(held=pl.col("free") - pl.col("receipt"))
    busy = int(tasks.filter("succeeded")["held"].sum())
    wasted = int(tasks.filter(~pl.col("succeeded"))["held"].sum())
    there = sum(
        max(0, (schedule.end_ns if until is None else until) - max(since, first))
        for since, until in recorded_cores(schedule)
    )
    return {"busy": busy, "wasted": wasted, "idle": max(0, there - busy - wasted)}
