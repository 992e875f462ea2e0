"""The plans of all queries as trees of nodes, each with what the log counted and timed for it, by stage."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from pag_graph.diagnosis.spark.timers import UNITS
from pag_graph.sources.spark.operators import metrics_once, node_metrics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pag_graph.sources.spark.schedule import Schedule

    StageKey = tuple[int, int]

__all__ = ["PlanNode", "PlanView"]

_ROWS = ("number of output rows", "records read", "shuffle records written")
"""Metrics that count the rows which come out of a node, the best first."""


@dataclass(slots=True, eq=False, kw_only=True)
class PlanNode:
    """A node of a query's last plan."""

    execution: int
    node: int
    name: str
    detail: str
    """Spark's word for how it joins or divides rows; empty for others."""
    mark: int
    """Tells its text from others, apart from the ids in it."""
    traits: tuple[str, ...] = ()
    """What else its text shows (`plan_texts.traits`)."""
    generated: bool = False
    """Whether it runs in code that was generated for several nodes."""
    parent: PlanNode | None = None
    children: list[PlanNode] = field(default_factory=list)
    counted: dict[str, dict[StageKey, int]] = field(default_factory=dict)
    """Metric and stage attempt to what its tasks added; times in nanoseconds."""
    updates: dict[StageKey, int] = field(default_factory=dict)
    """Stage attempt to the most tasks that added to one of the node's metrics; only those with any."""
    driver: dict[str, int] = field(default_factory=dict)
    """Metric to what the driver gave it; times in nanoseconds."""

    @property
    def label(self) -> str:
        """What people call it."""
        return f"{self.name} of query {self.execution}"

    def total(self, metric: str) -> int:
        """Return a metric over all stages and what the driver gave it: in nanoseconds, bytes, or as a count."""
        return sum(self.counted.get(metric, {}).values()) + self.driver.get(metric, 0)

    def has(self, metric: str) -> bool:
        """Return whether anything was counted for a metric, be it 0."""
        return metric in self.counted or metric in self.driver

    @property
    def rows(self) -> int | None:
        """Rows that came out of it: its own count, else that of the node below; None where nobody counted."""
        node: PlanNode | None = self
        while node is not None:
            for metric in _ROWS:
                if node.has(metric):
                    return node.total(metric)
            node = node.children[0] if len(node.children) == 1 else None
        return None

    def below(self) -> Iterator[PlanNode]:
        """Yield it and all nodes below it, parents first."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += reversed(node.children)

    def above(self) -> Iterator[PlanNode]:
        """Yield the nodes above it, the nearest first."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent


class PlanView:
    """All plans of a log.

    Parameters
    ----------
    schedule
        Of one log.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._nodes: dict[tuple[int, int], PlanNode] = {}
        log = schedule.log
        columns = ("execution", "node", "parent", "name", "detail", "mark", "traits", "scope")
        for execution, node, parent, name, detail, mark, traits, scope in log.nodes.select(columns).iter_rows():
            plan_node = PlanNode(
                execution=execution, node=node, name=name, detail=detail, mark=mark, traits=tuple(traits)
            )
            plan_node.generated = scope is not None
            self._nodes[execution, node] = plan_node
            above = self._nodes.get((execution, parent))
            if above is not None:
                plan_node.parent = above
                above.children.append(plan_node)
        driven = metrics_once(log).select("execution", "node", "metric", "kind", "driver_value")
        for execution, node, metric, kind, driver_value in driven.iter_rows():
            if driver_value is not None:
                driver = self._nodes[execution, node].driver
                driver[metric] = driver.get(metric, 0) + driver_value * UNITS.get(kind, 1)
        self._count(schedule)

    def _count(self, schedule: Schedule) -> None:
        metrics = node_metrics(schedule).select(
            "stage", "stage_attempt", "execution", "node", "metric", "kind", "value", "updates"
        )
        for stage, attempt, execution, node, metric, kind, added, updates in metrics.iter_rows():
            plan_node = self._nodes[execution, node]
            if kind not in _COUNTED:
                continue
            key = (int(stage), int(attempt))
            by_stage = plan_node.counted.setdefault(metric, {})
            by_stage[key] = by_stage.get(key, 0) + max(added, 0) * UNITS.get(kind, 1)
            if updates or (updates is None and added):
                plan_node.updates[key] = max(plan_node.updates.get(key, 0), updates or 1)

    def __iter__(self) -> Iterator[PlanNode]:
        """Yield all nodes, by query, parents first."""
        return iter(self._nodes.values())

    def named(self, *names: str) -> Iterator[PlanNode]:
        """Yield the nodes with one of some names."""
        return (node for node in self._nodes.values() if node.name in names)

    @cached_property
    def roots(self) -> list[PlanNode]:
        """The uppermost node of every plan."""
        return [node for node in self if node.parent is None]

    @cached_property
    def of_stage(self) -> dict[StageKey, list[PlanNode]]:
        """The nodes that the tasks of each stage attempt worked for."""
        stage_nodes: dict[StageKey, list[PlanNode]] = {}
        for node in self:
            for key in node.updates:
                stage_nodes.setdefault(key, []).append(node)
        return stage_nodes

    @cached_property
    def run_ns(self) -> dict[StageKey, int]:
        """Run time of each stage attempt's tasks."""
        tasks = self._schedule.tasks.select("stage", "stage_attempt", "run")
        rows = tasks.group_by("stage", "stage_attempt").sum().iter_rows()
        return {(int(stage), int(attempt)): max(int(run), 1) for stage, attempt, run in rows}

    def stages(self, nodes: Iterator[PlanNode] | list[PlanNode]) -> set[StageKey]:
        """Return the stage attempts that worked for any of some nodes, as far as tasks of theirs are in the log."""
        return {key for node in nodes for key in node.updates if key in self.run_ns}


_COUNTED = frozenset({"sum", "size", "timing", "nsTiming"})
"""Kinds of metrics that add up; averages do not."""
