"""Names of what runs: the application, its SQL executions, jobs and stages, as people know them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from pag_graph.sources.spark.schedule import stage_values, was_lost
from pag_graph.sources.spark.texts import plain

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pag_graph.sources.spark.log_tables import SparkLog
    from pag_graph.sources.spark.schedule import Schedule

    I64 = NDArray[np.int64]

__all__ = ["APPLICATION", "LOST", "Operators", "metrics_once", "name_operators", "node_metrics", "stage_nodes"]

LOST = "rescale:lost"
"""What a core does at the instant at which its executor is seen to be lost (`docs/rescaling.md`)."""
APPLICATION = 0
"""Operator of what the driver does for no query and no job."""

_SHOWN = 4
_FREE = 1 << 40
"""Above all numbers of executions and jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operators:
    """Ids, addresses and names of operators."""

    names: list[str]
    """Per id."""
    addresses: list[str]
    """Per id: application, SQL execution, job, stage, attempt."""
    executions: dict[int, int]
    """SQL execution to id."""
    jobs: list[int]
    """Index of a job to id."""
    stages: dict[tuple[int, int], int]
    """Stage and attempt to id."""
    lost: int | None
    """Id of `LOST`; None where no executor was lost."""

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of the table of operators."""
        return [
            {"operator": number, "address": address, "name": name}
            for number, (address, name) in enumerate(zip(self.addresses, self.names, strict=True))
        ]

    def of_tasks(self, tasks: pl.DataFrame) -> I64:
        """Return the operator of each task: its stage's attempt."""
        return stage_values(tasks, self.stages).fill_null(APPLICATION).to_numpy()


def metrics_once(log: SparkLog) -> pl.DataFrame:
    """Return the metrics of plan nodes: one row per query and accumulator.

    What is below a reused exchange stands in a plan twice, with the same accumulators: they belong to the first node.
    """
    return log.node_metrics.unique(["execution", "accumulator"], keep="first", maintain_order=True)


def node_metrics(schedule: Schedule) -> pl.DataFrame:
    """Return the metrics of stages with the plan nodes that they belong to.

    Plans that read the same cached table have its accumulators in common: those of the stage's own query count, and of
    a stage without a query those of the last one that knows the accumulator.

    Parameters
    ----------
    schedule
        Of one log.

    Returns
    -------
    pl.DataFrame
        One row per stage attempt and metric: the columns of both, and `name` of the node.
    """
    log, jobs = schedule.log, schedule.jobs
    metrics = metrics_once(log)
    queries = pl.DataFrame(
        [(stage, attempt, jobs[job].execution) for (stage, attempt), job in schedule.stage_jobs.items()],
        schema={"stage": pl.Int64, "stage_attempt": pl.Int64, "query": pl.Int64},
        orient="row",
    )
    stage_metrics = log.stage_metrics.join(queries, on=["stage", "stage_attempt"], how="left", maintain_order="left")
    of_query = stage_metrics.filter(pl.col("query").is_not_null()).rename({"query": "execution"})
    without_query = stage_metrics.filter(pl.col("query").is_null()).drop("query")
    metrics_of_nodes = pl.concat(
        [
            of_query.join(metrics, on=["execution", "accumulator"], how="inner", maintain_order="left"),
            without_query.join(
                metrics.unique("accumulator", keep="last"), on="accumulator", how="inner", maintain_order="left"
            ),
        ],
        how="diagonal",
    )
    return metrics_of_nodes.join(
        log.nodes.select("execution", "node", "name"), on=["execution", "node"], how="inner", maintain_order="left"
    ).filter(~pl.col("name").str.starts_with("WholeStageCodegen"))


def stage_nodes(schedule: Schedule) -> dict[int, list[str]]:
    """Return the names of plan nodes that each stage worked for, by its metrics, in the order of the data's way."""
    log = schedule.log
    if not log.stage_metrics.height or not log.nodes.height:
        return {}
    nodes = (
        node_metrics(schedule)
        .unique(["stage", "execution", "node"])
        .sort("stage", "execution", "node", descending=[False, False, True])
        .group_by("stage", maintain_order=True)
        .agg(pl.col("name").unique(maintain_order=True))
    )
    return dict(nodes.iter_rows())


def name_operators(schedule: Schedule) -> Operators:
    """Name everything that a worker can work for.

    Parameters
    ----------
    schedule
        Of one log.

    Returns
    -------
    Operators
        Id 0 is the application itself.
    """
    log = schedule.log
    names, addresses = [f"driver program ({log.app_name or log.app_id or log.name})"], ["0"]

    def add(address: str, name: str) -> int:
        names.append(name)
        addresses.append(address)
        return len(names) - 1

    executions: dict[int, int] = {}
    texts: dict[int, str] = {}
    for log_row in log.executions.iter_rows(named=True):
        number = log_row["execution"]
        texts[number] = _short(log_row["name"])
        executions[number] = add(f"0.{number}", f"query {number}: {texts[number]}".rstrip(": "))
    # Of a portion nobody knows how many executions follow.
    free = _FREE if log.portion else max(executions, default=-1) + 1
    jobs: list[int] = []
    for job in schedule.jobs:
        parent = f"0.{job.execution}" if job.execution in executions else f"0.{free + max(job.job, 0)}"
        label = job.label if job.number is None else f"{job.label}: {_short(job.name)}".rstrip(": ")
        address = f"{parent}.{job.job}" if job.execution in executions else parent
        if job.job < 0:
            address = f"0.{free + (_FREE if log.portion else len(schedule.jobs)) - job.job}"
        jobs.append(add(address, label))
    nodes = stage_nodes(schedule)
    facts = {(log_row["stage"], log_row["stage_attempt"]): log_row for log_row in log.stages.iter_rows(named=True)}
    call_sites = {log_row["name"] for log_row in facts.values()}
    stages: dict[tuple[int, int], int] = {}
    for (stage, attempt), job_index in sorted(schedule.stage_jobs.items()):
        job = schedule.jobs[job_index]
        log_row = facts.get((stage, attempt), {})
        steps = nodes.get(stage) or (log_row.get("scopes") or [] if job.execution is not None else [])
        steps = [step for step in steps if not step.startswith("WholeStageCodegen")] or list(steps)
        doing = _short(log_row.get("name") or "")
        if job.execution is not None and steps:
            step_names = ", ".join(steps[:_SHOWN]) + (", ..." if len(steps) > _SHOWN else "")
            doing = f"{step_names} of query {job.execution}"
        elif job.name and job.name not in call_sites:
            # The program said what the job is for.
            doing = f"{_short(job.name)} ({doing})" if doing else _short(job.name)
        attempt_part = f" (attempt {attempt + 1})" if attempt else ""
        address = f"{addresses[jobs[job_index]]}.{stage}" + (f".{attempt}" if attempt else "")
        stages[stage, attempt] = add(address, f"stage {stage}{attempt_part}: {doing}".rstrip(": "))
    reasons = schedule.executors.filter(pl.col("removed").is_not_null())["reason"].to_list()
    # No number of an execution or a job comes before that of the application.
    lost_operator = add("1", LOST) if any(map(was_lost, reasons)) else None
    return Operators(
        names=names, addresses=addresses, executions=executions, jobs=jobs, stages=stages, lost=lost_operator
    )


def _short(text: str) -> str:
    """Return a call site without the folders of its file, on one line."""
    words = plain(text)
    head, separator, place = words.rpartition(" at ")
    if separator and "/" in place:
        place = place.rsplit("/", 1)[-1]
    return (f"{head}{separator}{place}")[:160]
