"""Building the graph of a hundred million events: what an event costs, and how much memory a build needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.analyses import triangles
from bench.build import in_memory, into_store, reads, writes_the_same
from bench.harness import Bench, Figure, Session, spark_engine
from bench.multiply import multiplied
from pag_graph import api
from pag_graph.kernels.threads import CORES
from pag_graph.model.enums import RuleSet
from pag_graph.store.trace import Trace

if TYPE_CHECKING:
    from pathlib import Path

_SMALL = {"1 M": 740, "2 M": 1_500}
"""Rounds of a recorded trace of so many events."""
_SIZES = {"20 M": 10, "100 M": 48}
"""Copies of the recorded trace of 1,500 rounds (2.1 M events)."""


def run(session: Session) -> None:
    """Make the measurements."""
    recorded, store = triangles(session)
    per_event: dict[str, float] = {}
    for size, rounds in _SMALL.items() if not session.quick else ():
        small, small_store = triangles(session, rounds)
        # Written like the large ones: what differs is how much there is.
        _in_process(session, small, small_store, size, 1, per_event)
    for size, times in _SIZES.items() if not session.quick else {"quick": 3}.items():
        _in_process(session, recorded, store, size, times, per_event)
        _on_spark(session, recorded, store, size, times)
        session.new_folder("build.pag")
    session.keep(Figure(name="time per event, ns", values=per_event))


def _in_process(
    session: Session, recorded: Path, store: Path, size: str, times: int, per_event: dict[str, float]
) -> None:
    """Measure builds without Spark."""
    trace = multiplied(session, recorded, times)
    events = Trace.open(trace).rows
    for what, subject, before in (
        ("in memory, no output", lambda _: in_memory(session, trace, RuleSet.TIMELY), lambda: None),
        (
            "into a store, in process",
            lambda path: into_store(trace, path, RuleSet.TIMELY),
            lambda: session.new_folder("build.pag"),
        ),
    ):
        figure = session.measure(
            f"{what} ({size} events)",
            subject,
            before=before,
            against=writes_the_same(session, recorded, store, times=times) if "store" in what else reads(trace),
            items=events,
            repeat=3 if size in _SIZES else 9,
            warm=0 if size in _SIZES else 2,
            target="2 GB" if size == "100 M" else "",
        )
        per_event[f"{what}, {size}"] = 1e9 * figure.median / events


def _on_spark(session: Session, recorded: Path, store: Path, size: str, times: int) -> None:
    """Measure a build on a session that runs and whose workers have loaded the kernels."""
    trace = multiplied(session, recorded, times)
    with spark_engine() as engine:
        half = -(-Trace.open(recorded).rows // CORES)
        api.build(recorded, session.new_folder("warm.pag"), engine=engine, slice_events=half)
        session.measure(
            f"into a store, on Spark, warm ({size} events)",
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
        "The recorded trace of `build` many times over (`bench/multiply.py`, seed 1), or once, and one of half as many"
        " rounds once, written anew in files like those of the large ones; by the rules `timely`, cut in"
        " slices of about 1 M events. Every slice is read once, on Spark by tasks that do a stretch of slices each. The"
        " memory of a build on Spark is that of the driver's Python."
    ),
    run=run,
)
