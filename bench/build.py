"""Building the graph: in memory, into a store, on Spark; from two million events to a hundred million."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from bench import harness
from bench.analyses import ORACLES, triangles
from bench.harness import Bench, Figure, Session, Yardstick
from bench.multiply import multiply
from pag_graph import api
from pag_graph.engines.local import LocalEngine
from pag_graph.model.enums import RuleSet
from pag_graph.pag.build import construct
from pag_graph.store.trace import Trace

if TYPE_CHECKING:
    from pathlib import Path

_COLUMNS = ("seq", "epoch", "t_ns", "kind", "operator", "channel", "peer", "message_seq", "records", "bytes")
_SEED = 1
_SIZES = {"20 M": 10, "100 M": 48}
"""Copies of the recorded trace (2.1 M events)."""


def run(session: Session) -> None:
    """Make the measurements."""
    recorded, store = triangles(session)
    cases = [("recorded", recorded, RuleSet.TIMELY, store)]
    raw = ORACLES / "st2" / "tri-l-w2" / "raw.parquet"
    if raw.is_file() and not session.quick:
        trace = session.fixed("tri-l-w2.trace", lambda path: api.convert(raw, path))
        for rules in (RuleSet.ST2, RuleSet.TIMELY):
            name = "tri-l-w2.pag" if rules is RuleSet.ST2 else "tri-l-w2-timely.pag"
            built = session.fixed(name, partial(_local, trace, rules=rules))
            cases.append(("tri-l", trace, rules, built))
    for name, trace, rules, built in cases:
        _one(session, name, trace, rules, built)
    _spark(session, cases)
    _large(session, recorded, store)


def _local(trace: Path, path: Path, rules: RuleSet, slice_events: int | None = None) -> None:
    api.build(trace, path, rules=rules, engine="local", slice_events=slice_events)


def _construct(session: Session, trace: Path, rules: RuleSet) -> None:
    construct(trace, session.new_folder("staging"), engine=LocalEngine(), rules=rules)


def _one(session: Session, name: str, trace: Path, rules: RuleSet, store: Path) -> None:
    events = Trace.open(trace).rows
    stick = _writes_the_same(session, trace, store)
    session.measure(
        f"in memory, no output ({name}, {rules})",
        lambda: _construct(session, trace, rules),
        against=_reads(trace),
        items=events,
        target="10 M events/s; SnailTrail 2: 1.9 M with one worker, 3.3 M with two",
    )
    session.measure(
        f"into a store, in process ({name}, {rules})",
        partial(_local, trace, rules=rules),
        before=lambda: session.new_folder("build.pag"),
        against=stick,
        items=events,
        target="2 x the yardstick",
    )


def _spark(session: Session, cases: list[tuple[str, Path, RuleSet, Path]]) -> None:
    """Measure builds on a session that runs and whose workers have compiled the kernels."""
    from pag_graph.engines.session import spark_session
    from pag_graph.engines.spark import SparkEngine

    cores = os.cpu_count() or 1
    spark = spark_session(app="bench", master=f"local[{cores}]")
    try:
        engine = SparkEngine(spark)
        for name, trace, rules, store in cases:
            events = Trace.open(trace).rows
            session.measure(
                f"into a store, on Spark, warm ({name}, {rules})",
                lambda path, trace=trace, rules=rules, events=events: api.build(
                    trace, path, rules=rules, engine=engine, slice_events=-(-events // cores)
                ),
                before=lambda: session.new_folder("build.pag"),
                against=_writes_the_same(session, trace, store),
                items=events,
                repeat=5,
                warm=2,
                target="4 M events/s on 100 M events",
            )
    finally:
        spark.stop()


def _large(session: Session, recorded: Path, store: Path) -> None:
    """Measure the same run, many times over."""
    per_event = {}
    for size, times in _SIZES.items() if not session.quick else {"quick": 3}.items():
        name = f"{recorded.name.removesuffix('.trace')}-x{times}-{_SEED}.trace"
        trace = session.fixed(name, partial(_multiplied, recorded, times))
        events = Trace.open(trace).rows
        for what, subject, before in (
            ("in memory, no output", lambda _, trace=trace: _construct(session, trace, RuleSet.TIMELY), lambda: None),
            (
                "into a store, in process",
                lambda path, trace=trace: _local(trace, path, RuleSet.TIMELY),
                lambda: session.new_folder("build.pag"),
            ),
        ):
            figure = session.measure(
                f"{what} ({size} events)",
                subject,
                before=before,
                against=_writes_the_same(session, recorded, store, times=times) if "store" in what else _reads(trace),
                items=events,
                repeat=1,
                warm=0,
                target="2 GB" if size == "100 M" else "",
            )
            per_event[f"{what}, {size}"] = 1e9 * figure.median / events
        session.new_folder("build.pag")
    session.keep(Figure(name="time per event, ns", values=per_event))


def _multiplied(recorded: Path, times: int, path: Path) -> None:
    multiply(recorded, path, times=times, seed=_SEED)


def _files(trace: Path) -> list[Path]:
    return sorted((trace / "events").glob("*.parquet"))


def _reads(trace: Path) -> Yardstick:
    return Yardstick(name="Polars reads the columns that a build needs", run=lambda: _read(_files(trace)))


def _read(files: list[Path]) -> None:
    # Some files at a time: a large trace fits no memory.
    for first in range(0, len(files), 200):
        pl.scan_parquet(files[first : first + 200]).select(_COLUMNS).collect()


def _writes_the_same(session: Session, trace: Path, store: Path, *, times: int = 1) -> Yardstick:
    """Return a yardstick: Polars reads the trace and writes tables of the same content, which it has in memory."""
    info = api.open(store).run.info
    tables: dict[str, Any] = {name: pl.read_parquet(info.files(name)) for name in ("vertices", "edges")}

    def write() -> None:
        folder = session.new_folder("yardstick")
        folder.mkdir(parents=True)
        for copy in range(times):
            _read(_files(trace))
            for name, frame in tables.items():
                frame.write_parquet(folder / f"{name}-{copy}.parquet", compression="zstd", compression_level=1)

    return Yardstick(name="Polars reads the trace and writes the same tables", run=write)


BENCH = Bench(
    name="build",
    title="Building the graph",
    about=(
        "From the Parquet files of a trace to the graph: in memory and dropped slice by slice (what SnailTrail 2's"
        " `inspect` does), or into a store that is committed. `recorded` is the adapter's `triangles`"
        " (2.1 M events, 1,500 rounds, 2 workers, seed 1), `tri-l` is SnailTrail 2's own trace (Timely 0.10,"
        " 2.1 M events, 1,500 epochs, 2 workers). The larger ones are the recorded trace many times over"
        " (`bench/multiply.py`). Clocks are aligned by messages where the trace asks for it (`tri-l` under `timely`)."
        " Compilation is not counted."
    ),
    run=run,
)

__all__ = ["BENCH", "harness"]
