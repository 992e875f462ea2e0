"""When the application would have ended after changes to it, or with other cores, each with how far off that can be.

Definitions stand in `docs/spark.md`, "What if".
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from pag_graph.diagnosis.spark.cores import predict_cores, steady
from pag_graph.diagnosis.spark.crowding import LEAST, MOST, Crowding
from pag_graph.diagnosis.spark.driver_time import driver_gaps
from pag_graph.diagnosis.spark.intervals import length
from pag_graph.diagnosis.spark.list_schedule import list_schedule
from pag_graph.diagnosis.spark.pauses import stream_pauses

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pag_graph.diagnosis.spark.causes import Diagnosis
    from pag_graph.diagnosis.spark.list_schedule import WorkPlan
    from pag_graph.diagnosis.spark.look import Estimate
    from pag_graph.sources.spark.mapping import Mapped

__all__ = ["Bounds", "WhatIf", "WithCores", "what_ifs", "with_other_cores"]

_MOST_STAGES = 3
_REPLAY_ERROR = 0.05
"""What replays may be off by, as a share of the time since the first job, on both sides of an interval; more if that of
what was recorded is off by more."""
# On a large log every replay takes seconds.
_LARGE = 200_000
# Part of the tasks' time below which garbage collection is not replayed: it would not be shown.
_LEAST_GC = 0.005


class WhatIf(NamedTuple):
    """A change to what was recorded."""

    change: str
    end: Estimate
    """When the application ends then, in nanoseconds from its start."""
    saving: Estimate
    """How much earlier that is."""

    def facts(self) -> dict[str, Any]:
        """Return it as plain values."""
        predicted = self.end.ns if self.end.reliable else None
        return {"change": self.change, "predicted_ns": predicted, **self.saving.facts("saved")}


class Bounds(NamedTuple):
    """An instant that is known as an interval only, in nanoseconds from the application's start."""

    low: int
    high: int
    reliable: bool = False

    def facts(self, name: str) -> dict[str, int | None]:
        """Return it as ``NAME_low_ns`` and ``NAME_high_ns``; ``NAME_ns`` is None, for there is no single number."""
        return {f"{name}_ns": None, f"{name}_low_ns": self.low, f"{name}_high_ns": self.high}

    def text(self, spelt: Callable[[float], str]) -> str:
        """Spell it for people; `spelt` spells a time in nanoseconds."""
        return f"{spelt(self.low)} to {spelt(self.high)}"


class WithCores(NamedTuple):
    """A number of cores."""

    cores: int
    end: Estimate | Bounds
    """When the application ends with them, in nanoseconds from its start; bounds where nothing tells what tasks that
    share processors take."""
    recorded: bool
    """Whether these are the cores as they were."""
    kept: bool
    """Whether they are there from the start to the end."""

    def facts(self) -> dict[str, Any]:
        """Return it as plain values."""
        flags = {"recorded": int(self.recorded), "kept": int(self.kept)}
        return {"cores": self.cores, **self.end.facts("predicted"), **flags}

    @property
    def label(self) -> str:
        """What people call it."""
        cores = f"{self.cores} core{'s' if self.cores != 1 else ''}"
        if self.recorded:
            return f"{cores} (as it was)" if self.kept else f"at most {cores} (as it was)"
        return cores


def with_other_cores(
    mapped: Mapped, diagnosis: Diagnosis, counts: Sequence[int], crowding: Crowding | None = None
) -> list[WithCores]:
    """Predict the end for other numbers of cores, and replay it for the recorded ones.

    Parameters
    ----------
    mapped, diagnosis
        Of one log.
    counts
        Numbers of cores, besides half and twice as many as there were.
    crowding
        What is known of tasks that share processors; what the log itself tells, if absent.

    Returns
    -------
    list of WithCores
        By number of cores.
    """
    schedule, plan, always = mapped.schedule, diagnosis.plan, steady(mapped.schedule)
    crowding_known = crowding or Crowding(mapped, diagnosis)
    sides = [
        {
            prediction.cores: prediction
            for prediction in predict_cores(schedule, plan, counts, more=crowding_known.more(bound))
            if not prediction.recorded
        }
        for bound in (LEAST, MOST)
    ]
    first_job_ns = diagnosis.span_ns - diagnosis.active_ns
    predictions = []
    for prediction in predict_cores(schedule, plan, counts, more=crowding_known.more(LEAST)):
        end: Estimate | Bounds = diagnosis.estimate(prediction.predicted_ns)
        if not prediction.recorded and not crowding_known.tells(prediction.cores):
            low, high = (by_cores[prediction.cores].predicted_ns for by_cores in sides)
            error_ns = max(int(_REPLAY_ERROR * (low - first_job_ns)), abs(diagnosis.simulated_ns - diagnosis.span_ns))
            end = Bounds(max(0, low - error_ns), high + error_ns)
        predictions.append(WithCores(prediction.cores, end, prediction.recorded, not prediction.recorded or always))
    return predictions


def what_ifs(mapped: Mapped, diagnosis: Diagnosis, steps: pl.DataFrame) -> list[WhatIf]:
    """Predict the end for changes to the stages that matter most.

    Parameters
    ----------
    mapped, diagnosis
        Of one log.
    steps
        Its critical path, with `what` each step was for.

    Returns
    -------
    list of WhatIf
        Those that save time, greatest saving first.
    """
    schedule, plan, cores = mapped.schedule, diagnosis.plan, diagnosis.cores
    if not schedule.tasks.height or not cores:
        return []
    tasks, base = schedule.tasks, diagnosis.simulated_ns
    changed: dict[str, np.ndarray[Any, np.dtype[np.int64]]] = {}
    stage, attempt = tasks["stage"].to_numpy(), tasks["stage_attempt"].to_numpy()
    for key in _on_path(mapped, steps)[: 1 if tasks.height > _LARGE else _MOST_STAGES]:
        of_stage = (stage == key[0]) & (attempt == key[1])
        half = plan.durations.copy()
        half[of_stage] //= 2
        changed[f"half the work in stage {key[0]}"] = half
        if of_stage.sum() > 1:
            even = plan.durations.copy()
            even[of_stage] = int(even[of_stage].mean())
            changed[f"even tasks in stage {key[0]}"] = even
    gc = tasks["gc"].to_numpy()
    if gc.sum() > _LEAST_GC * plan.durations.sum():
        changed["no garbage collection"] = np.maximum(plan.durations - gc, 0)
    predicted = []
    for change, durations in changed.items():
        end = list_schedule(plan, cores, durations=durations)
        predicted.append(WhatIf(change, diagnosis.estimate(end), diagnosis.estimate(base - end)))
    saved = length(driver_gaps(schedule))
    if stream_pauses(schedule):
        # What comes by the clock comes no sooner.
        saved = base - list_schedule(_without_driver(plan), cores)
    saving = diagnosis.estimate(saved, measured=True)
    predicted.append(WhatIf("no driver work between and after jobs", diagnosis.estimate(base - saved), saving))
    return sorted(
        (what_if for what_if in predicted if what_if.saving.ns > 0),
        key=lambda what_if: (-what_if.saving.ns, what_if.change),
    )


def _without_driver(plan: WorkPlan) -> WorkPlan:
    """Return the same work without the driver's own between jobs, and after them."""
    jobs = (replace(job, gap_ns=0) if job.after or job.begun >= 0 else job for job in plan.jobs)
    return replace(plan, jobs=tuple(jobs), tail_ns=0)


def _on_path(mapped: Mapped, steps: pl.DataFrame) -> list[tuple[int, int]]:
    """Return the stages on the path, the one with most time first."""
    on_path = (
        steps.group_by("what").agg(pl.col("duration_ns").sum()).sort("duration_ns", "what", descending=[True, False])
    )
    names = {mapped.operators.names[number]: key for key, number in mapped.operators.stages.items()}
    return [names[name] for name in on_path["what"].to_list() if name in names]
