"""A large trace out of a recorded one: the whole run again and again, each time later, in later epochs.

Copy k of every worker's log follows copy k - 1. Its times are later by k times the run's length, plus a gap between
the copies that is drawn from a seed (1 to 2 ms, the same for all workers); epochs, numbers of events and numbers of
messages go on where the copy before ended. So every message of the recording is matched once in every copy, no two
copies share a key, and all workers stay on the clocks that they had. What differs from a run of that length: nothing
drifts, and the run's startup and shutdown come again in every copy.

Where epochs are given as copies, so many copies are one: a round that is as long as they are.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

import polars as pl

from pag_graph.model.enums import EventKind
from pag_graph.store.trace import Trace, write_trace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

    from bench.harness import Session

_SEED = 1
_GAP_NS = (1_000_000, 2_000_000)


def multiplied(session: Session, recorded: Path, times: int, *, per_epoch: int | None = None) -> Path:
    """Return a recorded trace many times over: a fixed input, with the gaps of seed 1."""
    stem = f"{recorded.name.removesuffix('.trace')}-x{times}-{_SEED}"
    make = partial(multiply, recorded, times=times, seed=_SEED, per_epoch=per_epoch)
    return session.fixed(f"{stem}.trace" if per_epoch is None else f"{stem}-by-{per_epoch}.trace", make)


def multiply(source: Path, target: Path, *, times: int, seed: int, per_epoch: int | None = None) -> None:
    """Write a trace that repeats another one.

    Parameters
    ----------
    source
        A trace whose run ended with nothing open.
    target
        Where to write; must not exist.
    times
        How many copies, at least one.
    seed
        Of the gaps between them.
    per_epoch
        How many copies are one epoch, which ends where the last of them does; None for the epochs as they were.
    """
    trace = Trace.open(source)
    draw = random.Random(seed)
    logs = {worker: log_of(trace, worker) for worker in trace.workers["worker"].to_pylist()}
    offset = dict(zip(trace.workers["worker"].to_pylist(), trace.workers["offset_ns"].to_pylist(), strict=True))
    common = [log["t_ns"] + offset[worker] for worker, log in logs.items()]
    length = max(int(t[-1]) for t in common) - min(int(t[0]) for t in common)
    begins = [0]
    for _ in range(1, times):
        begins.append(begins[-1] + length + draw.randint(*_GAP_NS))
    epochs = (
        1 + max(int(log["epoch"][-1]) for log in logs.values()) - min(int(log["epoch"][0]) for log in logs.values())
    )
    numbers = 1 + max(int(log["message_seq"].fill_null(0).to_numpy().max()) for log in logs.values())

    sent = dict.fromkeys(logs, 0)

    def copies() -> Iterator[tuple[str, pa.Table]]:
        for worker, log in logs.items():
            first, last = int(log["seq"][0]), int(log["seq"][-1])
            for copy, begin in enumerate(begins):
                later = log.with_columns(
                    pl.col("t_ns") + begin,
                    pl.col("epoch") + copy * epochs,
                    pl.col("seq") + copy * (last - first + 1),
                    pl.col("message_seq") + copy * numbers,
                )
                if per_epoch is not None:
                    ends, last = pl.col("kind") == EventKind.EPOCH_END, copy % per_epoch == per_epoch - 1
                    later = later.filter(~ends | (ends.reverse().cum_sum().reverse() == 1) & last)
                    epoch = int(log["epoch"][0]) + copy // per_epoch
                    later = later.with_columns(
                        epoch=pl.lit(epoch, pl.Int64), seq=sent[worker] + pl.int_range(1, pl.len() + 1)
                    )
                    sent[worker] += later.height
                yield f"worker-{worker:07}-{copy:07}", later.to_arrow()

    identity_text = f"{trace.meta.trace_id} {times} {seed}{'' if per_epoch is None else f' by {per_epoch}'}"
    identity = sha256(identity_text.encode()).hexdigest()[:32]
    write_trace(
        target,
        meta=replace(trace.meta, trace_id=identity),
        events=copies(),
        operators=trace.operators,
        channels=trace.channels,
        workers=trace.workers,
    )


def log_of(trace: Trace, worker: int) -> pl.DataFrame:
    """Return the rows of a worker, in the order of its log; words as texts."""
    frame = pl.DataFrame(trace.events(workers=[worker]))
    return frame.with_columns(pl.col("kind", "activity").cast(pl.String))
