"""Tables that lie, or are written, in very many small files."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from pag_graph.diagnosis.spark.changes import of_program
from pag_graph.diagnosis.spark.cores import cores_at
from pag_graph.diagnosis.spark.file_splits import FILE_BYTES, FILES, splits_of
from pag_graph.diagnosis.spark.look import Cause, Look, seconds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pag_graph.diagnosis.spark.plan_view import PlanNode

    I64 = NDArray[np.int64]

__all__ = ["small_files"]

_DROPPED_NS = 1_000_000
"""So much of each batch's time Spark's timer of scans drops at most: it counts whole milliseconds."""
_WRITTEN, _WRITTEN_BYTES = "number of written files", "written output"


def small_files(look: Look) -> list[Cause]:
    """Find scans of many small files, and queries that write many of them.

    Causes: ``small_files_read``, ``small_files_written``.
    """
    scans: dict[tuple[int, int], list[PlanNode]] = {}
    for node in look.plans:
        if node.has(FILES):
            scans.setdefault((node.total(FILES), node.total(FILE_BYTES)), []).append(node)
    causes = [
        *(_many_read(look, nodes) for nodes in scans.values()),
        *(_many_written(look, node) for node in look.plans if node.has(_WRITTEN)),
    ]
    return [cause for cause in causes if cause is not None]


def _excess(look: Look, files: int, size: int, least: int = 1) -> float:
    """Return the share of files that need not be, 0 where they are not many or not small."""
    limits = look.limits
    if files < limits.small_files or size >= limits.small_file_bytes * files:
        return 0.0
    return max(0.0, 1 - max(least, -(-size // limits.file_bytes)) / files)


def _many_read(look: Look, scans: list[PlanNode]) -> Cause | None:
    """Return what small files cost scans that read as many of them and as many bytes: most likely the same ones."""
    files, size = scans[0].total(FILES), scans[0].total(FILE_BYTES)
    share = _excess(look, files, size)
    # A stage may read them more than once.
    scans_of_stage = Counter(key for scan in scans for key in look.plans.stages([scan]))
    keys = sorted(scans_of_stage)
    if not share or not keys:
        return None
    timed_ns: Counter[tuple[int, int]] = Counter()
    for scan in scans:
        timed_ns.update(scan.counted.get("scan time", {}))

    def scanning(key: tuple[int, int]) -> float:
        # Scans that read row by row have no timer: then all of the stage may be theirs. The others drop the rest of a
        # millisecond with each batch, and each file has one at least.
        dropped_ns = scans_of_stage[key] * files * _DROPPED_NS
        return min(1.0, (timed_ns[key] + dropped_ns) / look.plans.run_ns[key]) if timed_ns[key] else 1.0

    changed, gaps_ns = look.cut(keys, lambda key: share * scanning(key), warm=True), 0
    for key in keys:
        frames, between_ns = _frames(look, scans_of_stage[key] * files, scans_of_stage[key] * size, key)
        changed.parts.append(frames)
        gaps_ns += between_ns
    saved = look.saved_in(keys, changed)
    saved += gaps_ns if saved else 0
    if not look.matters(saved):
        return None
    stage = max(keys, key=lambda key: look.plans.run_ns[key])
    worst = next(scan for scan in scans if stage in look.plans.stages([scan]))
    name = look.stage_name(*stage)
    if len(keys) > 1:
        more = len(keys) - 1
        name += f" and {more:,} more stage{'s' if more > 1 else ''} each"
    mean = size / files
    reading_part = f"; reading them took {seconds(sum(timed_ns.values()))} of tasks" if timed_ns else ""
    text = f"{name} read {files:,} files of {mean / 2**20:,.2f} MiB each{reading_part}."
    proposed = f"{max(1, -(-size // look.limits.file_bytes)):,} of up to 128 MiB"
    signal = {
        "files": files,
        "bytes": size,
        "mean_bytes": int(mean),
        "scan_ns": sum(timed_ns.values()),
        "query": worst.execution,
        "stages": sorted({key[0] for key in keys}),
    }
    changes = (of_program("files of the table", f"{files:,}", proposed, f"stage {stage[0]}, {worst.label}"),)
    traps = ("Where the files lie in many partitions, each keeps one at least.",)
    facts = {"signal": signal, "changes": changes, "traps": traps, "changed": changed}
    return look.cause("small_files_read", saved, text, stage=stage[0], bound=True, **facts)


def _frames(look: Look, files: int, size: int, key: tuple[int, int]) -> tuple[tuple[I64, I64], int]:
    """Return what tasks of a stage take besides their run time only because files make so many of them.

    Tasks with the nanoseconds that each loses, and for how long all cores together are empty between those that need
    not be.
    """
    job, stage_tasks = look.schedule.jobs[look.schedule.stage_jobs[key]], look.by_stage[key]
    splits = splits_of(look.schedule, job.execution, job.start_ns)
    needed = splits.task_count(max(1, -(-size // look.limits.file_bytes)), size)
    share = max(0, min(splits.task_count(files, size), stage_tasks.height) - needed) / stage_tasks.height
    frame_ns = (stage_tasks["held"] - stage_tasks["run"]).to_numpy()
    # What the first tasks take more is no matter of files.
    cut_ns = share * np.minimum(frame_ns, np.median(frame_ns))
    cores = max(1, cores_at(look.cores, int(stage_tasks["receipt"].to_numpy().min())))
    gaps_ns = share * look.between_ns.get(key, 0) * stage_tasks.height / cores
    return (stage_tasks["number"].to_numpy(), cut_ns.astype(np.int64)), int(gaps_ns)


def _many_written(look: Look, write: PlanNode) -> Cause | None:
    files, size = write.total(_WRITTEN), write.total(_WRITTEN_BYTES)
    partitions = write.total("number of dynamic part")
    share = _excess(look, files, size, max(1, partitions))
    keys = _writing(look, write)
    if not share or not keys:
        return None
    below = {id(node): node for node in write.below()}

    def writing(key: tuple[int, int]) -> float:
        timed_nodes = [node for node in look.plans.of_stage.get(key, ()) if id(node) in below]
        timed = sum(
            node.counted.get(timer, {}).get(key, 0)
            for node in timed_nodes
            for timer in ("scan time", "sort time", "fetch wait time", "time to execute Python code")
        )
        return max(0.0, 1 - timed / look.plans.run_ns[key])

    changed = look.cut(keys, lambda key: share * writing(key))
    saved = look.saved_in(keys, changed)
    if not look.matters(saved):
        return None
    stage = max(keys, key=lambda key: look.plans.run_ns[key])
    needed = max(partitions, -(-size // look.limits.file_bytes), 1)
    tasks = look.by_stage[stage].height
    text = (
        f"{look.stage_name(*stage)} wrote {files:,} files of {size / files / 2**20:,.2f} MiB each: {tasks} tasks, each"
        f" with rows of many of {partitions:,} partitions."
        if partitions
        else f"{look.stage_name(*stage)} wrote {files:,} files of {size / files / 2**20:,.2f} MiB each."
    )
    signal = {
        "files": files,
        "bytes": size,
        "partitions": partitions,
        "tasks": tasks,
        "task_commit_ns": write.total("task commit time"),
        "job_commit_ns": write.total("job commit time"),
        "query": write.execution,
    }
    proposal = "repartition(partition columns) before writing" if partitions else "fewer tasks that write"
    place = f"stage {stage[0]}, {write.label}"
    changes = (of_program("files written", f"{files:,}", f"{needed:,}, by {proposal}", place),)
    traps = ("A partition with most of the rows becomes one long task.",)
    facts = {"signal": signal, "changes": changes, "traps": traps, "changed": changed}
    return look.cause("small_files_written", saved, text, stage=stage[0], bound=True, **facts)


def _writing(look: Look, write: PlanNode) -> list[tuple[int, int]]:
    """Return the stages of a query whose tasks wrote output."""
    keys = []
    for key, job in look.schedule.stage_jobs.items():
        stage_tasks = look.by_stage.get(key)
        of_query = look.schedule.jobs[job].execution == write.execution
        if stage_tasks is not None and of_query and (write.updates.get(key) or (stage_tasks["output_bytes"] > 0).any()):
            keys.append(key)
    return sorted(keys)
