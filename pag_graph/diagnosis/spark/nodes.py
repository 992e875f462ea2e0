"""Time of the critical path by plan node of the SQL queries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from pag_graph.sources.spark.operators import node_metrics

if TYPE_CHECKING:
    from pag_graph.sources.spark.mapping import Mapped

__all__ = ["node_shares"]

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
    metrics = node_metrics(mapped.schedule)
    runs = {
        (int(s), int(a)): int(run)
        for s, a, run in mapped.schedule.tasks.group_by("stage", "stage_attempt").agg(pl.col("run").sum()).iter_rows()
    }
    out: dict[tuple[int | None, str, bool], int] = {}
    for (stage, attempt), own in metrics.group_by("stage", "stage_attempt", maintain_order=True):
        key = (int(stage), int(attempt))
        time = on_path.get(operators.stages.get(key, -1), 0)
        if not time:
            continue
        execution = int(own["execution"][0])
        run, left = max(runs.get(key, 0), 1), time
        timed = (
            own.filter(pl.col("kind").is_in(list(_UNITS)))
            .with_columns(ns=pl.col("value") * pl.col("kind").replace_strict(_UNITS, return_dtype=pl.Int64))
            .group_by("node", "name")
            .agg(pl.col("ns").max())
            .sort("ns", "node", descending=[True, False])
        )
        for _, name, ns in timed.iter_rows():
            part = min(left, int(time * min(max(ns, 0) / run, 1.0)))
            if part:
                label = (execution, name, True)
                out[label] = out.get(label, 0) + part
                left -= part
        if left:
            names = " + ".join(dict.fromkeys(own.sort("node", descending=True)["name"].to_list()))
            out[execution, names, False] = out.get((execution, names, False), 0) + left
    return [
        {"query": query, "node": node, "path_ns": ns, "measured": measured}
        for (query, node, measured), ns in sorted(out.items(), key=lambda item: (-item[1], str(item[0])))
    ]
