"""Building the graph of a hundred million events: what an event costs, and how much memory a build needs."""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from statistics import median
from typing import TYPE_CHECKING

from bench.analyses import triangles
from bench.build import in_memory, into_store, reads, writes_the_same
from bench.harness import Bench, Figure, Session, spark_engine
from bench.in_memory import graph_in_memory
from bench.multiply import multiplied
from pag_graph import api
from pag_graph.model.enums import RuleSet
from pag_graph.runtime import memory
from pag_graph.runtime.threads import CORES
from pag_graph.store.trace import Trace

if TYPE_CHECKING:
    from pathlib import Path

_SMALL = {"1 M": 725, "2 M": 1_500}
"""Rounds of a recorded trace of so many events."""
_SIZES = {"20 M": 10, "100 M": 48}
"""Copies of the recorded trace of 1,500 rounds (2.1 M events)."""
_TURNS = 5
_PER_TURN = 20_000_000
"""Events of each size to build before it is the next one's turn, about."""


def run(session: Session) -> None:
    """Make the measurements."""
    recorded, store = triangles(session)
    traces = {}
    for size, rounds in _SMALL.items() if not session.quick else ():
        small, small_store = triangles(session, rounds)
        # Written like the large ones: what differs is how much there is.
        traces[size] = multiplied(session, small, 1)
        _in_process(session, traces[size], small, small_store, size, 1)
    for size, times in _SIZES.items() if not session.quick else {"quick": 3}.items():
        traces[size] = multiplied(session, recorded, times)
        _in_process(session, traces[size], recorded, store, size, times)
        _on_spark(session, traces[size], recorded, store, f"{size} events", times)
        session.new_folder("build.pag")
    _in_turn(session, traces)


def _in_process(session: Session, trace: Path, recorded: Path, store: Path, size: str, times: int) -> None:
    """Measure builds without Spark."""
    for title, subject, before in (
        ("in memory, no output", lambda _: in_memory(session, trace, RuleSet.TIMELY), lambda: None),
        (
            "into a store, in process",
            lambda path: into_store(trace, path, RuleSet.TIMELY),
            lambda: session.new_folder("build.pag"),
        ),
    ):
        session.measure(
            f"{title} ({size} events)",
            subject,
            before=before,
            against=writes_the_same(session, recorded, store, times=times) if "store" in title else reads(trace),
            items=Trace.open(trace).rows,
            repeat=3 if size in _SIZES else 9,
            warm=0 if size in _SIZES else 2,
            target="2 GB" if size == "100 M" else "",
        )


def _in_turn(session: Session, traces: dict[str, Path]) -> None:
    """Measure what an event costs in traces of several sizes, which are built in turn: so the hour is the same to all.

    In a process of its own, which keeps its memory, as that of `pag build` does.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        times = process.submit(_times, traces, session.new_folder("staging"), 1 if session.quick else _TURNS).result()
    for size, values in times.items():
        session.keep(Figure(name=f"ns per event, in memory, sizes in turn ({size} events)", values=values))


def _times(traces: dict[str, Path], folder: Path, turns: int) -> dict[str, dict[str, float]]:
    memory.keep()
    ns_per_event: dict[str, list[float]] = {size: [] for size in traces}
    events = {size: Trace.open(trace).rows for size, trace in traces.items()}
    for turn in range(turns + 1):
        for size, trace in traces.items():
            # As many events of each size, where that is more than one build.
            repetitions = max(1, _PER_TURN // events[size])
            begin = time.perf_counter()
            for _ in range(repetitions):
                graph_in_memory(trace, folder, RuleSet.TIMELY)
            if turn:
                ns_per_event[size].append(1e9 * (time.perf_counter() - begin) / (repetitions * events[size]))
    return {size: {"median": median(ns), "least": min(ns), "most": max(ns)} for size, ns in ns_per_event.items()}


def _on_spark(session: Session, trace: Path, recorded: Path, store: Path, size: str, times: int) -> None:
    """Measure a build on a session that runs and whose workers have loaded the kernels."""
    with spark_engine() as engine:
        half = -(-Trace.open(recorded).rows // CORES)
        api.build(recorded, session.new_folder("warm.pag"), engine=engine, slice_events=half)
        session.measure(
            f"into a store, on Spark, warm ({size})",
            lambda path: api.build(trace, path, engine=engine),
            before=lambda: session.new_folder("build.pag"),
            against=writes_the_same(session, recorded, store, times=times),
            items=Trace.open(trace).rows,
            repeat=3,
            warm=0,
            target="4 M events/s, 2 x the yardstick" if size.startswith("100 M") else "",
        )


BENCH = Bench(
    name="large",
    title="Building the graph of many events",
    about=(
        "The recorded trace of `build` many times over (`bench/multiply.py`, seed 1). The small sizes are that"
        " trace once, and a trace of half as many rounds once, written again in files like those of the large"
        " ones. The rules are `timely`, and slices have about 1 M events. Every slice is read once; on Spark, a"
        " task does a stretch of slices. The memory of a build on Spark is that of the driver's Python. The costs"
        " per event with `sizes in turn` come from a process that keeps its memory, as `pag build` does; in all"
        " other rows, memory is given back after every build."
    ),
    run=run,
)
