"""One answer for one log: convert, build, walk the critical path, name the causes, and say what would help."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from pag_graph.analyses.critical_path import critical_path
from pag_graph.analyses.view import View, in_process
from pag_graph.builder.engine import silent
from pag_graph.diagnosis.path_steps import built, marked_steps, shares
from pag_graph.diagnosis.spark.bound import Bound, bound_by
from pag_graph.diagnosis.spark.causes import Diagnosis, diagnose
from pag_graph.diagnosis.spark.crowding import Crowding, calibrated
from pag_graph.diagnosis.spark.independent import what_if_independent
from pag_graph.diagnosis.spark.nodes import PlanRows, path_tasks, plan_rows
from pag_graph.diagnosis.spark.pauses import with_pauses
from pag_graph.diagnosis.spark.timers import UNITS
from pag_graph.diagnosis.spark.what_if import WhatIf, WithCores, what_ifs, with_other_cores
from pag_graph.errors import InvalidParameterError
from pag_graph.graph.run import Run
from pag_graph.sources.spark.convert import map_log, write_mapped
from pag_graph.sources.spark.keep import STORE, is_result_of, new_results, place_of, temporary_results
from pag_graph.sources.spark.memory_errors import enough_memory
from pag_graph.sources.spark.reader import read_log
from pag_graph.sources.spark.settings import settings_of
from pag_graph.sources.spark.task_updates import read_task_updates
from pag_graph.sources.spark.texts import private

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pag_graph.diagnosis.spark.look import Thresholds
    from pag_graph.sources.spark.log_tables import SparkLog
    from pag_graph.sources.spark.logfiles import LogFiles
    from pag_graph.sources.spark.mapping import Mapped

__all__ = ["SCHEMA", "SparkAnswer", "answer"]

SCHEMA = "pag-spark/2"
"""What programs can rely on in the facts of an answer: within a number things are only added."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkAnswer:
    """Why an application took as long as it did."""

    log: SparkLog
    mapped: Mapped
    diagnosis: Diagnosis
    steps: pl.DataFrame
    """The critical path of the whole application: columns of `CRITICAL_PATH`, `inferred`, and what each step was."""
    shares: dict[str, list[dict[str, Any]]]
    """By stage, activity, executor, host and query: rows of key, path_ns and share, which add up to the span."""
    plan_nodes: list[dict[str, Any]]
    """Time of the path, and of all tasks, by plan node (`PlanRows`)."""
    pieces: pl.DataFrame
    """The path by row of the plans, activity, and what it worked for (`PlanRows`)."""
    what_if: list[WhatIf]
    """What was asked for, then the greatest saving first."""
    cores: list[WithCores]
    """By number of cores."""
    bound: Bound
    """What most of the time is bound by."""
    explained: float
    """Share of the path that is not unknown."""
    inferred: float
    """Share of the path whose place within a task is by policy."""
    findings: dict[str, int]
    """Findings of log and graph, counted."""

    def facts(self) -> dict[str, Any]:
        """Return all of it as plain values, for programs."""
        diagnosis, schedule = self.diagnosis, self.mapped.schedule
        return {
            "schema": SCHEMA,
            "log": self.log.name,
            "application": {
                "id": self.log.app_id,
                "name": self.log.app_name,
                "spark": self.log.version,
                "complete": self.log.complete,
            },
            "span_ns": diagnosis.span_ns,
            "before_first_job_ns": diagnosis.span_ns - diagnosis.active_ns,
            "active_ns": diagnosis.active_ns,
            "path": {
                "length_ns": int(self.steps["duration_ns"].sum()),
                "steps": self.steps.height,
                "explained": self.explained,
                "inferred_share": self.inferred,
                **{f"by_{name}": rows for name, rows in self.shares.items()},
            },
            "bound_by": self.bound.facts(),
            "plan_nodes": self.plan_nodes,
            "causes": [cause.facts() for cause in diagnosis.causes],
            "minor": [cause.facts() for cause in diagnosis.minor],
            "suspicions": [suspicion.facts() for suspicion in diagnosis.suspicions],
            "costs": [cost.facts() for cost in diagnosis.costs],
            "not_recorded": [missing.facts() for missing in diagnosis.not_recorded],
            "core_time_ns": diagnosis.core_ns,
            "stages": diagnosis.stages.to_dicts(),
            "jobs": [
                {
                    "job": job.number,
                    "name": job.name,
                    "start_ns": job.start_ns,
                    "end_ns": job.end_ns,
                    "query": job.execution,
                    "succeeded": job.succeeded,
                }
                for job in schedule.jobs
            ],
            "settings": settings_of(self.log),
            "executors": schedule.executors.drop("code").to_dicts(),
            "what_if": {
                "replayed_ns": diagnosis.simulated_ns,
                "error": round(diagnosis.replay_error, 6),
                "reliable": diagnosis.reliable,
                "changes": [what_if.facts() for what_if in self.what_if],
                "cores": [prediction.facts() for prediction in self.cores],
            },
            "epochs": [
                {"epoch": number, "end_ns": end_ns, "name": name}
                for number, (end_ns, name) in enumerate(self.mapped.epochs.ends)
            ],
            "findings": self.findings,
        }


def answer(
    log: LogFiles,
    *,
    folder: Path | None = None,
    replace: bool = False,
    keep_texts: bool = False,
    cores: Sequence[int] = (),
    independent: Sequence[str] = (),
    beside: LogFiles | None = None,
    processors: int | None = None,
    thresholds: Thresholds | None = None,
    progress: Callable[[str, int, int], None] = silent,
) -> SparkAnswer:
    """Say why an application took as long as it did.

    Parameters
    ----------
    log
        Files of one log, as `find_logs` returns them.
    folder
        Where to leave the trace (``trace``) and the store (``pag``); nowhere if absent.
    replace
        Whether to replace what is in the folder. What a repeated call finds done already it takes as it is.
    keep_texts
        Whether to keep descriptions and other texts, as `read_log` says; nobody else may read the folder then.
    cores
        Numbers of cores to predict the end for, besides half and twice as many as there were.
    independent
        Jobs and queries that need not wait for each other, as `independent_jobs` reads them; each is one prediction.
    beside
        A second log of the same program with another number of cores: it tells what sharing processors costs.
    processors
        Of a host, where they are known.
    thresholds
        From where on something is a cause.
    progress
        Called with (label, done, all).

    Returns
    -------
    SparkAnswer
        Path, causes and predictions.

    Raises
    ------
    InvalidParameterError
        If a number of cores is not positive, or there is no such job or query.
    """
    if any(count < 1 for count in cores):
        message = "A number of cores must be positive."
        raise InvalidParameterError(message, None, {"cores": list(cores)})
    with enough_memory(log), private(keep_texts):
        spark_log = read_log(log, keep_texts=keep_texts, progress=progress)
        mapped = map_log(spark_log)
        diagnosis = diagnose(mapped.schedule, thresholds)
        asked = [what_if_independent(mapped.schedule, diagnosis, text) for text in independent]
        sharing = None if beside is None else calibrated(diagnosis, _diagnosed(beside), processors)
        crowding = Crowding(mapped, diagnosis, sharing=sharing, processors=processors)
        predictions = with_other_cores(mapped, diagnosis, cores, crowding)
        before_path = _BeforePath(
            files=log, log=spark_log, mapped=mapped, diagnosis=diagnosis, cores=predictions, asked=asked
        )
        if folder is None:
            with temporary_results() as place:
                return _answer_of_path(before_path, _built_run(mapped, place, progress))
        results = place_of(folder)
        if not replace and is_result_of(mapped, results):
            return _answer_of_path(before_path, Run(results / STORE))
        with new_results(mapped, results, replace=replace) as place:
            # They come to their place when all is done: a command that is killed before can be repeated as it was.
            return _answer_of_path(before_path, _built_run(mapped, place, progress))


def _diagnosed(log: LogFiles) -> Diagnosis:
    return diagnose(map_log(read_log(log)).schedule)


def _built_run(mapped: Mapped, place: Path, progress: Callable[[str, int, int], None]) -> Run:
    return built(partial(write_mapped, mapped), place, progress)


def _divided_path(files: LogFiles, mapped: Mapped, steps: pl.DataFrame) -> PlanRows:
    """Divide the path by plan node, by what its own tasks added to the nodes' accumulators."""
    log, schedule = mapped.schedule.log, mapped.schedule
    timers = log.node_metrics.filter(pl.col("kind").is_in(list(UNITS)))["accumulator"].to_list()
    in_tasks = path_tasks(mapped, steps)
    tasks = schedule.tasks["task"].gather(in_tasks["row"].unique()).to_list()
    return plan_rows(mapped, steps, in_tasks, read_task_updates(files, tasks, timers))


@dataclass(frozen=True, slots=True, kw_only=True)
class _BeforePath:
    """What is known of a log before its critical path is."""

    files: LogFiles
    log: SparkLog
    mapped: Mapped
    diagnosis: Diagnosis
    cores: list[WithCores]
    asked: list[WhatIf]
    """Changes that were asked for."""


def _answer_of_path(before_path: _BeforePath, run: Run) -> SparkAnswer:
    mapped, diagnosis = before_path.mapped, before_path.diagnosis
    # A view reads the columns that the path needs; a snapshot of the whole application would hold all of them.
    path = critical_path(View(run=run, windows=[run.window(between=(0, run.end_ns))], spread=in_process(run)))
    explained = path.explained
    steps = pl.DataFrame(pl.from_arrow(path.steps.select(_PATH_COLUMNS)))
    # Its other columns are as large again.
    del path
    steps = _labelled_steps(with_pauses(marked_steps(run, steps).select(_STEPS), mapped), mapped)
    span = max(diagnosis.span_ns, 1)
    finding_counts = run.scan("findings").group_by("finding").len().sort("finding").collect()
    divided = _divided_path(before_path.files, mapped, steps)
    findings = dict(finding_counts.iter_rows()) | ({"timers_exceed_task": divided.scaled} if divided.scaled else {})
    return SparkAnswer(
        log=before_path.log,
        mapped=mapped,
        diagnosis=diagnosis,
        steps=steps,
        shares={name: shares(steps, column, span) for name, column in _DIVISIONS.items()},
        plan_nodes=divided.rows,
        pieces=divided.pieces,
        what_if=[*before_path.asked, *what_ifs(mapped, diagnosis, steps)],
        cores=before_path.cores,
        bound=bound_by(mapped, diagnosis, steps),
        explained=explained,
        inferred=float(steps.filter("inferred")["duration_ns"].sum()) / span,
        findings=findings,
    )


_OF_STEPS = ("step", "type", "worker", "to_worker", "start_ns", "duration_ns", "operator")
_PATH_COLUMNS = [*_OF_STEPS, "edge_src", "edge_dst"]
_STEPS = (*_OF_STEPS, "inferred")

_DIVISIONS = {
    "stage": "what",
    "activity": "activity",
    "executor": "executor",
    "host": "host",
    "query": "query",
}

_ACTIVITY_NAMES = {
    (True, "busy"): "driver program",
    (True, "scheduling"): "driver scheduling",
    (True, "io"): "getting results",
    (True, "input_wait"): "streams without input",
    (False, "scheduling"): "scheduler delay",
    (False, "io"): "shuffle write",
    (False, "input_wait"): "shuffle fetch wait",
    (False, "deserialization"): "task deserialization",
    (False, "serialization"): "result serialization",
    (False, "gc"): "garbage collection",
    (False, "processing"): "processing",
    (False, "idle"): "idle core",
}


def _labelled_steps(steps: pl.DataFrame, mapped: Mapped) -> pl.DataFrame:
    """Say of every step what it was, in the words of Spark's users."""
    operators = mapped.operators
    stage_names = {number: operators.names[number] for number in operators.stages.values()}
    executions = {number: execution for execution, number in operators.executions.items()}
    queries: dict[int, int] = dict(executions)
    for index, number in enumerate(operators.jobs):
        of_job = mapped.schedule.jobs[index].execution
        if of_job is not None:
            queries[number] = of_job
    for key, number in operators.stages.items():
        execution = mapped.schedule.jobs[mapped.schedule.stage_jobs[key]].execution
        if execution is not None:
            queries[number] = execution
    executors = mapped.schedule.executors.to_dicts()
    workers: list[tuple[str, str]] = [("driver", "driver")] * mapped.lanes + [
        (
            "local" if executors[core.executor]["executor"] == "driver" else executors[core.executor]["executor"],
            executors[core.executor]["host"] or "",
        )
        for core in mapped.schedule.cores
    ]
    activity, purpose, executor, host, query = [], [], [], [], []
    for kind, worker, operator in steps.select("type", "worker", "operator").iter_rows():
        on_driver = worker < mapped.lanes
        activity.append(_ACTIVITY_NAMES.get((on_driver, kind), kind.replace("_", " ")))
        if operator in stage_names:
            purpose.append(stage_names[operator])
        elif kind == "spawn":
            purpose.append("executors starting")
        else:
            at_rest = "streams without input" if kind == "input_wait" else "driver"
            purpose.append(at_rest if on_driver else "between tasks")
        executor.append(workers[worker][0])
        host.append(workers[worker][1])
        query_number = queries.get(operator)
        query_operator = None if query_number is None else operators.executions.get(query_number)
        query.append(
            "no query"
            if query_number is None
            else f"query {query_number}"
            if query_operator is None
            else operators.names[query_operator]
        )
    labels = {"activity": activity, "what": purpose, "executor": executor, "host": host, "query": query}
    return steps.with_columns(_text_column(name, texts) for name, texts in labels.items())


def _text_column(name: str, texts: list[str]) -> pl.Series:
    """Return a column of few different texts, which is as large as their numbers; its order is that of the texts."""
    return pl.Series(name, texts, dtype=pl.Enum(sorted(set(texts))))
