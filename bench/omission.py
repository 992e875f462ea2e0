"""What a stall costs in an open loop, and what a closed loop leaves out of it (docs/latency.md)."""

from __future__ import annotations

import shutil
import statistics
from typing import TYPE_CHECKING

from bench.harness import Bench, Figure, Session
from pag_graph import api
from pag_graph.sources.record import build_program, run_program

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl

_INPUTS = 1_200
_STALLED_MS = 500
_LATE_NS = 25_000_000
_LOOPS = {"open loop, 1 kHz": ("1000", "450 to 550 late"), "closed loop": ("0", "1 late")}
"""Per kind of loop: its period in microseconds, and how many inputs are to be late."""


def run(session: Session) -> None:
    """Record both kinds of loop in turn."""
    program = build_program("adjustable")
    late: dict[str, list[int]] = {name: [] for name in _LOOPS}
    slowest: dict[str, list[float]] = {name: [] for name in _LOOPS}
    for _ in range(2 if session.quick else 7):
        for name, (period, _) in _LOOPS.items():
            latency_ns = _latencies(program, session.new_folder("omission"), period)
            late[name].append(int((latency_ns > _LATE_NS).sum()))
            slowest[name].append(float(latency_ns.to_numpy().max()) / 1e9)
    for name, (_, target) in _LOOPS.items():
        counts = f"{statistics.median(late[name]):.0f} ({min(late[name])} to {max(late[name])})"
        values = {f"inputs of {_INPUTS:,} later than {_LATE_NS // 1_000_000} ms": counts}
        session.keep(Figure(name=f"{name}: slowest input", seconds=slowest[name], target=target, values=values))


def _latencies(program: Path, trace: Path, period: str) -> pl.Series:
    """Run the program once; return how long each input took."""
    loop = ("-w", "1", "--epochs", str(_INPUTS), "--records", "10", "--cost", "0", "--period", period)
    run_program(program, trace, [*loop, "--stall", str(_STALLED_MS)])
    rows = api.latency(trace).rows()
    if len(rows) != _INPUTS or rows["censored"].any():
        message = f"{len(rows)} of {_INPUTS} inputs, {rows['censored'].sum()} of them not done"
        raise RuntimeError(message)
    return rows["latency_ns"]


BENCH = Bench(
    name="omission",
    title="Coordinated omission",
    about=(
        f"The adapter's `adjustable` runs on one worker with {_INPUTS:,} inputs, and is held up once for"
        f" {_STALLED_MS} ms. In the open loop, input is due by the clock; in the closed loop, an input is given"
        " when the one before is done. Latency counts from when input was due ([latency.md](latency.md)). Both run"
        " in turn. The times are those of the slowest input of each run."
    ),
    run=run,
    needs=lambda: "" if shutil.which("cargo") else "cargo",
)
