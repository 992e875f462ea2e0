"""Time of the critical path by plan node of the SQL queries.

Spark's timers mean four things. Only two of them say how long a node itself took; the others are not used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from pag_graph.sources.spark.operators import node_metrics

if TYPE_CHECKING:
    from pag_graph.sources.spark.mapping import Mapped

__all__ = ["EXCLUSIVE", "INCLUSIVE", "node_shares", "self_times"]

EXCLUSIVE = frozenset(
    {
        *("scan time", "sort time", "fetch wait time", "shuffle write time", "task commit time", "exclusive time"),
        *("time to execute Python code", "time to start Python workers", "time to initialize Python workers"),
        "time to run Python workers",
    }
)
"""Timers of what a node did itself."""

INCLUSIVE = frozenset({"time in aggregation build", "time to build hash map", "cumulative time"})
"""Timers that run while a node pulls its input: what is timed below it is in them as well."""

# Not used: "duration" of generated code, which runs from its construction to its exhaustion, and the times of requests
# that are under way at the same time ("remote reqs duration", those of cloud stores).

_UNITS = {"timing": 1_000_000, "nsTiming": 1}


def node_shares(mapped: Mapped, steps: pl.DataFrame) -> list[dict[str, Any]]:
    """Divide the path's time in stages among the plan nodes that the stages worked for.

    Spark measures the time of some nodes only (scans, sorts, aggregates, exchanges), summed over a stage's tasks. Of a
    stage's time on the path each such node gets its part of the stage's run time; what is left over belongs to all of
    the stage's nodes together, and is given under their names joined with " + ".

    Parameters
    ----------
    mapped
        A mapped log.
    steps
        Its critical path.

    Returns
    -------
    list of dict
        Rows of query, node, path_ns, measured; most time first. They add up to the path's time in stages of queries.
    """
    log, operators = mapped.schedule.log, mapped.operators
    on_path = dict(
        steps.filter(pl.col("operator").is_not_null()).group_by("operator").agg(pl.col("duration_ns").sum()).iter_rows()
    )
    if not log.stage_metrics.height or not log.nodes.height:
        return []
    runs = {
        (int(s), int(a)): int(run)
        for s, a, run in mapped.schedule.tasks.group_by("stage", "stage_attempt").agg(pl.col("run").sum()).iter_rows()
    }
    parents = {(e, n): p for e, n, p in log.nodes.select("execution", "node", "parent").iter_rows()}
    out: dict[tuple[int | None, str, bool], int] = {}
    for (stage, attempt), own in node_metrics(mapped.schedule).group_by("stage", "stage_attempt", maintain_order=True):
        key = (int(stage), int(attempt))
        time = left = on_path.get(operators.stages.get(key, -1), 0)
        if not time:
            continue
        times = self_times(own, parents)
        names = dict(own.select("node", "name").iter_rows())
        execution = int(own["execution"][0])
        # Timers can add up to more than the tasks ran: they are scaled then.
        whole = max(runs.get(key, 0), sum(times.values()), 1)
        for node, ns in times.items():
            part = time * ns // whole
            if part:
                label = (execution, names[node], True)
                out[label] = out.get(label, 0) + part
                left -= part
        if left:
            shared = " + ".join(dict.fromkeys(own.sort("node", descending=True)["name"].to_list()))
            out[execution, shared, False] = out.get((execution, shared, False), 0) + left
    return [
        {"query": query, "node": node, "path_ns": ns, "measured": measured}
        for (query, node, measured), ns in sorted(out.items(), key=lambda item: (-item[1], str(item[0])))
    ]


def self_times(metrics: pl.DataFrame, parents: dict[tuple[int, int], int | None]) -> dict[int, int]:
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
    timed = metrics.filter(pl.col("kind").is_in(list(_UNITS))).with_columns(
        ns=pl.max_horizontal("value", 0) * pl.col("kind").replace_strict(_UNITS, default=0, return_dtype=pl.Int64)
    )
    exclusive: dict[int, int] = {}
    inclusive: dict[int, int] = {}
    for node, metric, ns in timed.select("node", "metric", "ns").iter_rows():
        if metric in EXCLUSIVE:
            exclusive[node] = exclusive.get(node, 0) + ns
        elif metric in INCLUSIVE:
            inclusive[node] = max(inclusive.get(node, 0), ns)
    execution = int(metrics["execution"][0])
    own: dict[int, int] = {}
    below: dict[int, int] = {}
    # Children have higher numbers than their parents.
    for node in sorted(exclusive.keys() | inclusive.keys(), reverse=True):
        own[node] = exclusive.get(node, 0) + max(
            0, inclusive.get(node, 0) - below.get(node, 0) - exclusive.get(node, 0)
        )
        above = parents.get((execution, node))
        while above is not None:
            below[above] = below.get(above, 0) + own[node]
            above = parents.get((execution, above))
    return {node: ns for node, ns in sorted(own.items()) if ns}
