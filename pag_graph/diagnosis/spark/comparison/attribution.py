"""What the difference of two runs goes back to, by replays: the cluster, the driver, partitions, volume, and rate.

One run's plan of work is replayed with each of five parts taken from the other run or not, 32 replays in all. A part's
share is its Shapley value (1953, A value for n-person games): what it changes on average over all orders in which the
parts can be changed. So shares do not depend on an order, and add up to what all five change together.

Definitions stand in `docs/spark.md`, "Two runs".
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from math import factorial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pag_graph.diagnosis.spark.comparison.stages import match_stages, stages_of, units_of_jobs
from pag_graph.diagnosis.spark.list_schedule import JobPlan, StagePlan, WorkPlan, list_schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from pag_graph.diagnosis.spark.answer import SparkAnswer
    from pag_graph.diagnosis.spark.comparison.matching import Pair

    I64 = NDArray[np.int64]

__all__ = ["FACTORS", "Attribution", "Part", "attribute", "shapley"]

FACTORS = ("cluster", "driver", "partitioning", "volume", "rate")
"""Parts of a run that can be taken from another one, in the order of ties."""

_TEXTS = {
    "cluster": "cores, and when they came and went",
    "driver": "the driver's time before, between and after jobs and stages",
    "partitioning": "how many tasks share a stage's work, how evenly, and what each takes to launch and load",
    "volume": "bytes that stages read and write",
    "rate": "time that tasks take for as many bytes",
    "plan": "jobs and stages that only one run has",
    "residual": "what replays do not explain",
}
_LEAST_MATCHED = 0.8
_UNLIKE = 2
"""Two stages' bytes tell of their time as long as one's bytes at the other's rate take at most so many times as long as
either did."""


class Part(NamedTuple):
    """A part of the difference of two runs."""

    name: str
    """One of `FACTORS`, ``plan`` or ``residual``."""
    ns: int
    """New less base, as replayed."""

    @property
    def text(self) -> str:
        """What it is about."""
        return _TEXTS[self.name]


class Attribution(NamedTuple):
    """What a difference goes back to, and how many replays that took."""

    parts: list[Part]
    """The five of `FACTORS`, largest first, then ``plan`` and ``residual``; they add up to the difference. Empty where
    it was refused."""
    replays: int
    refused: str = ""
    """Why there is none."""

    def facts(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "by": "replayed",
            "replays": self.replays,
            "refused": self.refused or None,
            "parts": [{**part._asdict(), "text": part.text} for part in self.parts],
        }


def attribute(new: SparkAnswer, base: SparkAnswer, pairs: Sequence[Pair], matched: tuple[float, float]) -> Attribution:
    """Divide the difference of two runs among what differs in them.

    Parameters
    ----------
    new, base
        Answers for two logs.
    pairs
        Their units of work, as `match_units` pairs them.
    matched
        Share of the work's path in new and base that is in units which both have.

    Returns
    -------
    Attribution
        Of one log with itself all parts are 0; the other way round they change their sign.
    """
    if min(matched) < _LEAST_MATCHED:
        return Attribution([], 0, f"only {min(matched):.0%} of a path is in units that both have")
    if not all(
        spark_answer.mapped.schedule.tasks.height and spark_answer.diagnosis.cores for spark_answer in (new, base)
    ):
        return Attribution([], 0, "a run has no tasks")
    # Whose jobs and stages are replayed must not depend on which run is called new.
    new_kept = _order(new) < _order(base)
    sides = [_Side(new, pairs, 0), _Side(base, pairs, 1)]
    ours, theirs = sides if new_kept else sides[::-1]
    hybrid = _Hybrid(ours, theirs)
    ends = {frozenset(chosen): hybrid.end(frozenset(chosen)) for chosen in _subsets(hybrid.differing)}
    parts_ns = dict.fromkeys(FACTORS, 0) | shapley(hybrid.differing, ends.__getitem__)
    parts_ns["plan"] = theirs.answer.diagnosis.simulated_ns - ends[frozenset(hybrid.differing)]
    spans = theirs.answer.diagnosis.span_ns - ours.answer.diagnosis.span_ns
    parts_ns["residual"] = spans - sum(parts_ns.values())
    sign = -1 if new_kept else 1
    names = sorted(FACTORS, key=lambda name: (-abs(parts_ns[name]), FACTORS.index(name)))
    return Attribution([Part(name, sign * parts_ns[name]) for name in (*names, "plan", "residual")], len(ends))


def shapley(names: Sequence[str], value: Callable[[frozenset[str]], int]) -> dict[str, int]:
    """Return the Shapley value of each of some parts, rounded to whole numbers that add up.

    Parameters
    ----------
    names
        The parts, n of them.
    value
        What comes of a set of parts that were changed; asked for all 2^n of them.

    Returns
    -------
    dict
        Part to its share of ``value(all) - value(none)``. Changed signs of all values change the signs of all shares.

    Examples
    --------
    >>> shapley(["a", "b"], lambda chosen: {0: 0, 1: 10, 2: 30}[len(chosen)])
    {'a': 15, 'b': 15}
    """
    count = len(names)
    orders = factorial(count)
    weighted = dict.fromkeys(names, 0)
    for size in range(count):
        weight = factorial(size) * factorial(count - size - 1)
        for chosen in combinations(names, size):
            before = frozenset(chosen)
            for name in names:
                if name not in before:
                    weighted[name] += weight * (value(before | {name}) - value(before))
    # Towards zero, and what is left to the parts with the largest remainders: alike for both signs.
    signs = {name: 1 if ns >= 0 else -1 for name, ns in weighted.items()}
    shares = {name: signs[name] * (abs(ns) // orders) for name, ns in weighted.items()}
    undivided = value(frozenset(names)) - value(frozenset()) - sum(shares.values()) if names else 0
    step = 1 if undivided >= 0 else -1
    for name in sorted(names, key=lambda name: (-step * (weighted[name] - orders * shares[name]), names.index(name))):
        if not undivided:
            break
        shares[name] += step
        undivided -= step
    return shares


def _subsets(names: Sequence[str]) -> list[tuple[str, ...]]:
    return [chosen for size in range(len(names) + 1) for chosen in combinations(names, size)]


def _order(spark_answer: SparkAnswer) -> tuple[object, ...]:
    """Return what tells two runs apart whichever way round they are given."""
    plan = spark_answer.diagnosis.plan
    return (
        len(plan.stages),
        len(plan.durations),
        spark_answer.diagnosis.span_ns,
        int(plan.durations.sum()),
        spark_answer.log.app_id,
    )


class _Side:
    """A run's plan of work by pair of units."""

    def __init__(self, answer: SparkAnswer, pairs: Sequence[Pair], place_in_pair: int) -> None:
        self.answer, self.plan = answer, answer.diagnosis.plan
        paired = {place for place, pair in enumerate(pairs) if pair.new and pair.base}
        units = units_of_jobs(answer, pairs, place_in_pair)
        self.unit_of_job = {job: unit for job, unit in units.items() if unit in paired}
        self.stages = stages_of(answer, self.unit_of_job)
        table = answer.diagnosis.stages
        stage_bytes = table["read_bytes"] + table["written_bytes"]
        self.bytes = dict(zip(zip(table["stage"], table["stage_attempt"], strict=True), stage_bytes, strict=True))
        self.run: I64 = answer.mapped.schedule.tasks["run"].cast(int).to_numpy()
        self.start = next((place for place, job in enumerate(self.plan.jobs) if _begins(job)), None)

    def driver_ns(self) -> dict[int, int]:
        """Return the driver's time for each pair of units, without that before the first job."""
        times: dict[int, int] = {}
        for place, unit in self.unit_of_job.items():
            job = self.plan.jobs[place]
            times[unit] = times.get(unit, 0) + job.tail_ns + (0 if place == self.start else job.gap_ns)
        for stage in self.plan.stages:
            if stage.job in self.unit_of_job:
                times[self.unit_of_job[stage.job]] += stage.gap_ns
        return times


def _begins(job: JobPlan) -> bool:
    return not job.after and job.begun < 0


class _Hybrid:
    """One run's plan of work, with parts of another's."""

    def __init__(self, kept: _Side, other: _Side) -> None:
        self.kept, self.other = kept, other
        self.pairs: dict[int, int] = {}
        for unit, stages in kept.stages.items():
            self.pairs.update(match_stages(stages, other.stages.get(unit, ())))
        same_cores = kept.answer.diagnosis.cores == other.answer.diagnosis.cores
        self.differing = [name for name in FACTORS if name != "cluster" or not same_cores]
        self.tasks = len(kept.plan.durations)
        # Tasks of the other run have the numbers after those of this one.
        shift, theirs = self.tasks, other.plan
        self.follows = kept.plan.follows | {
            follower + shift: before + shift for follower, before in theirs.follows.items()
        }
        self.offsets = kept.plan.offsets | {task + shift: ns for task, ns in theirs.offsets.items()}

    def end(self, chosen: frozenset[str]) -> int:
        """Return when the application ends with some parts taken from the other run."""
        cluster_side = self.other if "cluster" in chosen else self.kept
        plan = self._driver(self.kept.plan, chosen)
        stages, durations = self._stages(plan.stages, chosen)
        plan = replace(plan, stages=stages, durations=durations, follows=self.follows, offsets=self.offsets)
        return list_schedule(plan, cluster_side.answer.diagnosis.cores)

    def _driver(self, plan: WorkPlan, chosen: frozenset[str]) -> WorkPlan:
        """Let the driver take as long for each unit as in the other run."""
        if "driver" not in chosen:
            return plan
        own_ns, other_ns = self.kept.driver_ns(), self.other.driver_ns()
        jobs, stages = list(plan.jobs), list(plan.stages)
        unit_of = self.kept.unit_of_job
        for place, unit in unit_of.items():
            wanted_ns, had_ns = other_ns.get(unit, 0), own_ns[unit]
            gap = jobs[place].gap_ns if place == self.kept.start else _scaled(jobs[place].gap_ns, wanted_ns, had_ns)
            jobs[place] = replace(jobs[place], gap_ns=gap, tail_ns=_scaled(jobs[place].tail_ns, wanted_ns, had_ns))
        for unit in {unit for unit in other_ns if not own_ns.get(unit)}:
            first_job = min((place for place, unit_of_place in unit_of.items() if unit_of_place == unit), default=None)
            if first_job is not None:
                jobs[first_job] = replace(jobs[first_job], gap_ns=jobs[first_job].gap_ns + other_ns[unit])
        for place, stage in enumerate(stages):
            if stage.job in unit_of:
                unit = unit_of[stage.job]
                stages[place] = replace(stage, gap_ns=_scaled(stage.gap_ns, other_ns.get(unit, 0), own_ns[unit]))
        if self.kept.start is not None and self.other.start is not None:
            start = self.other.plan.jobs[self.other.start].gap_ns
            jobs[self.kept.start] = replace(jobs[self.kept.start], gap_ns=start)
        return replace(plan, jobs=tuple(jobs), stages=tuple(stages), tail_ns=self.other.plan.tail_ns)

    def _stages(self, stages: Sequence[StagePlan], chosen: frozenset[str]) -> tuple[tuple[StagePlan, ...], I64]:
        """Let stages that both runs have take tasks, volume and rate from where they are chosen from."""
        durations = np.concatenate([self.kept.plan.durations, self.other.plan.durations])
        hybrid_stages = list(stages)
        for place, partner in self.pairs.items():
            ours, theirs = self.kept.plan.stages[place], self.other.plan.stages[partner]
            split = (self.other, theirs) if "partitioning" in chosen else (self.kept, ours)
            work = self._work(ours, theirs, chosen)
            tasks = np.asarray(split[1].tasks, np.int64)
            first_task = self.tasks if split[0] is self.other else 0
            run_ns, held_ns = split[0].run[tasks], split[0].plan.durations[tasks]
            durations[first_task + tasks] = held_ns - run_ns + _spread(run_ns, work)
            hybrid_stages[place] = replace(
                hybrid_stages[place], tasks=tuple((first_task + tasks).tolist()), between_ns=split[1].between_ns
            )
        return tuple(hybrid_stages), durations

    def _work(self, ours: StagePlan, theirs: StagePlan, chosen: frozenset[str]) -> int:
        """Return how long a stage's tasks run together."""
        runs = [int(side.run[list(stage.tasks)].sum()) for side, stage in ((self.kept, ours), (self.other, theirs))]
        sizes = [int(side.bytes.get(stage.key) or 0) for side, stage in ((self.kept, ours), (self.other, theirs))]
        rate, volume = int("rate" in chosen), int("volume" in chosen)
        if not all(sizes) or max(runs[k] * sizes[1 - k] // sizes[k] for k in (0, 1)) > _UNLIKE * max(runs):
            # Bytes that only one run counts, or that do not go with the time, say nothing of the volume.
            return runs[rate]
        return _scaled(runs[rate], sizes[volume], sizes[rate])


def _scaled(ns: int, wanted_ns: int, had_ns: int) -> int:
    return ns if wanted_ns == had_ns or not had_ns else ns * wanted_ns // had_ns


def _spread(run: I64, work: int) -> I64:
    """Divide a stage's work among its tasks as they divided their own."""
    own_work = int(run.sum())
    if own_work == work:
        return run
    if not own_work:
        return np.full(len(run), work // max(len(run), 1), np.int64)
    return np.asarray(run.astype(np.float64) * (work / own_work), np.int64)
