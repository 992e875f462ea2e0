"""What to propose for causes that are found in tasks alone: values of settings, and changes of the program."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pag_graph.diagnosis.spark.changes import Change, of_program, of_setting, size_of
from pag_graph.diagnosis.spark.cores import most_cores
from pag_graph.diagnosis.spark.loss_reasons import proposed_for
from pag_graph.diagnosis.spark.program_changes import PROGRAM_CHANGES, salted_key
from pag_graph.sources.spark.settings import setting

if TYPE_CHECKING:
    from collections.abc import Callable

    from pag_graph.diagnosis.spark.look import Cause, Look

__all__ = ["proposals"]

_PARTITIONS = "spark.sql.shuffle.partitions"
_MEMORY, _CORES = "spark.executor.memory", "spark.executor.cores"
_SPECULATION, _MULTIPLIER = "spark.speculation", "spark.speculation.multiplier"
_ADAPTIVE, _SKEW_JOIN = "spark.sql.adaptive.enabled", "spark.sql.adaptive.skewJoin.enabled"
_BYTES_OF_TASK = 128 << 20
"""What a task should read."""
_WHOLE = re.compile(r"\d{1,9}", re.ASCII)


def proposals(look: Look, cause: Cause) -> tuple[Change, ...]:
    """Return what to change for a cause whose detector knows of nothing closer.

    Parameters
    ----------
    look
        The log.
    cause
        One without changes.

    Returns
    -------
    tuple of Change
        Empty where the log does not tell which value would help.
    """
    propose = _BY_CAUSE.get(cause.cause)
    return () if propose is None else propose(look, cause)


def _split(look: Look, cause: Cause) -> tuple[Change, ...]:
    """Propose as many partitions as there are cores."""
    return _partitions(look, cause, most_cores(look.cores), "repartition(), or more splits of the input")


def _merge(look: Look, cause: Cause) -> tuple[Change, ...]:
    """Propose as few partitions as keep all cores at work and each task below what it should read."""
    of_cause = look.stages.filter(look.stages["stage"].is_in(cause.signal["stages"]))
    needed = max(most_cores(look.cores), -(-max(of_cause["read_bytes"].to_list()) // _BYTES_OF_TASK))
    if needed >= _stage(look, cause)["tasks"]:
        return ()
    return _partitions(look, cause, needed, "coalesce(), or larger splits of the input")


def _spilled(look: Look, cause: Cause) -> tuple[Change, ...]:
    """Propose partitions that fit into memory, or more memory where they are small already."""
    stage = _stage(look, cause)
    needed = -(-int(stage["read_bytes"]) // _BYTES_OF_TASK)
    if needed > stage["tasks"]:
        return _partitions(look, cause, needed, "repartition(), or smaller splits of the input")
    return _more_memory(look, cause)


def _more_memory(look: Look, cause: Cause) -> tuple[Change, ...]:
    """Propose twice the memory for each task of an executor: more of it, or fewer tasks at once."""
    del cause
    log = look.schedule.log
    memory_bytes, cores = size_of(log, _MEMORY), setting(log, _CORES).value
    changes = [] if memory_bytes is None else [of_setting(log, _MEMORY, f"{memory_bytes * 2 >> 20}m")]
    if cores is not None and _WHOLE.fullmatch(cores) and int(cores) > 1:
        changes.append(of_setting(log, _CORES, f"{-(-int(cores) // 2)}, if not more memory"))
    return tuple(changes)


def _after_loss(look: Look, cause: Cause) -> tuple[Change, ...]:
    """Propose more memory where executors went for want of it."""
    return proposed_for(look.schedule.log, str(cause.signal["loss"]))


def _adaptive_joins(look: Look, cause: Cause) -> tuple[Change, ...]:
    """Propose adaptive joins where a join is skewed and they are off: they split nothing else."""
    if cause.stage is None or not any("Join" in node for node in look.nodes.get(cause.stage, ())):
        return ()
    query = _query(look, cause)
    off = [name for name in (_ADAPTIVE, _SKEW_JOIN) if setting(look.schedule.log, name, query).value == "false"]
    return tuple(of_setting(look.schedule.log, name, "true", query=query) for name in off)


def _divided_keys(look: Look, cause: Cause) -> tuple[Change, ...]:
    """Propose that Spark divides what one key has, or that the program does."""
    return _adaptive_joins(look, cause) or salted_key(look, cause)


def _speculate(look: Look, cause: Cause) -> tuple[Change, ...]:
    """Propose copies of tasks on slow machines, where there are none."""
    del cause
    log = look.schedule.log
    return (of_setting(log, _SPECULATION, "true"),) if setting(log, _SPECULATION).value == "false" else ()


def _speculate_sooner(look: Look, cause: Cause) -> tuple[Change, ...]:
    """Propose copies after one and a half times the median, where Spark waits for longer."""
    del cause
    multiplier = setting(look.schedule.log, _MULTIPLIER).value
    waits = multiplier is not None and re.fullmatch(r"\d{1,3}(?:\.\d{1,3})?", multiplier) and float(multiplier) > _SOON
    return (of_setting(look.schedule.log, _MULTIPLIER, f"{_SOON}"),) if waits else ()


_SOON = 1.5


def _partitions(look: Look, cause: Cause, needed: int, otherwise: str) -> tuple[Change, ...]:
    """Propose a number of partitions: the setting, where it decided the stage's, else a change of the program."""
    stage, query = _stage(look, cause), _query(look, cause)
    stage_tasks = look.by_stage[stage["stage"], stage["stage_attempt"]]
    shuffled = bool((stage_tasks["remote_bytes"] > 0).any() or (stage_tasks["local_bytes"] > 0).any())
    configured = setting(look.schedule.log, _PARTITIONS, query).value
    stages = cause.signal.get("stages", ())
    place = f"{len(stages)} stages" if len(stages) > 1 else f"stage {stage['stage']}"
    if query is not None and shuffled and configured == str(stage["tasks"]):
        return (of_setting(look.schedule.log, _PARTITIONS, str(needed), query=query, place=place),)
    return (of_program("partitions", f"{stage['tasks']:,}", f"{needed:,}, by {otherwise}", place),)


def _stage(look: Look, cause: Cause) -> dict[str, int]:
    """Return the first attempt of a cause's stage, as in the table of stages."""
    of_stage = look.stages.filter(look.stages["stage"] == cause.stage).sort("stage_attempt")
    return of_stage.row(0, named=True)


def _query(look: Look, cause: Cause) -> int | None:
    """Return the query that a cause's stage worked for."""
    schedule = look.schedule
    jobs = {schedule.jobs[job].execution for (stage, _), job in schedule.stage_jobs.items() if stage == cause.stage}
    return next(iter(jobs)) if len(jobs) == 1 else None


_BY_CAUSE: dict[str, Callable[[Look, Cause], tuple[Change, ...]]] = {
    **PROGRAM_CHANGES,
    "gc": _more_memory,
    "huge_partitions": _spilled,
    "key_skew": _divided_keys,
    "lost_executor": _after_loss,
    "slow_node": _speculate,
    "speculation": _speculate_sooner,
    "spill": _spilled,
    "tiny_tasks": _merge,
    "too_few_partitions": _split,
}
