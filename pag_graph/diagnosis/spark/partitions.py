"""Stages with fewer tasks than cores, or with so many that launching them is most of the work."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from pag_graph.diagnosis.spark.cores import cores_at
from pag_graph.diagnosis.spark.look import Cause, Look, seconds
from pag_graph.sources.spark.settings import setting

if TYPE_CHECKING:
    from numpy.typing import NDArray

    I64 = NDArray[np.int64]

__all__ = ["partitions"]

_SIZE = re.compile(r"(\d{1,15})b?", re.ASCII)
_USUAL_SPLIT = 128 << 20


def partitions(look: Look) -> list[Cause]:
    """Find stages whose work is cut into too few or too many tasks."""
    causes = []
    for row in look.stages.iter_rows(named=True):
        available = max(1, cores_at(look.cores, (row["start_ns"] + row["end_ns"]) // 2))
        causes += [_too_few(look, row, available), _tiny(look, row, available)]
    return [cause for cause in causes if cause is not None]


def _too_few(look: Look, row: dict[str, Any], available: int) -> Cause | None:
    key = (row["stage"], row["stage_attempt"])
    if row["tasks"] >= available or row["stage_attempt"] or row["failed"]:
        return None
    own = look.by_stage[key]
    numbers, held, run = (own[name].to_numpy() for name in ("number", "held", "run"))
    # Only what a task does with its data is divided: each of more tasks is launched and deserialised as well.
    whole = int(np.minimum(run, look.warm[numbers]).sum() // available)

    def split(durations: I64) -> None:
        durations[numbers] = np.minimum(durations[numbers], held - run + whole)

    saved = look.saved_in([key], split)
    if not look.matters(saved):
        return None
    span = row["end_ns"] - row["start_ns"]
    text = (
        f"{look.stage_name(*key)} had {row['tasks']} task{'s' if row['tasks'] > 1 else ''} for {available} cores:"
        f" {available - row['tasks']} of them had nothing to do for {seconds(span)}."
    )
    signal = {"tasks": row["tasks"], "cores": available, "span_ns": span}
    return look.cause(_why_few(look, key, own), saved, text, stage=row["stage"], signal=signal, changed=split)


def _why_few(look: Look, key: tuple[int, int], own: Any) -> str:
    """Say what keeps a stage from having more tasks."""
    if own.height == 1 and any(name.startswith("Window") for name in look.nodes.get(key[0], ())):
        return "single_window"
    largest = int(own["input_bytes"].max() or 0)
    stated = _SIZE.fullmatch(setting(look.schedule.log, "spark.sql.files.maxPartitionBytes").value or "")
    limit = int(stated[1]) if stated else _USUAL_SPLIT
    if largest and (key[0] in look.unsplittable or largest >= 2 * limit):
        return "unsplittable_input"
    return "too_few_partitions"


def _tiny(look: Look, row: dict[str, Any], available: int) -> Cause | None:
    key, limits = (row["stage"], row["stage_attempt"]), look.limits
    if row["tasks"] < limits.tiny_waves * available:
        return None
    own = look.by_stage[key]
    numbers, work = own["number"].to_numpy(), own["work"].to_numpy()
    between = look.between_ns.get(key, 0)
    held = float(own["held"].sum())
    spent = held + between * own.height
    overhead = held - float(work.sum()) + between * own.height
    if np.median(work) > limits.tiny_ns or overhead < limits.overhead_share * max(spent, 1.0):
        return None

    def merged(durations: I64) -> None:
        durations[numbers] = work

    gaps = int(between * own.height // available)
    saved = look.saved_in([key], merged) + gaps
    if not look.matters(saved):
        return None
    share = overhead / max(spent, 1.0)
    text = (
        f"{look.stage_name(*key)} had {row['tasks']:,} tasks, of which the usual one worked"
        f" {seconds(float(np.median(work)))}: {share:.0%} of the cores' time went into launching and finishing them."
    )
    signal = {"tasks": row["tasks"], "median_work_ns": int(np.median(work)), "overhead_share": round(share, 4)}
    return look.cause("tiny_tasks", saved, text, stage=row["stage"], signal=signal, changed=merged)
