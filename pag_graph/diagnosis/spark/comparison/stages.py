"""Which stages of one run belong to which of another, within units that belong together."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

from pag_graph.diagnosis.spark.comparison.matching import root_of
from pag_graph.sources.spark.operators import node_metrics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pag_graph.diagnosis.spark.answer import SparkAnswer
    from pag_graph.diagnosis.spark.comparison.matching import Pair

__all__ = ["StageUnit", "match_stages", "stages_of", "units_of_jobs"]

_ALIKE = 0.5
"""Least part of the nodes of two stages that both have, if not all are the same."""


class StageUnit(NamedTuple):
    """A stage attempt in the plan of a run."""

    place: int
    """In the plan's stages."""
    nodes: tuple[str, ...]
    """Plan nodes that it worked for, else its steps, else the name of its job; sorted."""


def units_of_jobs(answer: SparkAnswer, pairs: Sequence[Pair], side: int) -> dict[int, int]:
    """Return for each job of a run (by index) the place of its pair of units, where it is in one.

    Parameters
    ----------
    answer
        Of one run.
    pairs
        Units of both runs.
    side
        0 for the new run, 1 for the base.
    """
    places = {(unit.kind, unit.number): place for place, pair in enumerate(pairs) if (unit := pair[side]) is not None}
    roots = root_of(answer)
    unit_of_job = {}
    for index, job in enumerate(answer.mapped.schedule.jobs):
        query = None if job.execution is None else roots.get(job.execution, job.execution)
        place = places.get(("query", query)) if query is not None else None
        place = places.get(("job", index)) if place is None else place
        if place is not None:
            unit_of_job[index] = place
    return unit_of_job


def stages_of(answer: SparkAnswer, unit_of_job: dict[int, int]) -> dict[int, list[StageUnit]]:
    """Return the stages of each pair of units, in the order of the run's plan.

    Parameters
    ----------
    answer
        Of one run.
    unit_of_job
        Pairs by the jobs of this run, as `units_of_jobs` returns them; stages of other jobs are left out.

    Returns
    -------
    dict
        Stages by pair. The nodes of a stage are those of its plan that it worked for, else the scopes of its RDDs, else
        the name of its job.
    """
    jobs = answer.mapped.schedule.jobs
    scopes = {(number, attempt): list(steps or ()) for number, attempt, steps in _scopes(answer)}
    nodes = _nodes(answer)
    unit_stages: defaultdict[int, list[StageUnit]] = defaultdict(list)
    for place, stage in enumerate(answer.diagnosis.plan.stages):
        unit = unit_of_job.get(stage.job)
        if unit is None:
            continue
        stage_nodes = nodes.get(stage.key) or scopes.get(stage.key) or [jobs[stage.job].name]
        unit_stages[unit].append(StageUnit(place, tuple(sorted(stage_nodes))))
    return dict(unit_stages)


def match_stages(new: Sequence[StageUnit], base: Sequence[StageUnit]) -> list[tuple[int, int]]:
    """Pair the stages of two units.

    Stages with the same nodes go together in the order in which they ran; of the others those that have most in common,
    at least half; what is left goes together in its order if both have as many. The other way round the same stages go
    together.

    Parameters
    ----------
    new, base
        Stages of units that belong together, in the order in which they ran.

    Returns
    -------
    list of (int, int)
        Places in the plans of both runs.
    """
    waiting: defaultdict[tuple[str, ...], list[StageUnit]] = defaultdict(list)
    for stage in base:
        waiting[stage.nodes].append(stage)
    pairs: list[tuple[int, int]] = []
    new_alone = []
    for stage in new:
        if waiting[stage.nodes]:
            pairs.append((stage.place, waiting[stage.nodes].pop(0).place))
        else:
            new_alone.append(stage)
    paired = {place for _, place in pairs}
    base_alone = [stage for stage in base if stage.place not in paired]
    likely = sorted(
        (-_common(new_stage, base_stage), abs(i - j), i + j, min(i, j), i, j)
        for i, new_stage in enumerate(new_alone)
        for j, base_stage in enumerate(base_alone)
        if _common(new_stage, base_stage) >= _ALIKE
    )
    left, right = set(range(len(new_alone))), set(range(len(base_alone)))
    for *_, i, j in likely:
        if i in left and j in right:
            left.discard(i)
            right.discard(j)
            pairs.append((new_alone[i].place, base_alone[j].place))
    if len(left) == len(right):
        pairs += [(new_alone[i].place, base_alone[j].place) for i, j in zip(sorted(left), sorted(right), strict=True)]
    return sorted(pairs)


def _common(stage: StageUnit, partner: StageUnit) -> float:
    common, either = Counter(stage.nodes) & Counter(partner.nodes), Counter(stage.nodes) | Counter(partner.nodes)
    return common.total() / max(either.total(), 1)


def _scopes(answer: SparkAnswer) -> list[tuple[int, int, list[str]]]:
    return list(answer.log.stages.select("stage", "stage_attempt", "scopes").iter_rows())


def _nodes(answer: SparkAnswer) -> dict[tuple[int, int], list[str]]:
    log = answer.log
    if not log.stage_metrics.height or not log.nodes.height:
        return {}
    rows = node_metrics(answer.mapped.schedule).unique(["stage", "stage_attempt", "execution", "node"])
    names_of_stage: defaultdict[tuple[int, int], list[str]] = defaultdict(list)
    for stage, attempt, name in rows.select("stage", "stage_attempt", "name").iter_rows():
        names_of_stage[stage, attempt].append(name)
    return dict(names_of_stage)
