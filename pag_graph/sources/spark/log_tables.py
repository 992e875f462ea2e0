"""What an event log holds, as tables: one per kind of thing, times in milliseconds since 1970, as Spark writes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "CACHED",
    "EXECUTIONS",
    "EXECUTORS",
    "JOBS",
    "JOB_STAGES",
    "MEMORY",
    "NODES",
    "NODE_METRICS",
    "PROGRESS",
    "STAGES",
    "STAGE_METRICS",
    "LogFinding",
    "SparkLog",
    "frame",
    "note",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFinding:
    """Something odd about a log."""

    finding: str
    """Stable name of the kind."""
    severity: str
    """``info``, ``warning`` or ``error``."""
    observed: int
    """How many, or how much."""
    unit: str
    """Unit of it."""
    detail: str
    """What it is about, and what was done."""


@dataclass(slots=True, kw_only=True)
class SparkLog:
    """What a log holds, as columns; times in milliseconds since 1970, as Spark writes them."""

    name: str = ""
    """Name of the log's file."""
    app_id: str = ""
    """``spark.app.id``; empty where the log does not say."""
    app_name: str = ""
    """Name that the program gave."""
    version: str = ""
    """Spark's version."""
    start_ms: int | None = None
    """When the application started."""
    end_ms: int | None = None
    """When it ended; None where the log does not say."""
    last_ms: int = 0
    """Latest time in the log."""
    first_ms: int = 0
    """Earliest time in the log."""
    complete: bool = False
    """Whether the log has the application's end."""
    properties: dict[str, str] = field(default_factory=dict)
    """Spark's settings that the mapping reads."""
    query_settings: dict[int, dict[str, str]] = field(default_factory=dict)
    """Those that a SQL execution changed, by execution."""
    tasks: pl.DataFrame = field(default_factory=pl.DataFrame)
    """One row per task attempt, by launch time; most columns in the narrowest type that holds them."""
    stages: pl.DataFrame = field(default_factory=pl.DataFrame)
    """One row per stage attempt that was submitted, by stage and attempt."""
    jobs: pl.DataFrame = field(default_factory=pl.DataFrame)
    """One row per job, by number."""
    job_stages: pl.DataFrame = field(default_factory=pl.DataFrame)
    """One row per job and stage of it, also of stages that were skipped."""
    executors: pl.DataFrame = field(default_factory=pl.DataFrame)
    """One row per executor, in the order in which they came."""
    executions: pl.DataFrame = field(default_factory=pl.DataFrame)
    """One row per SQL execution, by number; `mark` tells first plans apart, but for ids, numbers and dates, `replanned`
    is how often adaptive execution stated its plan again."""
    nodes: pl.DataFrame = field(default_factory=pl.DataFrame)
    """One row per plan node of a SQL execution's last plan; `detail` is Spark's word for how it joins or divides,
    `mark` tells texts apart that are not kept, `traits` are what else was seen in them (`plan_texts.traits`)."""
    node_metrics: pl.DataFrame = field(default_factory=pl.DataFrame)
    """One row per metric of a plan node, with its value where the log has one."""
    stage_metrics: pl.DataFrame = field(default_factory=pl.DataFrame)
    """One row per stage attempt and accumulator of a plan node: what its tasks added to it, and how many of them
    (null where only totals are known)."""
    memory: pl.DataFrame = field(default_factory=pl.DataFrame)
    """One row per executor, and for the driver, with the peaks of its memory: those that were sampled are null where
    nobody did, `task_bytes` is the most that one task held for its execution."""
    progress: pl.DataFrame = field(default_factory=pl.DataFrame)
    """One row per batch of a stream that made progress, in the order of the log; times of the state are sums over
    tasks."""
    cached: pl.DataFrame = field(default_factory=pl.DataFrame)
    """One row per dataset with blocks in a cache, where the log has what became of them: how many there were, how many
    of these were evicted, and how many times."""
    texts: dict[str, list[str]] = field(default_factory=dict)
    """Texts that the tasks' columns executor, host and reason number."""
    events: dict[str, int] = field(default_factory=dict)
    """Events read, counted by name."""
    unknown: dict[str, int] = field(default_factory=dict)
    """Events that say nothing to this reader, counted by name."""
    findings: list[LogFinding] = field(default_factory=list)
    """What is odd."""
    read_bytes: int = 0
    """Bytes of content."""
    unit: str = "batch"
    """What an epoch is, if the log has it: ``batch`` of a stream, else ``query``, else ``job``."""
    portion: bool = False
    """Whether it is a portion of a log between two quiet instants: lanes do not end with it."""
    lanes: int = 0
    """Driver lanes that are there from the portion's begin."""
    cores: dict[str, int] = field(default_factory=dict)
    """Cores of each executor that are workers from the portion's begin."""


_I, _S = pl.Int64, pl.String
_STAGE_COLUMNS: dict[str, Any] = {
    "name": _S,
    "tasks": _I,
    "parents": pl.List(_I),
    "rdd": _I,
    "scopes": pl.List(_S),
    "unsplittable": pl.Boolean,
}
STAGES: dict[str, Any] = {
    "stage": _I,
    "stage_attempt": _I,
    **_STAGE_COLUMNS,
    "failed": pl.Boolean,
    "execution": _I,
    "submitted_ms": _I,
    "completed_ms": _I,
}
JOB_STAGES: dict[str, Any] = {"job": _I, "stage": _I, **_STAGE_COLUMNS}
JOBS: dict[str, Any] = {
    "job": _I,
    "name": _S,
    "execution": _I,
    "root": _I,
    "query": _S,
    "batch": _I,
    "submitted_ms": _I,
    "completed_ms": _I,
    "result": _S,
    "failure": _S,
}
EXECUTORS: dict[str, Any] = {
    "executor": _S,
    "host": _S,
    "cores": _I,
    "added_ms": _I,
    "removed_ms": _I,
    "reason": _S,
    "decommissioned_ms": _I,
}
EXECUTIONS: dict[str, Any] = {
    "execution": _I,
    "root": _I,
    "name": _S,
    "started_ms": _I,
    "ended_ms": _I,
    "mark": _I,
    "replanned": _I,
}
NODES: dict[str, Any] = {
    "execution": _I,
    "node": _I,
    "parent": _I,
    "name": _S,
    "scope": _S,
    "detail": _S,
    "mark": _I,
    "unsplittable": pl.Boolean,
    "traits": pl.List(_S),
}
NODE_METRICS: dict[str, Any] = {
    "execution": _I,
    "node": _I,
    "accumulator": _I,
    "metric": _S,
    "kind": _S,
    "driver_value": _I,
}
STAGE_METRICS: dict[str, Any] = {"stage": _I, "stage_attempt": _I, "accumulator": _I, "value": _I, "updates": _I}

MEMORY: dict[str, Any] = {
    "executor": _S,
    "heap_bytes": _I,
    "execution_bytes": _I,
    "storage_bytes": _I,
    "off_heap_bytes": _I,
    "resident_bytes": _I,
    "gc_ms": _I,
    "task_bytes": _I,
}
PROGRESS: dict[str, Any] = {
    "query": _S,
    "batch": _I,
    "started_ms": _I,
    "trigger_ms": _I,
    "add_batch_ms": _I,
    "planning_ms": _I,
    "latest_offset_ms": _I,
    "wal_ms": _I,
    "commit_offsets_ms": _I,
    "input_rows": _I,
    "state_rows": _I,
    "state_bytes": _I,
    "state_ms": _I,
    "dropped_rows": _I,
    "watermark_ms": _I,
}
CACHED: dict[str, Any] = {"rdd": _I, "blocks": _I, "evicted": _I, "times": _I}


def frame(schema: dict[str, Any], rows: Iterable[dict[str, Any]]) -> pl.DataFrame:
    """Return rows as a table of a schema.

    Parameters
    ----------
    schema
        Columns and their types, such as `MEMORY`.
    rows
        What a row lacks is null, and what the schema lacks is left out.

    Returns
    -------
    DataFrame
        One row per row, in order, with all columns of the schema.
    """
    columns: dict[str, list[Any]] = {name: [] for name in schema}
    for row in rows:
        for name, column in columns.items():
            column.append(row.get(name))
    return pl.DataFrame(columns, schema=schema)


def note(findings: list[LogFinding], finding: str, severity: str, observed: int, unit: str, detail: str) -> None:
    """Add a finding, unless there is nothing of it.

    Parameters
    ----------
    findings
        Findings, which are added to.
    finding, severity
        Its stable name, and ``info``, ``warning`` or ``error``.
    observed, unit
        How much of it there is, and of what; 0 adds nothing.
    detail
        What it means, and what was done about it.
    """
    if observed:
        findings.append(LogFinding(finding=finding, severity=severity, observed=observed, unit=unit, detail=detail))
