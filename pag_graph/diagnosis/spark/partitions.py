"""Stages with fewer tasks than cores, or with so many that launching them is most of the work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pag_graph.diagnosis.spark.cores import cores_at
from pag_graph.diagnosis.spark.file_splits import FILE_BYTES, FILES, splits_of
from pag_graph.diagnosis.spark.look import Cause, Look, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    I64 = NDArray[np.int64]

__all__ = ["partitions"]

_PAST_THE_END = 256 << 10
"""So much may a task read beyond its part of a file: the rest of a line, and what buffers of 64 KiB fetch ahead."""
_RANGES = "Ranking by ranges reads all rows twice more: with few cores it can take longer than the window."


def partitions(look: Look) -> list[Cause]:
    """Find stages whose work is cut into too few or too many tasks.

    Causes: ``too_few_partitions``, ``single_window``, ``unsplittable_input``, ``tiny_tasks``.
    """
    few_tasks: dict[tuple[Any, ...], list[_FewTasks]] = {}
    tiny_stages: list[_TinyTasks] = []
    for stage in look.stages.iter_rows(named=True):
        available = max(1, cores_at(look.cores, (stage["start_ns"] + stage["end_ns"]) // 2))
        if (few := _too_few(look, stage, available)) is not None:
            few_tasks.setdefault(_what_was_read(look, few.key), []).append(few)
        if (tiny_tasks := _tiny_tasks(look, stage, available)) is not None:
            tiny_stages.append(tiny_tasks)
    causes = [
        *(_few(look, cause, stages) for alike in few_tasks.values() for cause, stages in _by_cause(look, alike)),
        _tiny(look, tiny_stages),
    ]
    return [cause for cause in causes if cause is not None]


class _FewTasks(NamedTuple):
    """A stage that leaves cores empty because it has too few tasks."""

    key: tuple[int, int]
    numbers: I64
    """Its tasks."""
    durations: I64
    """What each would take, in nanoseconds, if there were one for each core."""
    cores: int
    span_ns: int


def _too_few(look: Look, stage: dict[str, Any], available: int) -> _FewTasks | None:
    key = (stage["stage"], stage["stage_attempt"])
    if stage["tasks"] >= available or stage["stage_attempt"] or stage["failed"]:
        return None
    stage_tasks = look.by_stage[key]
    numbers, held_ns, run_ns = (stage_tasks[name].to_numpy() for name in ("number", "held", "run"))
    # Only what a task does with its data is divided: each of more tasks is launched and deserialised as well.
    even_share_ns = int(np.minimum(run_ns, look.warm[numbers]).sum() // available)
    return _FewTasks(key, numbers, held_ns - run_ns + even_share_ns, available, stage["end_ns"] - stage["start_ns"])


def _by_cause(look: Look, alike: list[_FewTasks]) -> Iterator[tuple[str, list[_FewTasks]]]:
    """Divide stages that read the same amount by what keeps them from having more tasks.

    Files that cannot be split keep all that read them; of the other causes each stage has its own. Of stages that are
    too short together to matter nobody asks why.
    """
    if not look.matters(sum(stage.span_ns for stage in alike)):
        return
    unsplit = []
    for stage in alike:
        cause = _why_few(look, stage.key, look.by_stage[stage.key])
        if cause == "unsplittable_input":
            unsplit.append(stage)
        else:
            yield cause, [stage]
    if unsplit:
        yield "unsplittable_input", unsplit


def _few(look: Look, cause: str, stages: list[_FewTasks]) -> Cause | None:
    """Return what too few tasks cost in stages that have them for one reason."""

    def split(durations: I64) -> None:
        for stage in stages:
            durations[stage.numbers] = np.minimum(durations[stage.numbers], stage.durations)

    saved = look.saved_in([stage.key for stage in stages], split)
    if not look.matters(saved):
        return None
    worst = max(stages, key=lambda stage: stage.span_ns)
    tasks, cores = len(worst.numbers), worst.cores
    text = (
        f"{look.stage_name(*worst.key)} had {tasks} task{'s' if tasks > 1 else ''} for {cores} cores:"
        f" {cores - tasks} of them had nothing to do for {seconds(worst.span_ns)}."
    )
    if len(stages) > 1:
        more, all_ns = len(stages) - 1, sum(stage.span_ns for stage in stages)
        text += f" {more:,} more stage{'s' if more > 1 else ''} read as much: {seconds(all_ns)} together."
    signal = {
        "tasks": tasks,
        "cores": cores,
        "span_ns": worst.span_ns,
        "stages": sorted({stage.key[0] for stage in stages}),
    }
    # What it takes to rank by ranges is in no replay.
    bound = cause == "single_window"
    traps = (_RANGES,) if bound else ()
    return look.cause(cause, saved, text, stage=worst.key[0], signal=signal, changed=split, bound=bound, traps=traps)


def _why_few(look: Look, key: tuple[int, int], stage_tasks: Any) -> str:
    """Say what keeps a stage from having more tasks."""
    if stage_tasks.height == 1 and any(name.startswith("Window") for name in look.nodes.get(key[0], ())):
        return "single_window"
    if _unsplit(look, key, int(stage_tasks["input_bytes"].max() or 0)):
        return "unsplittable_input"
    return "too_few_partitions"


def _unsplit(look: Look, key: tuple[int, int], largest: int) -> bool:
    """Return whether a stage's tasks read files as a whole.

    Its log names such files, or a task read more than Spark puts into one task of files that it can split. Only a
    folder may be named, so the size of what is read decides, unless the program itself joins partitions after reading.
    """
    if key[0] in look.unsplittable:
        return largest > 0
    if key[0] in look.joined:
        return False
    job = look.schedule.jobs[look.schedule.stage_jobs[key]]
    splits = splits_of(look.schedule, job.execution, job.start_ns)
    scans = _scans(look, key)
    if not scans:
        return largest >= 2 * splits.largest
    return largest > max(splits.bytes_of_task(files, size) for files, size in scans) + _PAST_THE_END


def _scans(look: Look, key: tuple[int, int]) -> list[tuple[int, int]]:
    """Return how many files, and how many bytes of them, each scan of a stage reads."""
    nodes = look.plans.of_stage.get(key, ())
    return [(node.total(FILES), node.total(FILE_BYTES)) for node in nodes if node.has(FILES)]


def _what_was_read(look: Look, key: tuple[int, int]) -> tuple[Any, ...]:
    """Return what tells the input of a stage from that of others, as far as a log does; itself where it has none."""
    stage_tasks, scans = look.by_stage[key], _scans(look, key)
    read_bytes = int(stage_tasks["input_bytes"].sum() or 0)
    if not read_bytes:
        return ("stage", *key)
    return ("files", stage_tasks.height, *scans) if scans else ("bytes", stage_tasks.height, read_bytes)


class _TinyTasks(NamedTuple):
    """A stage whose tasks are launched for little."""

    key: tuple[int, int]
    numbers: I64
    """Its tasks."""
    work: I64
    """What each does with its data, in nanoseconds."""
    spent_ns: float
    """Time of cores for its tasks, with what is between them."""
    overhead_ns: float
    """Of that, what is no work."""
    gaps_ns: int
    """For how long all cores together are empty between its tasks."""


def _tiny_tasks(look: Look, stage: dict[str, Any], available: int) -> _TinyTasks | None:
    key, limits = (stage["stage"], stage["stage_attempt"]), look.limits
    if stage["tasks"] < limits.tiny_waves * available:
        return None
    stage_tasks = look.by_stage[key]
    numbers, work = stage_tasks["number"].to_numpy(), stage_tasks["work"].to_numpy()
    between = look.between_ns.get(key, 0)
    held_ns = float(stage_tasks["held"].sum())
    spent_ns = held_ns + between * stage_tasks.height
    overhead_ns = held_ns - float(work.sum()) + between * stage_tasks.height
    if np.median(work) > limits.tiny_ns or overhead_ns < limits.overhead_share * max(spent_ns, 1.0):
        return None
    return _TinyTasks(key, numbers, work, spent_ns, overhead_ns, int(between * stage_tasks.height // available))


def _tiny(look: Look, stages: list[_TinyTasks]) -> Cause | None:
    """Return what tiny tasks cost, of all stages together: a setting may have cut every one of them too small."""
    if not stages:
        return None

    def merged(durations: I64) -> None:
        for stage in stages:
            durations[stage.numbers] = stage.work

    saved = look.saved_in([stage.key for stage in stages], merged) + sum(stage.gaps_ns for stage in stages)
    if not look.matters(saved):
        return None
    worst = max(stages, key=lambda stage: stage.overhead_ns)
    tasks = sum(len(stage.numbers) for stage in stages)
    median = float(np.median(np.concatenate([stage.work for stage in stages])))
    share = sum(stage.overhead_ns for stage in stages) / max(sum(stage.spent_ns for stage in stages), 1.0)
    others = f" and {len(stages) - 1:,} more stages" if len(stages) > 1 else ""
    text = (
        f"{look.stage_name(*worst.key)}{others} had {tasks:,} tasks, of which the usual one worked {seconds(median)}:"
        f" {share:.0%} of the cores' time went into launching and finishing them."
    )
    signal = {
        "tasks": tasks,
        "median_work_ns": int(median),
        "overhead_share": round(share, 4),
        "stages": sorted({stage.key[0] for stage in stages}),
    }
    return look.cause("tiny_tasks", saved, text, stage=worst.key[0], signal=signal, changed=merged)
