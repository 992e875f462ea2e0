"""Functions in Python that queries send their rows to."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pag_graph.diagnosis.spark.changes import Change, of_program, of_setting
from pag_graph.diagnosis.spark.look import Cause, Look, seconds
from pag_graph.sources.spark.settings import setting

if TYPE_CHECKING:
    from pag_graph.diagnosis.spark.plan_view import PlanNode

__all__ = ["EXECUTES", "PYTHON", "python_code"]

PYTHON = re.compile(r"\w*(?:Python|Pandas|InArrow|ArrowEval)\w*", re.ASCII)
"""Plan nodes that send rows to Python."""

EXECUTES = "time to execute Python code"
"""Spark's timer of functions in Python, since 4.0."""
_RUNS = "time to run Python workers"
_ARROW = "spark.sql.execution.pythonUDF.arrow.enabled"


def python_code(look: Look) -> list[Cause]:
    """Find queries whose tasks spend much of their time in Python functions.

    Where the log has Spark's timers (4.x), the time in which Python ran is a cause if it matters by itself; what can be
    saved at most is all that Python takes in these stages, its start included. In other logs it is the tasks' run time
    without processor time and measured waits: the JVM does nothing of its own while Python computes.

    Cause: ``python_udf``.
    """
    nodes = [node for node in look.plans if PYTHON.fullmatch(node.name) and node.updates]
    if not nodes:
        return []
    timed = any(node.has(EXECUTES) for node in nodes)
    executing: dict[tuple[int, int], int] = {}
    running: dict[tuple[int, int], int] = {}
    for node in nodes:
        for key in look.plans.stages([node]):
            python_ns = node.counted.get(EXECUTES, {}).get(key, 0) if timed else 0
            executing[key] = executing.get(key, 0) + python_ns
            running[key] = running.get(key, 0) + max(python_ns, node.counted.get(_RUNS, {}).get(key, 0))
    if not timed:
        executing = running = {key: _not_in_the_jvm(look, key) for key in executing}
    run = {key: look.plans.run_ns[key] for key in executing}
    share = sum(executing.values()) / max(sum(run.values()), 1)
    if share < look.limits.python_share:
        return []
    keys = list(executing)
    at_least = look.cut(keys, lambda key: executing[key] / run[key])
    if not look.matters(look.saved_in(keys, at_least)):
        return []
    all_python = look.cut(keys, lambda key: running[key] / run[key])
    saved = look.saved_in(keys, all_python)
    return [_cause(look, nodes, executing, running, saved, all_python, timed=timed)]


def _not_in_the_jvm(look: Look, key: tuple[int, int]) -> int:
    """Return the run time of a stage's tasks in which the JVM neither computed nor did what is measured."""
    stage_tasks = look.by_stage[key]
    if not (stage_tasks["cpu_ns"] > 0).any():
        return 0
    outside_ns = (
        stage_tasks["run"]
        - stage_tasks["cpu_ns"]
        - stage_tasks["fetch_wait"]
        - stage_tasks["gc"]
        - stage_tasks["write"]
    )
    return int(outside_ns.clip(lower_bound=0).sum())


def _cause(
    look: Look,
    nodes: list[PlanNode],
    executing: dict[tuple[int, int], int],
    running: dict[tuple[int, int], int],
    saved: int,
    changed: Any,
    *,
    timed: bool,
) -> Cause:
    worst = max(executing, key=lambda key: (executing[key], key))
    run = sum(look.plans.run_ns[key] for key in executing)
    names = sorted({node.name for node in nodes if worst in node.updates})
    further = f" and {len(executing) - 1} more" if len(executing) > 1 else ""
    python_ns = sum(executing.values())
    doing = "executing Python code" if timed else "outside of the JVM, while Python works"
    text = (
        f"{look.stage_name(*worst)}{further}: {python_ns / run:.0%} of the tasks' run time ({seconds(python_ns)} of"
        f" {seconds(run)}) went into {doing} ({', '.join(names)})."
    )
    node = max((node for node in nodes if worst in node.updates), key=lambda node: node.total(EXECUTES))
    place = f"stage {worst[0]}, {node.label}"
    proposed: list[Change] = [of_program("the function", node.name, "built-in functions", place)]
    if node.name == "BatchEvalPython" and setting(look.schedule.log, _ARROW, node.execution).value == "false":
        proposed.append(of_setting(look.schedule.log, _ARROW, "true", query=node.execution))
    signal = {
        "python_ns": python_ns,
        "python_workers_ns": sum(running.values()),
        "run_ns": run,
        "share": round(python_ns / run, 4),
        "nodes": names,
        "timers": timed,
        "rows": node.rows,
        "stages": sorted({key[0] for key in executing}),
    }
    traps: tuple[str, ...] = (
        "Whether the function computes or waits is not in the log.",
        "Python overlaps the JVM's own work.",
    )
    if not timed:
        # Its timers come with the end of what Python returns, which a limit does not wait for.
        traps = (*traps, "The start of Python's workers counts as well: of few rows that take long it is most.")
    changes = tuple(proposed)
    facts = {"signal": signal, "changes": changes, "traps": traps, "changed": changed, "modelled": not timed}
    return look.cause("python_udf", saved, text, stage=worst[0], bound=True, **facts)
