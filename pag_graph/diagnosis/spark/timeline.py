"""Who did what when, drawn: the driver's jobs, the cores' tasks by stage, and the critical path above them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from pag_graph.diagnosis.spark.lines import seconds
from pag_graph.formats import svg
from pag_graph.sources.spark.schedule import executor_ends

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pag_graph.diagnosis.spark.answer import SparkAnswer

    I64 = NDArray[np.int64]

__all__ = ["timeline"]

_WIDTH, _ROW, _LEFT = 1100, 16, 150
_MOST_ROWS = 48
_MOST_LANES = 8
_BINS = 110
"""Stretches of time for which a folded row says how busy its cores were."""
_LEVELS = 5
_COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#76b7b2", "#edc948", "#9c755f", "#ff9da7")
_BUSY = ("#eceff3", "#c9d8e8", "#9db9d6", "#6f98c1", "#4e79a7", "#2f5279")
_WASTED, _PATH, _DRIVER = "#c0392b", "#111111", "#8a8f98"


class _Canvas:
    """Rows of boxes over the application's time."""

    def __init__(self, end_ns: int) -> None:
        self.end_ns = end_ns
        self.scale = _WIDTH / max(end_ns, 1)
        self.rows: list[str] = []
        self.shapes: list[str] = []

    def box(self, row: int, start: int, end: int, colour: str, words: str, *, thin: bool = False) -> None:
        """Draw a stretch of time in a row."""
        x, width = _LEFT + start * self.scale, max((end - start) * self.scale, 0.4)
        y, height = row * _ROW + (0 if thin else 3), (2.5 if thin else _ROW - 5)
        self.shapes.append(svg.rect(x, y, width, height, colour, title=words))

    def document(self) -> str:
        """Return it as SVG with the times below."""
        labels = [svg.text(0, row * _ROW + 12, words, font_size=11) for row, words in enumerate(self.rows)]
        height = len(self.rows) * _ROW + 20
        tenths = [(_LEFT + _WIDTH * tenth / 10, f"{self.end_ns * tenth / 10 / 1e9:.1f} s") for tenth in range(11)]
        drawn = [*labels, *self.shapes, *svg.marks(tenths, height - 4, font_size=10)]
        return svg.document(drawn, _LEFT + _WIDTH + 30, height, family="system-ui,sans-serif")


def timeline(answer: SparkAnswer) -> str:
    """Return the timeline as SVG with its legend: a row per core, or where there are many one per executor.

    Parameters
    ----------
    answer
        Of one log.

    Returns
    -------
    str
        HTML. The whole cluster is in it: more executors than rows share rows.
    """
    schedule, mapped = answer.mapped.schedule, answer.mapped
    canvas = _Canvas(schedule.end_ns)
    lanes = min(mapped.lanes, _MOST_LANES)
    canvas.rows += ["driver" if lane == 0 else f"driver lane {lane + 1}" for lane in range(lanes)]
    for job in schedule.jobs:
        if job.lane < lanes:
            span = seconds(job.end_ns - job.start_ns)
            canvas.box(job.lane, job.start_ns, job.end_ns, _DRIVER, f"{job.label}: {job.name} ({span})")
    folded = len(schedule.cores) > _MOST_ROWS
    row_of = _folded_cores(canvas, answer) if folded else _cores(canvas, answer)
    lane_rows = {lane: lane for lane in range(lanes)}
    for worker, start, length in _path(answer.steps, 0.5 / canvas.scale):
        lane_row = lane_rows.get(worker, row_of.get(worker - mapped.lanes))
        if lane_row is not None:
            canvas.box(lane_row, start, start + length, _PATH, "critical path", thin=True)
    tasks = (
        f"A row is an executor, or several ({len(schedule.cores):,} cores in all); the darker, the more of its cores"
        " were busy."
        if folded
        else "Coloured: tasks by stage; red: attempts that did not count; pale: the core was there, without a task."
    )
    legend = f"<p>Grey: jobs on the driver. {tasks} The line above: the critical path.</p>"
    return canvas.document() + legend


def _cores(canvas: _Canvas, answer: SparkAnswer) -> dict[int, int]:
    """Draw a row per core; return the row of each."""
    schedule = answer.mapped.schedule
    ends, executors, first_row = executor_ends(schedule), schedule.executors.to_dicts(), len(canvas.rows)
    for index, core in enumerate(schedule.cores):
        executor = executors[core.executor]
        label = _label(executor["executor"])
        canvas.rows.append(f"{label} core {core.number + 1}")
        words = f"{label} on {executor['host']}"
        canvas.box(first_row + index, executor["added"], ends[core.executor], _BUSY[0], words)
    for place, stage, colour, start, end, count, counted in _boxes(schedule.tasks, 1 / canvas.scale):
        text = f"stage {stage}, {count} task{'s' if count > 1 else ''}, {seconds(end - start)}"
        words = text + ("" if counted else ", did not count")
        canvas.box(first_row + place, start, end, colour if counted else _WASTED, words)
    return {index: first_row + index for index in range(len(schedule.cores))}


def _folded_cores(canvas: _Canvas, answer: SparkAnswer) -> dict[int, int]:
    """Draw a row per executor, or for several; return the row of each core."""
    schedule = answer.mapped.schedule
    executors, first_row = schedule.executors.to_dicts(), len(canvas.rows)
    used = sorted({core.executor for core in schedule.cores})
    count = min(len(used), _MOST_ROWS)
    place_of = {executor: place * count // len(used) for place, executor in enumerate(used)}
    members: dict[int, list[int]] = {}
    for executor, place in place_of.items():
        members.setdefault(place, []).append(executor)
    for place in range(count):
        executors_of_row = members[place]
        label = _label(executors[executors_of_row[0]]["executor"])
        canvas.rows.append(label if len(executors_of_row) == 1 else f"{label} and {len(executors_of_row) - 1} more")
    rows = np.array([place_of[core.executor] for core in schedule.cores], np.int64)
    sizes = np.bincount(rows, minlength=count)
    busy = _busy(answer, rows, count) / np.maximum(sizes, 1)[:, None]
    width = max(schedule.end_ns, 1) / _BINS
    for place in range(count):
        levels = np.ceil(np.minimum(busy[place], 1) * _LEVELS).astype(int)
        stops = [*np.flatnonzero(np.diff(levels)) + 1, _BINS]
        start = 0
        for stop in stops:
            level, share = int(levels[start]), float(busy[place, start:stop].mean())
            words = f"{canvas.rows[first_row + place]}: {share:.0%} of {sizes[place]} cores busy"
            canvas.box(first_row + place, int(start * width), int(stop * width), _BUSY[level], words)
            start = int(stop)
    return {index: first_row + int(row) for index, row in enumerate(rows)}


def _busy(answer: SparkAnswer, rows: I64, count: int) -> NDArray[np.float64]:
    """Return how many cores of each row were busy on average in each stretch of time."""
    schedule = answer.mapped.schedule
    tasks = schedule.tasks
    row_of_task = rows[tasks["core"].to_numpy()]
    width = max(schedule.end_ns, 1) / _BINS
    edges = np.arange(_BINS + 1) * width
    busy = np.zeros((count, _BINS))
    for place in range(count):
        row_tasks = tasks.filter(pl.Series(row_of_task == place))
        # Time in tasks up to each edge: what has begun before, less what is still to come of it.
        busy_before = np.zeros(_BINS + 1)
        for name, sign in (("receipt", 1.0), ("free", -1.0)):
            times = np.sort(row_tasks[name].to_numpy()).astype(float)
            sums = np.concatenate([[0.0], np.cumsum(times)])
            before = np.searchsorted(times, edges)
            busy_before += sign * (before * edges - sums[before])
        busy[place] = np.diff(busy_before) / width
    return busy


def _label(executor: str) -> str:
    return "local" if executor == "driver" else f"executor {executor}"


def _boxes(tasks: pl.DataFrame, pixel: float) -> list[tuple[int, int, str, int, int, int, bool]]:
    """Return what to draw: tasks of one stage that touch within a pixel are one box."""
    rows = (
        tasks.with_columns(counted=pl.col("succeeded") | pl.col("running"))
        .sort("core", "receipt")
        .with_columns(
            new=(
                (pl.col("stage") != pl.col("stage").shift(1).over("core"))
                | (pl.col("counted") != pl.col("counted").shift(1).over("core"))
                | (pl.col("receipt") - pl.col("free").shift(1).over("core") > pixel)
                | (pl.col("free") - pl.col("receipt") > 3 * pixel)
            ).fill_null(value=True)
        )
        .with_columns(box=pl.col("new").cum_sum())
        .group_by("box", maintain_order=True)
        .agg(
            pl.col("core").first(),
            pl.col("stage").first(),
            pl.col("receipt").min().alias("start"),
            pl.col("free").max().alias("end"),
            pl.len().cast(pl.Int64).alias("count"),
            pl.col("counted").first(),
        )
    )
    return [
        (core, stage, _COLOURS[stage % len(_COLOURS)], start, end, count, counted)
        for _, core, stage, start, end, count, counted in rows.iter_rows()
    ]


def _path(steps: pl.DataFrame, pixel: float) -> list[tuple[int, int, int]]:
    """Return the path's local steps: neighbours on one worker are one line."""
    local = steps.filter((pl.col("worker") == pl.col("to_worker")) & (pl.col("duration_ns") > 0)).sort("start_ns")
    rows = (
        local.with_columns(
            new=(
                (pl.col("worker") != pl.col("worker").shift(1))
                | (pl.col("start_ns") - (pl.col("start_ns") + pl.col("duration_ns")).shift(1) > pixel)
            ).fill_null(value=True)
        )
        .with_columns(line=pl.col("new").cum_sum())
        .group_by("line", maintain_order=True)
        .agg(
            pl.col("worker").first(),
            pl.col("start_ns").min(),
            (pl.col("start_ns") + pl.col("duration_ns")).max().alias("end"),
        )
    )
    return [(worker, start, end - start) for _, worker, start, end in rows.iter_rows()]
