"""Values of events: numbers that Spark can have given, and what a stage's description says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from pag_graph.sources.spark.plan_texts import is_unsplittable
from pag_graph.sources.spark.task_rows import LARGEST, LARGEST_ID

if TYPE_CHECKING:
    from pag_graph.sources.spark.texts import Texts

__all__ = ["AFTER_A_START", "SQL", "id_of", "integer", "stage_facts"]

SQL = "org.apache.spark.sql.execution.ui.SparkListener"
"""What names of events about queries begin with."""
AFTER_A_START = frozenset(
    {
        "SparkListenerTaskEnd",
        "SparkListenerTaskStart",
        "SparkListenerStageSubmitted",
        "SparkListenerStageCompleted",
        "SparkListenerJobStart",
        "SparkListenerJobEnd",
        "SparkListenerApplicationEnd",
        f"{SQL}SQLExecutionStart",
        f"{SQL}SQLExecutionEnd",
    }
)
"""Events that no application logs before its start."""


def stage_facts(info: dict[str, Any], texts: Texts) -> dict[str, Any]:
    """Return what is kept of a stage's description.

    Parameters
    ----------
    info
        ``Stage Info`` of an event, or an entry of a job's ``Stage Infos``.
    texts
        What is kept of its texts.

    Returns
    -------
    dict
        ``name``, ``tasks``, ``parents`` (stages), ``rdd`` (the last one; None without any), ``scopes`` of its RDDs, and
        whether one of them reads files that cannot be split.

    Raises
    ------
    ValueError
        If a number is one that Spark cannot have given.
    """
    rdds = [rdd for rdd in info.get("RDD Info") or () if isinstance(rdd, dict)]
    scopes = []
    for rdd in rdds:
        if scope := rdd.get("Scope"):
            try:
                scopes.append(texts.node(str(orjson.loads(scope)["name"])))
            except (ValueError, KeyError, TypeError):
                continue
    return {
        "name": texts.call_site(info.get("Stage Name")),
        "tasks": integer(info.get("Number of Tasks")) or 0,
        "parents": [id_of(parent) for parent in info.get("Parent IDs") or ()],
        "rdd": max((id_of(rdd["RDD ID"]) for rdd in rdds if "RDD ID" in rdd), default=None),
        "scopes": list(dict.fromkeys(scopes)),
        "unsplittable": any(is_unsplittable(str(rdd.get("Name") or "")) for rdd in rdds),
    }


def id_of(value: Any, largest: int = LARGEST_ID) -> int:
    """Return the number of a thing: a job, a stage, a task.

    Parameters
    ----------
    value
        As an event has it: a number, or its digits.
    largest
        The largest that Spark can give.

    Raises
    ------
    ValueError
        If it is below 0 or above `largest`, or a text without a number.
    TypeError
        If it is neither a number nor a text.
    """
    number = int(value)
    if not 0 <= number <= largest:
        raise ValueError
    return number


def integer(value: Any) -> int | None:
    """Return a number; None for what is none, or too large for a column."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if abs(number) <= LARGEST else None
