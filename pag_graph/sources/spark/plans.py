"""Plans of SQL executions as tables of nodes and metrics."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pag_graph.sources.spark.plan_texts import UNSPLITTABLE, traits
from pag_graph.sources.spark.task_rows import LARGEST
from pag_graph.sources.spark.texts import OTHER, Texts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["Plan", "metric_name", "plan_mark", "plan_nodes", "text_mark"]

# Nodes that only hold other ones, and would hide what people call the plan's steps.
_WRAPPERS = ("InputAdapter", "AdaptiveSparkPlan", "ShuffleQueryStage", "BroadcastQueryStage", "ResultQueryStage")
_DEEPEST = 10_000
_LONGEST = 1_000
"""Characters of a node's text that are held while a log is read; a longer one ends with a mark of all of it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan's nodes, parents before children, and their metrics."""

    nodes: tuple[tuple[int, int | None, str, str, str | None], ...]
    """(node, parent, name, text, name of the code generation stage around it); texts tell versions of a plan apart."""
    metrics: tuple[tuple[int, int, str, str], ...]
    """(node, accumulator, metric, kind)."""
    traits: tuple[tuple[int, str], ...] = ()
    """(node, what its text shows), as `plan_texts.traits` names it."""

    def with_metrics_of(self, other: Plan) -> Plan:
        """Return this plan with the accumulators of an earlier version of it.

        Adaptive execution plans a query again and again, and forgets the accumulators of what is done. A node of the
        earlier plan is the first one here of the same name and text; one that is not here is passed over.
        """
        own_accumulators = {accumulator for _, accumulator, _, _ in self.metrics}
        nodes: dict[tuple[str, str], int] = {}
        for node, _, name, text, _ in self.nodes:
            nodes.setdefault((name, text), node)
        texts = {node: (name, text) for node, _, name, text, _ in other.nodes}
        earlier_metrics = [
            (nodes[texts[node]], accumulator, metric, kind)
            for node, accumulator, metric, kind in other.metrics
            if accumulator not in own_accumulators and texts[node] in nodes
        ]
        return Plan(self.nodes, (*self.metrics, *earlier_metrics), self.traits)

    def node_rows(self, execution: int) -> Iterator[dict[str, Any]]:
        """Yield one row per node, with the columns of `NODES`; `execution` is the number of the query."""
        traits_of: dict[int, list[str]] = {}
        for node, trait in self.traits:
            traits_of.setdefault(node, []).append(trait)
        for node, parent, name, text, scope in self.nodes:
            detail = _DETAIL.search(text)
            yield {
                "execution": execution,
                "node": node,
                "parent": parent,
                "name": name,
                "scope": scope,
                "detail": detail[0] if detail else "",
                "mark": text_mark(text),
                "unsplittable": UNSPLITTABLE in traits_of.get(node, ()),
                "traits": traits_of.get(node, []),
            }

    def metric_rows(self, execution: int, driver: Mapping[int, int]) -> Iterator[dict[str, Any]]:
        """Yield one row per metric of a node.

        Parameters
        ----------
        execution
            Number of the query.
        driver
            Values that the driver gave, by accumulator; null where it gave none.
        """
        for node, accumulator, metric, kind in self.metrics:
            yield {
                "execution": execution,
                "node": node,
                "accumulator": accumulator,
                "metric": metric,
                "kind": kind,
                "driver_value": driver.get(accumulator),
            }


def plan_nodes(root: dict[str, Any], texts: Texts = Texts()) -> Plan:  # noqa: B008 it is frozen
    """Return the nodes of a plan as Spark writes it, without those that only hold others.

    Parameters
    ----------
    root
        ``sparkPlanInfo`` of an event.
    texts
        What to keep of the nodes' names.

    Returns
    -------
    Plan
        Nodes are numbered from 0 in the order of a walk, parents first.
    """
    nodes: list[tuple[int, int | None, str, str, str | None]] = []
    metrics: list[tuple[int, int, str, str]] = []
    node_traits: list[tuple[int, str]] = []
    waiting: list[tuple[Any, int | None, str | None]] = [(root, None, None)]
    while waiting and len(nodes) < _DEEPEST:
        info, parent, scope = waiting.pop()
        if not isinstance(info, dict) or not info:
            continue
        name = str(info.get("nodeName") or "").strip()
        number = len(nodes)
        if name.startswith("WholeStageCodegen"):
            scope = name
        if name.startswith(_WRAPPERS):
            number = parent if parent is not None else -1
        else:
            text = str(info.get("simpleString") or "")
            nodes.append((number, parent, texts.node(name), _held(text), scope))
            node_traits += [(number, trait) for trait in traits(name, text)]
        if name.startswith(("InputAdapter", "Exchange", "BroadcastExchange")):
            scope = None
        if number >= 0:
            for metric in info.get("metrics") or ():
                if isinstance(metric, dict) and _is_id(metric.get("accumulatorId")):
                    kind = str(metric.get("metricType") or "")[:40]
                    metrics.append((number, metric["accumulatorId"], metric_name(metric.get("name")), kind))
        below = None if number < 0 else number
        waiting += [(child, below, scope) for child in reversed(info.get("children") or ())]
    return Plan(tuple(nodes), tuple(metrics), tuple(node_traits))


def text_mark(text: str) -> int:
    """Return a mark of a plan node's text, the same for texts that differ in the ids of expressions and plans only.

    Examples
    --------
    >>> text_mark("Filter (id#7L > 5)") == text_mark("Filter (id#19L > 5)") != text_mark("Filter (id#7L > 6)")
    True
    """
    masked = _EXPRESSION_ID.sub("#", text)
    return int.from_bytes(hashlib.blake2b(masked.encode(errors="replace"), digest_size=8).digest(), signed=True)


def plan_mark(root: Any) -> int:
    """Return a mark of a whole plan, the same for plans that differ only in ids, numbers, dates and temporary places.

    Parameters
    ----------
    root
        ``sparkPlanInfo`` of an event.
    """
    digest = hashlib.blake2b(digest_size=8)
    waiting, visited = [root], 0
    while waiting and visited < _DEEPEST:
        info = waiting.pop()
        if not isinstance(info, dict):
            continue
        visited += 1
        children = [child for child in info.get("children") or () if isinstance(child, dict)]
        text = f"{info.get('nodeName')}|{info.get('simpleString')}"[:_LONGEST]
        digest.update(f"{_VARYING.sub('#', _EXPRESSION_ID.sub('#', text))}|{len(children)};".encode(errors="replace"))
        waiting += reversed(children)
    return int.from_bytes(digest.digest(), signed=True)


_VARYING = re.compile(r"\d+|[0-9a-f]{8}-[0-9a-f-]{27}", re.ASCII)
_EXPRESSION_ID = re.compile(r"#\d+L?|(?:plan_id=|id=#)\d+", re.ASCII)

_DETAIL = re.compile(
    r"\b(?:Inner|Cross|LeftOuter|RightOuter|FullOuter|LeftSemi|LeftAnti|ExistenceJoin|"
    r"SinglePartition|hashpartitioning|rangepartitioning|RoundRobinPartitioning)\b",
    re.ASCII,
)
"""Spark's own words for how a join joins, and how an exchange divides rows."""


def _held(text: str) -> str:
    if len(text) <= _LONGEST:
        return text
    return text[:_LONGEST] + hashlib.blake2b(text.encode(errors="replace"), digest_size=8).hexdigest()


def metric_name(text: Any) -> str:
    """Return the name of a metric as all versions of Spark have it; `OTHER` for one that is not of Spark's shape.

    Examples
    --------
    >>> metric_name("sort time total (min, med, max (stageId: taskId))"), metric_name("number of output rows")
    ('sort time', 'number of output rows')
    """
    words = _METRIC_SUFFIX.sub("", str(text or "")[:200])
    return words if _METRIC.fullmatch(words) else OTHER


_METRIC_SUFFIX = re.compile(r"(?: total)? \(min, med, max.*\)$| total$", re.ASCII)
_METRIC = re.compile(r"[A-Za-z]{1,20}(?: [A-Za-z()]{1,20}){0,7}", re.ASCII)


def _is_id(value: Any) -> bool:
    return type(value) is int and abs(value) <= LARGEST
