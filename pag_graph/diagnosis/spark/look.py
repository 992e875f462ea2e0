"""An event log under examination: what all detectors of causes share, and what they answer with."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from pag_graph.diagnosis.spark.catalogue import CAUSES
from pag_graph.diagnosis.spark.first_tasks import settled
from pag_graph.diagnosis.spark.list_schedule import Cores, WorkPlan, list_schedule
from pag_graph.diagnosis.spark.neighbours import tasks_at_once
from pag_graph.diagnosis.spark.plan_view import PlanView
from pag_graph.sources.spark.operators import name_operators, node_metrics, stage_nodes
from pag_graph.sources.spark.task_rows import widened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from pag_graph.diagnosis.spark.changes import Change
    from pag_graph.sources.spark.schedule import Schedule

    I64 = NDArray[np.int64]

__all__ = ["Cause", "Estimate", "Look", "Shorter", "Thresholds", "seconds"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """From where on something is a cause; all of them parameters."""

    saved_share: float = 0.06
    """Least saving, as a share of the time since the first job."""
    replay_error: float = 0.05
    """Largest error of the replay of what was recorded, as a share of the time since the first job, with which replayed
    times are given as one number; with a larger one they are given as intervals."""
    slow_ratio: float = 2.5
    """A task is slow if it took so many times the median of its stage."""
    data_ratio: float = 0.4
    """Skewed data explains a slow task if it is so much of the ratio of times."""
    gc_share: float = 0.15
    """Least share of garbage collection in a stage's run time."""
    driver_share: float = 0.3
    """Least share of the driver's own time, as far as nothing explains it, in the time since the first job."""
    overhead_share: float = 0.3
    """Least share of launching and finishing tasks in the cores' time of a stage with tiny tasks."""
    tiny_ns: int = 300_000_000
    """Tasks whose median run time is below this are tiny."""
    tiny_waves: int = 10
    """Only a stage with so many tasks per core has too many of them."""
    spill_share: float = 0.2
    """Least ratio of the bytes spilled to disk to those read and written."""
    delay_share: float = 0.25
    """Least share of scheduler delay, or of waiting for shuffle blocks, in the tasks' time; and of their frame in the
    time of a stream's batches."""
    replanning_share: float = 0.1
    """Least share of the driver's time between stages of adaptive queries in the time since the first job."""
    full_heap: float = 0.95
    """A heap is full if so much of it was in use when it was looked at."""
    contended_share: float = 0.5
    """Only a stage whose tasks had a processor for so much of their run time can tell of contention."""
    contended_tasks: int = 5
    """So many tasks with a processor each, and as many without, tell what sharing one costs."""
    small_jobs: int = 20
    """So many jobs of one call site are many, if each with the driver's time before it is small."""
    small_job_ns: int = 1_000_000_000
    """A job with the driver's time before it is small below this."""
    python_share: float = 0.2
    """Least share of Python in the run time of the stages that have any."""
    exploding_ratio: float = 10.0
    """A join explodes if it makes so many times as many rows as its larger side has."""
    pair_ns: int = 1_000
    """No comparison of two rows takes longer than this."""
    shuffle_row_ns: int = 20_000
    """No row of a shuffle and a sort takes longer than this to write, read and sort."""
    small_side: float = 0.1
    """A side of a join is small if it has at most so much of the other side's bytes."""
    driver_heap_share: float = 0.1
    """A side of a join that is sent to all may take so much of the driver's memory."""
    small_file_bytes: int = 3 << 20
    """Files whose mean is below this are small."""
    small_files: int = 100
    """So many small files are many."""
    file_bytes: int = 128 << 20
    """Size that files should have."""
    huge_bytes: int = 1 << 30
    """A partition that spills is huge if its task reads so much."""
    many_cores: int = 4
    """Fewer cores are not worth giving back."""
    busy_share: float = 0.6
    """Cores are too many only if tasks hold them for at most so much of the time."""
    fewer_share: float = 0.5
    """Cores are given back only if at most so many of them are enough."""
    slower_share: float = 0.05
    """What is saved may make the application so much slower, as a share of the time since the first job."""
    little_memory: float = 0.3
    """Executors have too much memory only if execution and storage use at most so much of theirs."""
    little_gc: float = 0.02
    """And if garbage collection takes at most so much of the run time."""


class Estimate(NamedTuple):
    """A time that a replay gave, and how far off such replays are in this log."""

    ns: int
    error_ns: int
    """Of the replay of what was recorded; 0 for what was measured."""
    reliable: bool
    """Whether the error is small enough to give the time as one number."""
    most_ns: int | None = None
    """What it cannot be more than, whatever a replay says; None where nothing tells."""

    @property
    def low(self) -> int:
        """Lower end of the interval, not below 0."""
        return max(0, self.ns - self.error_ns)

    @property
    def high(self) -> int:
        """Upper end of the interval."""
        high = self.ns + self.error_ns
        return high if self.most_ns is None else min(high, self.most_ns)

    def facts(self, name: str) -> dict[str, int | None]:
        """Return it as ``NAME_ns``, ``NAME_low_ns`` and ``NAME_high_ns``; the first is None unless it is reliable."""
        return {
            f"{name}_ns": self.ns if self.reliable else None,
            f"{name}_low_ns": self.low,
            f"{name}_high_ns": self.high,
        }

    def text(self, spelt: Callable[[float], str]) -> str:
        """Spell it for people: one time if it is reliable, else an interval; `spelt` spells a time in nanoseconds."""
        if self.reliable:
            return spelt(self.ns)
        return f"{spelt(self.low)} to {spelt(self.high)}" if self.low else f"at most {spelt(self.high)}"


_NONE = Estimate(0, 0, reliable=True)
_JOINING = frozenset({"coalesce", "Coalesce"})
"""Scopes of RDDs, and of SQL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One reason for lost time."""

    cause: str
    """One of `CAUSES`."""
    saved_ns: int
    """How much earlier the application would have ended without it."""
    share: float
    """The same as a share of the time since the first job."""
    stage: int | None = None
    """Stage concerned."""
    signal: dict[str, Any] = field(default_factory=dict)
    """The numbers that show it, for programs."""
    text: str = ""
    """The same in plain words."""
    most_ns: int | None = None
    """What it cannot be more than, whatever a replay says; None where nothing tells."""
    bound: bool = False
    """Whether `saved_ns` is an upper bound, not an estimate."""
    measured: bool = False
    """Whether `saved_ns` was measured; otherwise it is the list schedule's."""
    modelled: bool = False
    """Whether the log lacks the measure that the cause has elsewhere, so that the time is modelled."""
    change: str = ""
    """What would help here, where more is known than what usually helps."""
    changes: tuple[Change, ...] = ()
    """The same as settings with values, or as places in the program."""
    traps: tuple[str, ...] = ()
    """What looks like this cause and is none, each looked at and ruled out, or named where a log cannot tell."""
    changed: Callable[[I64], None] | None = field(default=None, repr=False, compare=False)
    """Takes the trouble out of the tasks' durations, for replays of several changes at once."""
    cumulative: Estimate | None = None
    """When the application ends with this change and those before it, in nanoseconds from its start."""
    saving: Estimate = _NONE
    """`saved_ns` with its error, once all causes are found."""

    @property
    def title(self) -> str:
        """What people call it."""
        return CAUSES[self.cause].title

    @property
    def advice(self) -> str:
        """What helps."""
        return self.change or CAUSES[self.cause].advice

    @property
    def kind(self) -> str:
        """``M`` if the lost time was measured, ``B`` if it is modelled."""
        if self.modelled:
            return "B"
        return "M" if self.measured else CAUSES[self.cause].kind

    def facts(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return {
            "cause": self.cause,
            "title": self.title,
            "class": self.kind,
            **self.saving.facts("saved"),
            "share": self.share if self.saving.reliable else None,
            "upper_bound": self.bound,
            "measured": self.measured,
            "stage": self.stage,
            "signal": self.signal,
            "text": self.text,
            "advice": self.advice,
            "changes": [change.facts() for change in self.changes],
            "traps": list(self.traps),
            **({} if self.cumulative is None else self.cumulative.facts("cumulative")),
        }


class Shorter:
    """Takes time from some tasks.

    Parameters
    ----------
    parts
        Numbers of tasks, and the nanoseconds that each loses.
    """

    def __init__(self, parts: list[tuple[I64, I64]]) -> None:
        self.parts = parts

    def __call__(self, durations: I64) -> None:
        """Shorten durations in place."""
        for numbers, cut_ns in self.parts:
            durations[numbers] = np.maximum(durations[numbers] - cut_ns, 0)


class Look:
    """A log with what the detectors share.

    Parameters
    ----------
    schedule
        Jobs, tasks and executors.
    plan
        What is needed to run the tasks again (`plan_work`).
    cores
        The recorded cores, one group per executor (`recorded_cores`).
    limits
        From where on something is a cause.
    active
        The application's time since the first job, in nanoseconds.
    stages
        One row per stage attempt (`stage_table`).

    Attributes
    ----------
    tasks
        One row per task attempt: the schedule's columns in 64 bits, its `number` in the plan, and `held`, the
        nanoseconds for which it held its core.
    base
        When the application ends if the recorded tasks are scheduled again, in nanoseconds from the origin.
    replays
        How often it was replayed so far.
    warm
        Per task, the nanoseconds for which it held its core without what first tasks take more (`settled`).
    spans
        Nanoseconds from the first launch to the last end, by stage attempt.
    """

    def __init__(
        self,
        schedule: Schedule,
        plan: WorkPlan,
        cores: list[Cores],
        limits: Thresholds,
        active: int,
        stages: pl.DataFrame,
    ) -> None:
        self.schedule, self.plan, self.cores, self.limits, self.active = schedule, plan, cores, limits, active
        self.stages = stages
        self.tasks = (
            widened(schedule.tasks)
            .with_row_index("number")
            .with_columns(held=pl.col("free") - pl.col("receipt"), number=pl.col("number").cast(pl.Int64))
        )
        self.replays = 0
        self.base = self.ends()
        self.warm = settled(schedule)
        self.spans = {
            (stage, attempt): end - start
            for stage, attempt, start, end in stages.select("stage", "stage_attempt", "start_ns", "end_ns").iter_rows()
        }

    @cached_property
    def by_stage(self) -> dict[tuple[int, int], pl.DataFrame]:
        """The tasks of each stage attempt."""
        return self.tasks.partition_by("stage", "stage_attempt", as_dict=True)

    @cached_property
    def at_once(self) -> NDArray[np.float64]:
        """Per task the mean number of tasks on its host while it ran, itself included."""
        return tasks_at_once(self.tasks)

    @cached_property
    def between_ns(self) -> dict[tuple[int, int], int]:
        """Per stage attempt, how long a core is empty between two of its tasks."""
        return {stage.key: stage.between_ns for stage in self.plan.stages}

    @cached_property
    def nodes(self) -> dict[int, list[str]]:
        """Plan nodes that each stage worked for."""
        return stage_nodes(self.schedule)

    @cached_property
    def plans(self) -> PlanView:
        """The plans of all queries with what their nodes counted."""
        return PlanView(self.schedule)

    @cached_property
    def unsplittable(self) -> set[int]:
        """Stages that read files which are one task each, whatever their size."""
        log = self.schedule.log
        nodes = log.nodes.filter("unsplittable").select("execution", "node").unique()
        by_node = (
            node_metrics(self.schedule).join(nodes, on=["execution", "node"], how="semi")["stage"].to_list()
            if nodes.height
            else []
        )
        return {*by_node, *log.stages.filter("unsplittable")["stage"].to_list()}

    @cached_property
    def joined(self) -> set[int]:
        """Stages whose program makes fewer partitions of those that were read (`coalesce`), without a shuffle."""
        scopes = self.schedule.log.stages.select("stage", "scopes").iter_rows()
        return {stage for stage, names in scopes if any(name in _JOINING for name in names or ())}

    @cached_property
    def _labels(self) -> dict[tuple[int, int], str]:
        operators = name_operators(self.schedule)
        return {key: operators.names[number] for key, number in operators.stages.items()}

    def stage_name(self, stage: int, attempt: int = 0) -> str:
        """Return what people call a stage: its number and what it does.

        Parameters
        ----------
        stage, attempt
            Its number, and which attempt, from 0; only later attempts are named.
        """
        _, _, doing = self._labels.get((stage, attempt), "").partition(": ")
        attempt_part = f", attempt {attempt + 1}" if attempt else ""
        return f"Stage {stage}{attempt_part}" + (f" ({doing})" if doing else "")

    def ends(self, *, durations: I64 | None = None, **more: Any) -> int:
        """Return when the application ends if it is replayed, in nanoseconds from the origin.

        Parameters
        ----------
        durations
            Nanoseconds per task; the recorded ones if absent.
        **more
            As `list_schedule` has them; `cores` are the recorded ones if absent.

        Notes
        -----
        Every call replays all tasks; `list_schedule` says what that takes.
        """
        self.replays += 1
        return list_schedule(self.plan, more.pop("cores", self.cores), durations=durations, **more)

    def saved(self, change: Callable[[I64], None] | None = None, **more: Any) -> int:
        """Return how many nanoseconds earlier the application ends.

        Parameters
        ----------
        change
            Shortens the durations in place; none if absent.
        **more
            As `ends` has them: other cores, attempts that are left out.
        """
        durations = self.plan.durations.copy()
        if change is not None:
            change(durations)
        return self.base - self.ends(durations=durations, **more)

    def cut(
        self, stages: Iterable[tuple[int, int]], share: Callable[[tuple[int, int]], float], *, warm: bool = False
    ) -> Shorter:
        """Return what takes a share of its run time from every task of some stages.

        Parameters
        ----------
        stages
            Stage attempts; those without tasks are passed over.
        share
            The share of each, from 0 to 1.
        warm
            Whether what first tasks took more, for code that was cold, is kept out of it.
        """
        parts: list[tuple[I64, I64]] = []
        for key in sorted(stages):
            stage_tasks = self.by_stage.get(key)
            if stage_tasks is not None:
                numbers, run = stage_tasks["number"].to_numpy(), stage_tasks["run"].to_numpy()
                if warm:
                    run = np.maximum(run - (stage_tasks["held"].to_numpy() - self.warm[numbers]), 0)
                parts.append((numbers, (run * min(max(share(key), 0.0), 1.0)).astype(np.int64)))
        return Shorter(parts)

    def saved_in(self, stages: Sequence[tuple[int, int]], change: Callable[[I64], None]) -> int:
        """Return how much earlier the application ends if only tasks of some stages take less time.

        Parameters
        ----------
        stages
            Stage attempts with tasks.
        change
            Shortens the durations of their tasks in place.

        Returns
        -------
        int
            Nanoseconds. No more than these stages' time, and no more than their tasks lose, can be saved: where that is
            too little to matter, nothing is replayed and the answer is 0.
        """
        if not self.matters(sum(self.spans[key] for key in stages)):
            return 0
        durations = self.plan.durations.copy()
        change(durations)
        if not self.matters(int((self.plan.durations - durations).clip(min=0).sum())):
            return 0
        return self.base - self.ends(durations=durations)

    def matters(self, saved: int) -> bool:
        """Return whether so many nanoseconds are worth a word: `saved_share` of the time since the first job."""
        return saved >= self.limits.saved_share * self.active

    def cause(self, name: str, saved: int, text: str, **more: Any) -> Cause:
        """Return a cause.

        Parameters
        ----------
        name
            One of `CAUSES`.
        saved
            How many nanoseconds it cost.
        text
            What shows it, in plain words.
        **more
            Further fields of `Cause`.
        """
        return Cause(cause=name, saved_ns=int(saved), share=saved / self.active, text=text, **more)


def seconds(ns: float) -> str:
    """Spell nanoseconds for people: in seconds from one second on, below in milliseconds."""
    return f"{ns / 1e9:.1f} s" if ns >= 1e9 else f"{ns / 1e6:.0f} ms"  # noqa: PLR2004 a second
