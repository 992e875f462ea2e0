"""A recorded trace, written once more as its recorder did: in portions, each when it is due.

The loop is open: what is due is written then, or as soon as possible, whether somebody keeps up with it or not. All
files are made before the first is due, so that writing them costs only their names.
"""

from __future__ import annotations

import dataclasses
import math
import os
import shutil
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from pag_graph.errors import InvalidParameterError, StoreError
from pag_graph.model.tables import TRACE_EVENTS
from pag_graph.store.in_place import refusals, whole_folder
from pag_graph.store.log import TraceLog, column
from pag_graph.store.meta import write_meta
from pag_graph.store.trace import Trace, check_trace_place, write_table
from pag_graph.store.trace_columns import conform
from pag_graph.store.trace_files import EVENTS, FINDINGS, META

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LATE_NS = 50_000_000
"""A run in which more than one of a hundred events came later than so long after it was due measures nothing."""
_HIDDEN = "prepared"
"""Folder of files that are not due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """What a replay did."""

    events: int
    files: int
    duration_s: float
    """From the first file to the last one."""
    offered_per_s: float | None
    """Events per second as they were due; None where they were written as fast as possible."""
    achieved_per_s: float
    late_p50_ns: int | None
    """How much later than due events were written: the median, at least so much for one in a hundred, and the most."""
    late_p99_ns: int | None
    late_max_ns: int | None

    @property
    def valid(self) -> bool:
        """Whether events came when they were due, so that what somebody measured meanwhile means something."""
        return self.late_p99_ns is None or self.late_p99_ns <= LATE_NS


class _Portion(NamedTuple):
    """A file that waits until it is due."""

    due_ns: int
    """After the start."""
    name: str
    rows: int


def speed_of(text: str) -> float | None:
    """Return what ``2x`` or ``0.5x`` says as a number; None for ``max``.

    Raises
    ------
    InvalidParameterError
        If it says nothing of that.
    """
    if text == "max":
        return None
    try:
        speed = float(text.removesuffix("x"))
    except ValueError:
        speed = 0.0
    if not 0 < speed < float("inf"):
        message = f"{text!r} is no speed; write 1x, 2x, 0.5x or max."
        raise InvalidParameterError(message)
    return speed


def replay(
    trace: str | os.PathLike[str],
    to: str | os.PathLike[str],
    *,
    speed: float | None = 1.0,
    flush_every_s: float = 0.5,
    replace_target: bool = False,
    now: Callable[[], int] = time.monotonic_ns,
    sleep: Callable[[float], None] = time.sleep,
) -> ReplayReport:
    """Write a recorded trace as its recorder did.

    Parameters
    ----------
    trace
        The recorded trace.
    to
        Directory to make.
    speed
        How much faster than it was recorded; None: as fast as possible.
    flush_every_s
        How often events are written; each then becomes a file per worker, with all that is due.
    replace_target
        Whether to replace a trace that is there.
    now, sleep
        The clock, in nanoseconds, and what waits for it, in seconds.

    Returns
    -------
    ReplayReport
        How well it kept to the time.

    Raises
    ------
    InvalidParameterError
        If a number is out of range.
    StoreExistsError
        If something is in the place of `to`.
    TraceFormatError
        If the trace cannot be read.
    """
    if flush_every_s <= 0 or (speed is not None and speed <= 0):
        message = "Speed and the time between two files must be more than 0."
        raise InvalidParameterError(message)
    opened, target = Trace.open(trace), Path(to).absolute()
    check_trace_place(target, replace=replace_target)
    check = partial(check_trace_place, target, replace=replace_target)
    with refusals(target, "The trace", StoreError), whole_folder(target, check=check) as folder:
        _describe(opened, folder)
        portions = _prepare(opened, folder / _HIDDEN, round(flush_every_s * 1e9 * (speed or 1.0)))
    with refusals(target, "The trace", StoreError):
        return _publish(opened, target, portions, speed, now, sleep)


def _describe(trace: Trace, folder: Path) -> None:
    """Write what a recorder writes before the first event."""
    for name in (EVENTS, _HIDDEN):
        (folder / name).mkdir()
    for name, table in (("operators", trace.operators), ("channels", trace.channels), ("workers", trace.workers)):
        write_table(folder / f"{name}.parquet", table)
    if (trace.path / FINDINGS).is_file():
        shutil.copyfile(trace.path / FINDINGS, folder / FINDINGS)
    write_meta(dataclasses.replace(trace.meta, complete=False), folder / META)


def _prepare(trace: Trace, folder: Path, every_ns: int) -> list[_Portion]:
    """Write all files, and say when each is due, in time of the trace; in that order."""
    log = TraceLog.index(trace)
    offsets = dict(zip(trace.workers["worker"].to_pylist(), trace.workers["offset_ns"].to_pylist(), strict=True))
    begin = min(chunks[0].t_min + offsets[worker] for worker, chunks in log.chunks.items())
    portions = []
    for worker in log.chunks:
        portions_of = _portions(log, worker, begin - offsets[worker], max(every_ns, 1))
        for number, (tick, table) in enumerate(portions_of):
            name = f"worker-{worker:07}-{number:07}.parquet"
            write_table(folder / name, conform(table, TRACE_EVENTS, where=name))
            portions.append(_Portion(tick * every_ns, name, table.num_rows))
    return sorted(portions)


def _portions(log: TraceLog, worker: int, begin_ns: int, every_ns: int) -> Iterator[tuple[int, pa.Table]]:
    """Cut the log of a worker at every tick; ticks count from `begin_ns` on the worker's own clock."""
    held: list[pa.Table] = []
    current = 0
    for table in log.tables(worker, 0, log.rows_of(worker), TraceLog.columns):
        # Rows are due at the first tick that is not before them.
        ticks = -(-(column(table, "t_ns") - begin_ns) // every_ns)
        at = 0
        while at < len(ticks):
            end = int(np.searchsorted(ticks, ticks[at], side="right"))
            if held and ticks[at] != current:
                yield current, pa.concat_tables(held, promote_options="default")
                held = []
            current = int(ticks[at])
            held.append(table.slice(at, end - at))
            at = end
    if held:
        yield current, pa.concat_tables(held, promote_options="default")


def _publish(
    trace: Trace,
    target: Path,
    portions: list[_Portion],
    speed: float | None,
    now: Callable[[], int],
    sleep: Callable[[float], None],
) -> ReplayReport:
    """Give each file its name when it is due."""
    start = now()
    late = np.zeros(len(portions), np.int64)
    for number, portion in enumerate(portions):
        due = start if speed is None else start + round(portion.due_ns / speed)
        while (left := due - now()) > 0:
            sleep(left / 1e9)
        hidden = target / _HIDDEN / portion.name
        # What it tells of its age is when it came.
        os.utime(hidden)
        hidden.replace(target / EVENTS / portion.name)
        late[number] = now() - due
    shutil.rmtree(target / _HIDDEN)
    seconds = max((now() - start) / 1e9, 1e-9)
    if trace.meta.complete:
        write_meta(trace.meta, target / f"{META}.tmp")
        (target / f"{META}.tmp").replace(target / META)
    rows = np.array([portion.rows for portion in portions], np.int64)
    events = int(rows.sum())
    order = np.argsort(late)
    ranks = np.cumsum(rows[order])

    def quantile(share: float) -> int | None:
        if speed is None:
            return None
        return int(late[order][np.searchsorted(ranks, math.ceil(share * events))])

    due_s = portions[-1].due_ns / 1e9 / (speed or 1.0)
    return ReplayReport(
        events=events,
        files=len(portions),
        duration_s=seconds,
        offered_per_s=None if speed is None or not due_s else events / due_s,
        achieved_per_s=events / seconds,
        late_p50_ns=quantile(0.5),
        late_p99_ns=quantile(0.99),
        late_max_ns=quantile(1.0),
    )
