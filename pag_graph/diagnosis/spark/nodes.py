"""Time of the critical path, and of all tasks, by plan node of the SQL queries: rows that add up exactly.

A task on the path divides by its own parts and its own timers, not by its stage's: waiting for shuffle blocks and
shuffle writes go to the exchanges, garbage collection and overhead to rows of their own, work to what its nodes took by
their timers (`timers.py`). The rest of the work is its stage's nodes' together, and is never spread over them.

Definitions stand in `docs/spark.md`, "The answers".
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from pag_graph.diagnosis.spark.timers import TIMERS, UNITS, Meaning
from pag_graph.sources.spark.operators import node_metrics
from pag_graph.sources.spark.task_rows import widened

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pag_graph.sources.spark.mapping import Mapped

    StageKey = tuple[int, int]
    NodeKey = tuple[int, int]

__all__ = ["PlanRows", "RowKey", "apportion", "path_tasks", "plan_rows", "self_times"]

_FETCH, _WRITE = "fetch wait time", "shuffle write time"
_OVERHEAD = "launching, loading and finishing tasks"
_GC = "garbage collection"
_PARTS = {"processing": "work", "input_wait": "fetch_wait", "io": "write", "gc": "gc"}
"""Activities of a task, and the columns of its parts; all others are overhead."""


class RowKey(NamedTuple):
    """What a row is about: a node of a query's plan, or time that is of none."""

    query: int | None
    node: int | None
    """Number of the node in the query's last plan; None where a row is not of one node."""
    name: str
    kind: str
    """``node``, ``shared`` (a stage's nodes together), ``gc``, ``overhead``, ``driver`` or ``other``."""


class PlanRows(NamedTuple):
    """Rows by plan node."""

    rows: list[dict[str, Any]]
    """`query`, `node`, `name`, `kind`, `path_ns`, `task_ns` and `measured`; most time on the path first. `path_ns` adds
    up to the path, `task_ns` to what tasks held cores."""
    pieces: pl.DataFrame
    """The path by row, activity, and what it worked for: `query` of the work (null for none), `job` (index, likewise),
    `of_query`, `node`, `name` and `kind` of the row, `activity` and `ns`; adds up to the path."""
    scaled: int
    """Tasks of the path whose timers add up to more than their work: they were scaled."""


@dataclass(slots=True)
class _Stage:
    """Metrics of a stage attempt's plan nodes."""

    query: int | None
    metrics: dict[int, tuple[NodeKey, str, int]] = field(default_factory=dict)
    """Accumulator to node, timer, and nanoseconds of its unit; timers only."""
    names: dict[NodeKey, str] = field(default_factory=dict)
    totals: dict[int, int] = field(default_factory=dict)
    """Accumulator to what all tasks added."""

    def shared(self, label: str) -> RowKey:
        """Return the row of what nothing times."""
        if not self.names:
            return RowKey(self.query, None, label, "shared")
        nodes = [name for _, name in sorted(self.names.items(), reverse=True)]
        query = next(iter(self.names))[0]
        return RowKey(query, None, " + ".join(dict.fromkeys(nodes)), "shared")

    def node(self, key: NodeKey) -> RowKey:
        """Return the row of a node."""
        return RowKey(key[0], key[1], self.names[key], "node")


def path_tasks(mapped: Mapped, steps: pl.DataFrame) -> pl.DataFrame:
    """Return the tasks that the path leads through.

    Parameters
    ----------
    mapped
        A mapped log.
    steps
        Its critical path.

    Returns
    -------
    pl.DataFrame
        One row per step within a task: `step`, and `row` of the task in the schedule's tasks.
    """
    tasks = mapped.schedule.tasks
    task_spans = tasks.select("core", "receipt", "free").with_row_index("row").sort("receipt", maintain_order=True)
    return (
        steps.filter(pl.col("operator").is_in(list(mapped.operators.stages.values())))
        .select("step", "start_ns", core=pl.col("worker").cast(tasks.schema["core"]) - mapped.lanes)
        .sort("start_ns")
        .join_asof(
            task_spans, left_on="start_ns", right_on="receipt", by="core", strategy="backward", check_sortedness=False
        )
        .filter(pl.col("start_ns") < pl.col("free"))
        .select("step", "row")
        .sort("step")
    )


def plan_rows(
    mapped: Mapped, steps: pl.DataFrame, in_tasks: pl.DataFrame, updates: Mapping[int, Mapping[int, int]]
) -> PlanRows:
    """Divide the path, and the time of all tasks, among plan nodes.

    Parameters
    ----------
    mapped
        A mapped log.
    steps
        Its critical path, with `what` and `query` of each step.
    in_tasks
        Which of its steps are in which task (`path_tasks`).
    updates
        Task number to accumulator to what it added, for the path's tasks (`read_task_updates`). For a task without any
        its stage's sums count.

    Returns
    -------
    PlanRows
        Rows that add up to the path, and to the tasks' time, to the nanosecond.
    """
    divider = _Divider(mapped)
    pieces: Counter[tuple[int | None, int | None, RowKey, str]] = Counter()
    scaled: set[int] = set()
    in_task = dict(in_tasks.iter_rows())
    tasks = widened(mapped.schedule.tasks.select("task", "stage", "stage_attempt", "work"))
    columns = ("step", "type", "duration_ns", "what", "query", "operator", "activity")
    for step, kind, duration, purpose, query, operator, activity in steps.select(columns).iter_rows():
        task_row = in_task.get(step)
        if not duration:
            continue
        divided: Counter[RowKey] = Counter()
        if task_row is None:
            divided[_outside(purpose, query)] = duration
        else:
            task, stage, attempt, work = tasks.row(task_row)
            phase = _PARTS.get(kind, "overhead")
            if divider.divide((stage, attempt), phase, duration, updates.get(task), work, divided):
                scaled.add(task)
        working = divider.works_for.get(operator, (None, None))
        for key, ns in divided.items():
            pieces[*working, key, activity] += ns
    path: Counter[RowKey] = Counter()
    for (_, _, key, _), ns in pieces.items():
        path[key] += ns
    all_tasks = divider.all_tasks()
    rows = [
        {**key._asdict(), "path_ns": path[key], "task_ns": all_tasks[key], "measured": key.kind in {"node", "gc"}}
        for key in path.keys() | all_tasks.keys()
    ]
    rows.sort(key=lambda row: (-row["path_ns"], -row["task_ns"], str(row["query"]), str(row["node"]), row["name"]))
    return PlanRows(rows, _pieces(pieces), len(scaled))


def _pieces(pieces: Mapping[tuple[int | None, int | None, RowKey, str], int]) -> pl.DataFrame:
    rows = [(query, job, *key, activity, ns) for (query, job, key, activity), ns in pieces.items() if ns]
    return pl.DataFrame(rows, schema=_PIECES, orient="row")


_PIECES = {
    "query": pl.Int64,
    "job": pl.Int64,
    "of_query": pl.Int64,
    "node": pl.Int64,
    "name": pl.String,
    "kind": pl.String,
    "activity": pl.String,
    "ns": pl.Int64,
}


def _outside(purpose: str, query: str) -> RowKey:
    """Return the row of a step that is in no task."""
    if purpose != "driver":
        return RowKey(None, None, purpose, "other")
    number = query.partition(" ")[2].partition(":")[0]
    if not number.isdigit():
        return RowKey(None, None, "driver program", "driver")
    return RowKey(int(number), None, f"driver of query {number}", "driver")


def _stages(mapped: Mapped) -> tuple[dict[StageKey, _Stage], dict[NodeKey, int | None]]:
    schedule = mapped.schedule
    stages = {key: _Stage(schedule.jobs[job].execution) for key, job in schedule.stage_jobs.items()}
    log = schedule.log
    parents = {
        (query, number): parent for query, number, parent in log.nodes.select("execution", "node", "parent").iter_rows()
    }
    columns = ("stage", "stage_attempt", "execution", "node", "name", "accumulator", "metric", "kind", "value")
    if log.stage_metrics.height and log.nodes.height:
        for stage, attempt, execution, node, name, accumulator, metric, kind, added in (
            node_metrics(schedule).select(columns).iter_rows()
        ):
            stage_metrics = stages.setdefault((stage, attempt), _Stage(execution))
            stage_metrics.names[execution, node] = name
            if kind in UNITS and TIMERS.get(metric) in {Meaning.EXCLUSIVE, Meaning.INCLUSIVE}:
                stage_metrics.metrics[accumulator] = ((execution, node), metric, UNITS[kind])
                stage_metrics.totals[accumulator] = added
    for stage, attempt in schedule.tasks.select("stage", "stage_attempt").unique().iter_rows():
        stages.setdefault((stage, attempt), _Stage(None))
    return stages, parents


def _works_for(mapped: Mapped) -> dict[int, tuple[int | None, int | None]]:
    """Return the query and the job that each operator works for."""
    operators, schedule = mapped.operators, mapped.schedule
    works_for: dict[int, tuple[int | None, int | None]] = {
        number: (execution, None) for execution, number in operators.executions.items()
    }
    works_for |= {number: (schedule.jobs[job].execution, job) for job, number in enumerate(operators.jobs)}
    for key, number in operators.stages.items():
        job = schedule.stage_jobs[key]
        works_for[number] = (schedule.jobs[job].execution, job)
    return works_for


class _Divider:
    """Divides the time of tasks among the plan nodes of their stages."""

    def __init__(self, mapped: Mapped) -> None:
        self.stages, self.parents = _stages(mapped)
        self.labels = {key: mapped.operators.names[number] for key, number in mapped.operators.stages.items()}
        self.works_for = _works_for(mapped)
        held_ns = (pl.col("free") - pl.col("receipt")).alias("held")
        self.sums = {
            (row["stage"], row["stage_attempt"]): row
            for row in widened(mapped.schedule.tasks.with_columns(held_ns))
            .group_by("stage", "stage_attempt", maintain_order=True)
            .agg(pl.col("held", "work", "fetch_wait", "write", "gc").sum())
            .iter_rows(named=True)
        }

    def divide(
        self,
        key: StageKey,
        phase: str,
        duration: int,
        updates: Mapping[int, int] | None,
        work: int,
        rows: Counter[RowKey],
    ) -> bool:
        """Add a stretch of one part of a task to its rows; say whether the task's timers exceed its work.

        A task whose own values are not known divides as its stage does.
        """
        stage = self.stages[key]
        if phase in {"gc", "overhead"}:
            rows[RowKey(None, None, _GC if phase == "gc" else _OVERHEAD, phase)] += duration
            return False
        if updates is None:
            updates, work = stage.totals, self.sums[key]["work"]
        timed = [(*stage.metrics[number], value) for number, value in updates.items() if number in stage.metrics]
        weights: Counter[RowKey] = Counter()
        if phase != "work":
            timer_name = _FETCH if phase == "fetch_wait" else _WRITE
            for node, metric, unit, value in timed:
                if metric == timer_name and value > 0:
                    weights[stage.node(node)] += unit * value
            other_work_ns = 0 if weights else 1
        else:
            timers = (
                (timed_node, timer, unit * max(value, 0))
                for timed_node, timer, unit, value in timed
                if timer not in {_FETCH, _WRITE}
            )
            weights.update({stage.node(node): ns for node, ns in _own_times(timers, self.parents).items()})
            other_work_ns = work - weights.total() if weights else 1
        if other_work_ns > 0:
            weights[stage.shared(self.labels.get(key, _OVERHEAD))] += other_work_ns
        rows.update(apportion(duration, weights))
        return other_work_ns < 0

    def all_tasks(self) -> Counter[RowKey]:
        """Divide the time of all tasks, stage by stage."""
        rows: Counter[RowKey] = Counter()
        for key, stage_sums in self.sums.items():
            times_ns = {name: stage_sums[name] for name in ("work", "fetch_wait", "write", "gc")}
            times_ns["overhead"] = stage_sums["held"] - sum(times_ns.values())
            for phase, ns in times_ns.items():
                if ns:
                    self.divide(key, phase, ns, None, 0, rows)
        return rows


def apportion(total: int, weights: Mapping[RowKey, int]) -> dict[RowKey, int]:
    """Divide a whole number in the proportion of weights, with the largest remainders rounded up.

    Parameters
    ----------
    total
        What to divide; at least 0.
    weights
        Per row; none below 0, and not all of them 0.

    Returns
    -------
    dict
        The part of each row; together they are the whole. Of rows with like remainders the first by their text is
        rounded up.

    Examples
    --------
    >>> a, b = (RowKey(0, number, "", "node") for number in (1, 2))
    >>> list(apportion(10, {a: 1, b: 2}).values())
    [3, 7]
    """
    weight_sum = sum(weights.values())
    shares = {key: divmod(total * weight, weight_sum) for key, weight in weights.items()}
    left_over = total - sum(quotient for quotient, _ in shares.values())
    rounded_up = sorted(shares, key=lambda key: (-shares[key][1], str(key)))[:left_over]
    return {key: quotient + (key in rounded_up) for key, (quotient, _) in shares.items()}


def self_times(metrics: pl.DataFrame, parents: Mapping[NodeKey, int | None]) -> dict[int, int]:
    """Return how long each plan node of a stage itself took.

    Parameters
    ----------
    metrics
        One row per metric of one stage attempt: `execution`, `node`, `metric`, `kind` and `value`.
    parents
        Execution and node to the node that reads it.

    Returns
    -------
    dict
        Node to nanoseconds, summed over the stage's tasks, of the nodes that have a timer: an inclusive one without
        what is timed below it in the same stage, but not less than 0.
    """
    rows = metrics.select("execution", "node", "metric", "kind", "value").iter_rows()
    timers = (
        ((execution, node), metric, max(value, 0) * UNITS[kind])
        for execution, node, metric, kind, value in rows
        if kind in UNITS
    )
    return {node: ns for (_, node), ns in _own_times(timers, parents).items()}


def _own_times(timers: Iterable[tuple[NodeKey, str, int]], parents: Mapping[NodeKey, int | None]) -> dict[NodeKey, int]:
    """Return how long nodes took, by timers of node, name and nanoseconds."""
    exclusive: dict[NodeKey, int] = {}
    inclusive: dict[NodeKey, int] = {}
    for node, metric, ns in timers:
        meaning = TIMERS.get(metric)
        if meaning is Meaning.EXCLUSIVE:
            exclusive[node] = exclusive.get(node, 0) + ns
        elif meaning is Meaning.INCLUSIVE:
            inclusive[node] = max(inclusive.get(node, 0), ns)
    own_ns: dict[NodeKey, int] = {}
    below: dict[NodeKey, int] = {}
    # Children have higher numbers than their parents.
    for node in sorted(exclusive.keys() | inclusive.keys(), reverse=True):
        above_below = inclusive.get(node, 0) - below.get(node, 0) - exclusive.get(node, 0)
        own_ns[node] = exclusive.get(node, 0) + max(0, above_below)
        above = parents.get(node)
        while above is not None:
            reader = (node[0], above)
            below[reader] = below.get(reader, 0) + own_ns[node]
            above = parents.get(reader)
    return {node: ns for node, ns in sorted(own_ns.items()) if ns}
