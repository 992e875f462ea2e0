"""Places tasks on cores: an executor has the cores that it registered with, and a core one task at a time.

A log says on which executor a task ran, not on which core. A task takes the core that became free last. Its time on the
core begins after a third of its scheduler delay and is as long as Spark measured; the rest of the delay follows.

The driver's times are later than the executor's by an unknown part of that delay, so tasks of one core can overlap for
some milliseconds. In this order: the later task begins later within its own delay; the earlier one begins sooner within
its delay; the longer of both loses the overlap, at most half of what it measured. Only tasks that overlap for longer
get a core that the executor did not register.

Definitions stand in `docs/spark.md`, "The mapping".
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from pag_graph.sources.spark.log_tables import LogFinding, SparkLog, note

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    I64 = NDArray[np.int64]

__all__ = ["IDLE_CORES", "MS", "STRETCH", "Core", "place_tasks", "stated_cores"]

MS = 1_000_000
"""Nanoseconds in a millisecond."""

IDLE_CORES = 64
"""So many cores without a task are workers all the same, and as many as there are tasks: what a log states of cores
must not decide how long it takes to answer."""

STRETCH = 10_000
"""Tasks at a time where what is made of them would else be large."""

_LOCAL = re.compile(r"local\[(\d{1,5})(?:,\s*\d+)?\]", re.ASCII)

_MOMENTS = 0.05
"""Least part of an executor's work on cores beyond those that it registered for them to count as cores."""

_PARTS = ("work", "gc", "fetch_wait", "write", "serialize", "deserialize")
"""Parts of a task in the order in which an overlap is cut from them."""


@dataclass(slots=True, kw_only=True)
class Core:
    """A place for one task at a time in an executor."""

    executor: int
    """Index of the executor."""
    number: int
    """Number of the core in the executor, from 0."""


def stated_cores(log: SparkLog, executor: str, registered: int | None) -> int:
    """Return how many cores an executor has, as far as it is stated.

    Parameters
    ----------
    log
        Its settings count where the executor does not tell: ``local[N]`` in local mode, else ``spark.executor.cores``.
    executor
        The executor's id; ``driver`` in local mode.
    registered
        With how many it registered; None or 0 where the log does not say.

    Returns
    -------
    int
        0 where nothing says it.
    """
    if registered:
        return registered
    if executor == "driver":
        local = _LOCAL.fullmatch(log.properties.get("spark.master", ""))
        return int(local[1]) if local else 0
    return _positive(log.properties.get("spark.executor.cores", ""))


def _positive(text: str) -> int:
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 6 else 0  # noqa: PLR2004 no such machine


def place_tasks(
    log: SparkLog, tasks: pl.DataFrame, executors: pl.DataFrame, findings: list[LogFinding]
) -> tuple[pl.DataFrame, list[Core], list[int]]:
    """Give every task a core and its time on it.

    Parameters
    ----------
    log
        Its settings say how many cores a task takes.
    tasks
        One row per task attempt by launch time: `executor`, `launch`, `delivered`, `delay`, `unmeasured` and its parts.
    executors
        One row per executor, with its `code` in the tasks and its `cores` (0 if unknown).
    findings
        What is odd is added.

    Returns
    -------
    tasks
        With `core`, `receipt`, `begin` and `free`, in nanoseconds; parts are shorter where tasks overlapped.
    cores
        Those that ran a task, and of the others as many as `IDLE_CORES` allows.
    more_cores
        Per executor: how many cores it has on top of these; less than 0 where tasks overlapped for moments only.
    """
    places = _Places(tasks)
    codes = tasks["executor"].to_numpy()
    per_task = max(1, _positive(log.properties.get("spark.task.cpus", "1")))
    cores: list[Core] = []
    more_cores: list[int] = []
    extra, room, left_out = 0, max(IDLE_CORES, tasks.height), 0
    for number, executor_row in enumerate(executors.iter_rows(named=True)):
        executor_tasks = np.flatnonzero(codes == executor_row["code"])
        slots = max(1, executor_row["cores"] // per_task) if executor_row["cores"] else 0
        count, beyond = places.fill(executor_tasks, slots, len(cores))
        # An executor without tasks is one core at least: the driver hears from it.
        idle = max(0, slots - count)
        had_before = log.cores.get(executor_row["executor"], 0) - count
        idle_shown = max(min(idle, room), int(slots > 0 and not count), had_before)
        room = max(0, room - idle_shown)
        left_out += max(0, idle - idle_shown)
        if slots and count > slots:
            extra += count - slots
            more_cores.append(slots - count if beyond < _MOMENTS else 0)
        else:
            more_cores.append(max(0, idle - idle_shown))
        cores += [Core(executor=number, number=core) for core in range(count + idle_shown)]
    cut = int(places.cut.sum())
    detail = f"tasks of an executor overlap for moments: one begins later or ends sooner, {cut / MS:.0f} ms of work cut"
    note(findings, "task_launch_shifted", "info", places.shifted, "tasks", detail)
    added = "tasks of an executor overlap on more cores than it has; cores were added"
    note(findings, "more_tasks_than_cores", "warning", extra, "cores", added)
    idle_text = "cores without a task that count as idle, but are no workers of the trace"
    note(findings, "idle_cores_left_out", "info", left_out, "cores", idle_text)
    return places.placed(tasks), cores, more_cores


class _Seat(NamedTuple):
    """What a busy core can give up so that the next task fits."""

    core: int
    sooner: int
    """How much sooner its last task can begin."""
    cut: int
    """What must be cut from one of both, then."""
    of_earlier: bool
    """From which of them: the longer one."""


class _Places:
    """The tasks' places in the making; one row per task."""

    def __init__(self, tasks: pl.DataFrame) -> None:
        self.launch, self.delivered, self.delay = (tasks[name].to_numpy() for name in ("launch", "delivered", "delay"))
        self.soft = tasks["unmeasured"].to_numpy()
        size = tasks.height
        self.core = np.zeros(size, np.int32)
        self.begin, self.free, self.receipt, self.cut = (np.zeros(size, np.int64) for _ in range(4))
        self.shifted = 0

    def fill(self, rows: I64, slots: int, base: int) -> tuple[int, float]:
        """Place the tasks of one executor, which come by launch time, on cores from number `base` on.

        Returns
        -------
        count
            Cores that were needed.
        beyond
            Part of the executor's work that is on other cores than its `slots`.
        """
        cores = _ExecutorCores(self, slots)
        columns = (
            chain.from_iterable(_stretches(values[rows])) for values in (self.launch, self.delivered, self.delay)
        )
        for task, start, until, room in zip(chain.from_iterable(_stretches(rows)), *columns, strict=True):
            core = cores.take(task, start, until, room)
            self.core[task] = base + core
        work = sum(cores.work)
        return len(cores.busy), sum(cores.work[slots:]) / work if work else 0.0

    def placed(self, tasks: pl.DataFrame) -> pl.DataFrame:
        """Return the tasks with their places, and parts that fit them."""
        tasks = tasks.with_columns(
            core=pl.Series(self.core),
            receipt=pl.Series(self.receipt),
            begin=pl.Series(self.begin),
            free=pl.Series(self.free),
        )
        if not self.cut.any():
            return tasks
        left_to_cut: pl.Expr = pl.col("_cut")
        cut_parts: dict[str, pl.Expr] = {}
        for name in _PARTS:
            cut_parts[name] = pl.col(name) - pl.min_horizontal(name, left_to_cut)
            left_to_cut = (left_to_cut - pl.col(name)).clip(lower_bound=0)
        run = pl.sum_horizontal(*(pl.col(name) - cut_parts[name] for name in ("work", "gc", "fetch_wait", "write")))
        return (
            tasks.with_columns(_cut=pl.Series(self.cut)).with_columns(**cut_parts, run=pl.col("run") - run).drop("_cut")
        )


@dataclass(slots=True)
class _ExecutorCores:
    """The cores of one executor while its tasks are placed."""

    places: _Places
    slots: int
    """How many it registered; 0 if that is unknown."""
    busy: list[int] = field(default_factory=list)
    """Per core: when its last task's work ends."""
    last: list[int] = field(default_factory=list)
    """Per core: which task that was."""
    work: list[int] = field(default_factory=list)
    """Per core: nanoseconds that its tasks worked."""

    def take(self, task: int, start: int, until: int, room: int) -> int:
        """Place a task launched at `start` and answered at `until`, with a delay of `room`; return its core."""
        places, latest = self.places, start + room
        core = self._free(start, latest)
        if core < 0:
            core = self._yielding(start)
        if core < 0 and self.slots:
            core = self._pressed(task, until, latest)
        if core < 0:
            core = self._new()
        taken_up = max(start, self.busy[core])
        begins = max(taken_up, min(start + room // 3, latest))
        before = self.last[core]
        if before >= 0:
            # What is left of the delay of the task before ends at the latest when this one is taken up.
            places.free[before] = min(places.free[before], taken_up)
        places.begin[task], places.receipt[task], places.free[task] = begins, taken_up, until
        length = until - start - room - int(places.cut[task])
        self.busy[core], self.last[core] = begins + length, task
        self.work[core] += length
        return core

    def _new(self) -> int:
        self.busy.append(0)
        self.last.append(-1)
        self.work.append(0)
        return len(self.busy) - 1

    def _free(self, start: int, latest: int) -> int:
        """Return the core that became free last, else a new one, else one that is free within the delay; else -1."""
        best, fallback = -1, -1
        for core, end in enumerate(self.busy):
            if end <= start:
                if best < 0 or end > self.busy[best]:
                    best = core
            elif end <= latest and (fallback < 0 or end < self.busy[fallback]):
                fallback = core
        if best < 0 and len(self.busy) < self.slots:
            best = self._new()
        return best if best >= 0 else fallback

    def _yielding(self, start: int) -> int:
        """Return a core whose last task has no metrics: the driver knew that it was free before it wrote that down."""
        places = self.places
        soft = [k for k, task in enumerate(self.last) if places.soft[task] and places.begin[task] <= start]
        if not soft:
            return -1
        core = min(soft, key=lambda k: self.busy[k])
        self._end_sooner(core, self.busy[core] - start)
        places.shifted += 1
        return core

    def _pressed(self, task: int, until: int, latest: int) -> int:
        """Return a core where the task fits if it or the one before it gives way, as the module says."""
        seats = [seat for core in range(len(self.busy)) if (seat := self._seat(core, until, latest)) is not None]
        if not seats:
            return -1
        seat = min(seats, key=lambda seat: (seat.cut, seat.sooner, seat.core))
        self.places.begin[self.last[seat.core]] -= seat.sooner
        self.busy[seat.core] -= seat.sooner
        if seat.of_earlier:
            self._end_sooner(seat.core, seat.cut)
        else:
            self.places.cut[task] += seat.cut
        self.places.shifted += 1
        return seat.core

    def _seat(self, core: int, until: int, latest: int) -> _Seat | None:
        places, before, end = self.places, self.last[core], self.busy[core]
        begin = int(places.begin[before])
        sooner = min(begin - int(places.receipt[before]), end - latest)
        cut = end - sooner - latest
        of_earlier = end - begin >= until - latest
        return _Seat(core, sooner, cut, of_earlier) if 2 * cut <= max(end - begin, until - latest) else None

    def _end_sooner(self, core: int, cut: int) -> None:
        self.places.cut[self.last[core]] += cut
        self.busy[core] -= cut
        self.work[core] -= cut


def _stretches(values: I64) -> Iterator[list[int]]:
    return (values[begin : begin + STRETCH].tolist() for begin in range(0, values.size, STRETCH))
