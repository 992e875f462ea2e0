"""A program that goes on for long: a recorded run again and again, written in time, each portion made when it is due.

It is what `bench.multiply` makes, but for the gaps, which end where a portion does; and it needs no room but for its
trace, and begins at once. The loop is open, as that of `pag replay`.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from bench.multiply import log_of
from pag_graph.model.ranks import nearest_rank
from pag_graph.model.tables import TRACE_EVENTS
from pag_graph.store.meta import write_meta
from pag_graph.store.trace import Trace, write_table
from pag_graph.store.trace_columns import conform
from pag_graph.store.trace_files import EVENTS, META

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_HIDDEN = "prepared.parquet"


class Shift(NamedTuple):
    """What each copy adds to the values of the one before."""

    t_ns: int
    epoch: int
    message_seq: int


class Portion(NamedTuple):
    """Rows of a worker that are written together."""

    due_s: float
    """After the begin of the copy."""
    worker: int
    rows: pl.DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class Paced:
    """What a program did."""

    events: int
    copies: int
    duration_s: float
    late_p50_ns: int
    late_p99_ns: int
    late_max_ns: int


def paced(
    source: Path,
    target: Path,
    *,
    rate: float,
    copies: int,
    flush_s: float = 0.25,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Paced:
    """Write a recorded run so many times, one after the other.

    Parameters
    ----------
    source
        A trace whose run ended with nothing open.
    target
        Directory to make.
    rate
        Events per second, on average.
    copies
        How many.
    flush_s
        How often events are written.
    now, sleep
        The clock and what waits for it, in seconds.

    Returns
    -------
    Paced
        How well it kept to the time.
    """
    trace = Trace.open(source)
    (target / EVENTS).mkdir(parents=True)
    for name, table in (("operators", trace.operators), ("channels", trace.channels), ("workers", trace.workers)):
        write_table(target / f"{name}.parquet", table)
    meta = replace(trace.meta, trace_id=f"{trace.meta.trace_id[:24]}{copies:08x}", complete=False)
    write_meta(meta, target / META)
    portions, shift, copy_s = cut(trace, rate, flush_s)
    numbers = dict.fromkeys(trace.workers["worker"].to_pylist(), 0)
    last = {
        worker: max(int(rows["seq"][-1]) for _, portion_worker, rows in portions if portion_worker == worker)
        for worker in numbers
    }
    start_s, late, weights = now(), [], []
    for copy in range(copies):
        for due_s, worker, rows in portions:
            later = rows.with_columns(
                pl.col("t_ns") + copy * shift.t_ns,
                pl.col("epoch") + copy * shift.epoch,
                pl.col("message_seq") + copy * shift.message_seq,
                pl.col("seq") + copy * last[worker],
            )
            hidden = target / _HIDDEN
            write_table(hidden, conform(later.to_arrow(), TRACE_EVENTS, where="a portion"))
            due_at_s = start_s + copy * copy_s + due_s
            while (wait_s := due_at_s - now()) > 0:
                sleep(wait_s)
            os.utime(hidden)
            hidden.replace(target / EVENTS / f"worker-{worker:07}-{numbers[worker]:07}.parquet")
            numbers[worker] += 1
            late.append(round((now() - due_at_s) * 1e9))
            weights.append(rows.height)
    took = now() - start_s
    write_meta(replace(meta, complete=True), target / f"{META}.tmp")
    (target / f"{META}.tmp").replace(target / META)
    lateness, rows_of = np.array(late), np.array(weights)
    return Paced(
        events=int(rows_of.sum()),
        copies=copies,
        duration_s=took,
        late_p50_ns=nearest_rank(lateness, 0.5, rows_of),
        late_p99_ns=nearest_rank(lateness, 0.99, rows_of),
        late_max_ns=int(lateness.max()),
    )


def cut(trace: Trace, rate: float, flush_s: float) -> tuple[list[Portion], Shift, float]:
    """Cut a run into portions at every tick, and say what a copy adds, and how long it takes.

    Parameters
    ----------
    trace
        The run.
    rate, flush_s
        As of `paced`.

    Returns
    -------
    list of Portion, Shift, float
        In the order in which they are due; a copy takes a whole number of ticks, in seconds.
    """
    workers = trace.workers
    offsets = dict(zip(workers["worker"].to_pylist(), workers["offset_ns"].to_pylist(), strict=True))
    logs = {worker: log_of(trace, worker) for worker in offsets}
    begin = min(int(log["t_ns"][0]) + offsets[worker] for worker, log in logs.items())
    end = max(int(log["t_ns"][-1]) + offsets[worker] for worker, log in logs.items())
    events = sum(log.height for log in logs.values())
    ticks = max(round(events / rate / flush_s), 1)
    tick_ns = -(-(end - begin + 1) // ticks)
    portions = []
    for worker, log in logs.items():
        tick = ((log["t_ns"] + offsets[worker] - begin) // tick_ns).alias("tick")
        for (number,), rows in log.with_columns(tick).partition_by("tick", as_dict=True, maintain_order=True).items():
            portions.append(Portion((int(number) + 1) * flush_s, worker, rows.drop("tick")))
    epochs = (
        1
        + max(int(log["epoch"].max()) for log in logs.values())
        - min(int(log["epoch"].min()) for log in logs.values())
    )
    numbers = 1 + max(int(log["message_seq"].fill_null(0).max()) for log in logs.values())
    return sorted(portions, key=lambda portion: portion.due_s), Shift(ticks * tick_ns, epochs, numbers), ticks * flush_s
