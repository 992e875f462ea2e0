"""What tasks take longer, or less long, because more or fewer of them run on a host at once: with other cores.

It is known from the log itself, from a second log of the same program with another number of cores, or because a host
has processors enough; otherwise there are bounds: nothing is shared, or run time is 1.46 times as long, the worst that
was seen.

Definitions stand in `docs/spark.md`, "Shared processors".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from pag_graph.diagnosis.spark.contention import EXPLAINED, Sharing, fit_sharing
from pag_graph.diagnosis.spark.cores import most_cores
from pag_graph.diagnosis.spark.look import Thresholds
from pag_graph.sources.spark.settings import setting

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from pag_graph.diagnosis.spark.causes import Diagnosis
    from pag_graph.sources.spark.mapping import Mapped

    I64 = NDArray[np.int64]

__all__ = ["LEAST", "MOST", "WORST", "Crowding", "calibrated"]

LEAST, MOST = "least", "most"
WORST = 1.46
"""How many times as long tasks ran at most because they shared processors, in what was recorded."""


def calibrated(own: Diagnosis, other: Diagnosis, processors: int | None = None) -> Sharing | None:
    """Say what it costs that tasks share processors, from runs of one program with two numbers of cores.

    Parameters
    ----------
    own, other
        Of both logs.
    processors
        Of a host, where they are known.

    Returns
    -------
    Sharing or None
        A share of 0 where tasks lose nothing; None where fewer than five comparable tasks ran with neighbours, or
        without.
    """
    if own.comparable is None or other.comparable is None:
        return None
    limits, comparable = Thresholds(), pl.concat([own.comparable, other.comparable])
    sharing = _fit_tasks(comparable, processors, 0.0)
    knee = (processors or 1) if sharing is None else sharing.processors
    crowded = comparable.with_columns(crowded=pl.col("at_once") > knee + 0.5)
    counts = [int((crowded["crowded"] == is_crowded).sum()) for is_crowded in (False, True)]
    if min(counts) < limits.contended_tasks:
        return None
    # Stage by stage: tasks of one do not take what those of another take.
    usual = crowded.group_by("stage", "stage_attempt").agg(
        alone=pl.col("cpu_ns").filter(~pl.col("crowded")).median(), beside=pl.col("cpu_ns").filter("crowded").median()
    )
    inflation = usual.select((pl.col("beside") / pl.col("alone")).median()).item()
    kappa = max(1.0, float(inflation or 1.0))
    return Sharing(knee, 0.0 if sharing is None else sharing.share, round(kappa, 4), counts[0], counts[1])


def _fit_tasks(tasks: pl.DataFrame, processors: int | None, explained: float) -> Sharing | None:
    stolen, cpu, at_once = (tasks[name].to_numpy() for name in ("stolen", "cpu_ns", "at_once"))
    return fit_sharing(stolen, cpu, at_once, Thresholds().contended_tasks, processors=processors, explained=explained)


class Crowding:
    """What is known of the tasks of a log that share processors.

    Parameters
    ----------
    mapped, diagnosis
        Of the log.
    sharing
        What a second log tells, if there is one.
    processors
        Of a host, where somebody says so; `local[*]` says it too.
    """

    def __init__(
        self,
        mapped: Mapped,
        diagnosis: Diagnosis,
        *,
        sharing: Sharing | None = None,
        processors: int | None = None,
    ) -> None:
        schedule = mapped.schedule
        tasks = schedule.tasks
        self.hosts = max(1, schedule.executors["host"].n_unique())
        self.had = max(1, most_cores(diagnosis.cores))
        self.cpu = tasks["cpu_ns"].cast(pl.Int64).to_numpy()
        self.run = tasks["run"].cast(pl.Int64).to_numpy()
        self.at_once = np.ones(tasks.height) if diagnosis.at_once is None else diagnosis.at_once
        if processors is None and setting(schedule.log, "spark.master").value == "local[*]":
            processors = self.had
        self.processors, self.sharing = processors, sharing
        comparable = diagnosis.comparable
        if sharing is None and comparable is not None and comparable.height:
            self.sharing = _fit_tasks(comparable, processors, EXPLAINED)

    def tells(self, count: int) -> bool:
        """Return whether the end with `count` cores is one number, not an interval.

        It is if there are as many cores as there were, if it is known what sharing costs, or if the most tasks that a
        host runs at once have a processor each.
        """
        most_on_host = max(count, self.had) / self.hosts
        alike = count == self.had
        return alike or self.sharing is not None or (self.processors is not None and most_on_host <= self.processors)

    def more(self, side: str) -> Callable[[int], I64]:
        """Return a function from a number of cores to what each task takes more with them, in nanoseconds.

        Parameters
        ----------
        side
            `LEAST` or `MOST`: which of the two bounds, where it is not known what sharing costs.

        Returns
        -------
        callable
            Takes a number of cores; gives an array with an element per task, in the order of the schedule, below 0 for
            less.
        """

        def extra(count: int) -> I64:
            none = np.zeros(len(self.cpu), np.int64)
            if self.sharing is not None:
                return self._shared(self.sharing, count)
            if self.tells(count):
                return none
            if count > self.had:
                return none if side == LEAST else np.asarray(self.run * (WORST - 1), np.int64)
            return none if side == MOST else np.asarray(self.run * (1 / WORST - 1), np.int64)

        return extra

    def _shared(self, sharing: Sharing, count: int) -> I64:
        """Return what tasks lose with so many cores, less what they lost."""
        before, after = self.at_once, np.maximum(self.at_once * count / self.had, 1.0)
        # As many at once as there are cores on a host, and a host that had one task at a time has as many as it may.
        after = np.minimum(after, max(1.0, count / self.hosts))
        beyond = [np.maximum(at_once - sharing.processors, 0) / sharing.processors for at_once in (before, after)]
        alone_ns = self.cpu / np.where(beyond[0] > 0, sharing.inflation, 1.0)
        task_losses = [
            alone_ns * (sharing.share * excess + np.where(excess > 0, sharing.inflation - 1, 0.0)) for excess in beyond
        ]
        return np.asarray(task_losses[1] - task_losses[0], np.int64)
