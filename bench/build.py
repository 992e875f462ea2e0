"""Building the graph of two million events: in memory, into a store, on Spark."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from bench.analyses import ORACLES, triangles
from bench.harness import Bench, Session, Yardstick, spark_engine
from bench.in_memory import graph_in_memory
from pag_graph import api
from pag_graph.model.enums import RuleSet
from pag_graph.runtime.threads import CORES
from pag_graph.store.trace import Trace

_COLUMNS = ("seq", "epoch", "t_ns", "kind", "operator", "channel", "peer", "message_seq", "records", "bytes")


def run(session: Session) -> None:
    """Make the measurements."""
    recorded, store = triangles(session)
    cases = [("recorded", recorded, RuleSet.TIMELY, store)]
    raw = ORACLES / "st2" / "tri-l-w2" / "raw.parquet"
    if raw.is_file() and not session.quick:
        trace = session.fixed("tri-l-w2.trace", lambda path: api.convert(raw, path))
        for rules in (RuleSet.ST2, RuleSet.TIMELY):
            name = "tri-l-w2.pag" if rules is RuleSet.ST2 else "tri-l-w2-timely.pag"
            built = session.fixed(name, partial(into_store, trace, rules=rules))
            cases.append(("tri-l", trace, rules, built))
    for name, trace, rules, built in cases:
        _measure_trace(session, name, trace, rules, built)
    _spark(session, cases)


def into_store(trace: Path, path: Path, rules: RuleSet, slice_events: int | None = None) -> None:
    """Build a store in this process."""
    api.build(trace, path, rules=rules, engine="local", slice_events=slice_events)


def in_memory(session: Session, trace: Path, rules: RuleSet) -> None:
    """Build a graph in this process, and drop it slice by slice."""
    graph_in_memory(trace, session.new_folder("staging"), rules)


def _measure_trace(session: Session, name: str, trace: Path, rules: RuleSet, store: Path) -> None:
    events = Trace.open(trace).rows
    stick = writes_the_same(session, trace, store)
    session.measure(
        f"in memory, no output ({name}, {rules})",
        lambda: in_memory(session, trace, rules),
        against=reads(trace),
        items=events,
        target="10 M events/s; SnailTrail 2: 1.9 M with one worker, 3.3 M with two",
    )
    session.measure(
        f"into a store, in process ({name}, {rules})",
        partial(into_store, trace, rules=rules),
        before=lambda: session.new_folder("build.pag"),
        against=stick,
        items=events,
        target="2 x the yardstick",
    )


def _spark(session: Session, cases: list[tuple[str, Path, RuleSet, Path]]) -> None:
    """Measure builds on a session that runs and whose workers have compiled the kernels."""
    name, trace, rules, store = cases[0]
    session.measure(
        f"into a store, on Spark, cold ({name}, {rules})",
        partial(_command, trace, rules),
        before=lambda: session.new_folder("build.pag"),
        against=writes_the_same(session, trace, store),
        items=Trace.open(trace).rows,
        repeat=3,
        warm=1,
        note="`pag build --engine spark`, with the start of Python and Java",
    )
    with spark_engine() as engine:
        for name, trace, rules, store in cases:
            events = Trace.open(trace).rows
            session.measure(
                f"into a store, on Spark, warm ({name}, {rules})",
                lambda path, trace=trace, rules=rules, events=events: api.build(
                    trace, path, rules=rules, engine=engine, slice_events=-(-events // CORES)
                ),
                before=lambda: session.new_folder("build.pag"),
                against=writes_the_same(session, trace, store),
                items=events,
                repeat=5,
                warm=2,
                target="4 M events/s on 100 M events",
            )


def _command(trace: Path, rules: RuleSet, store: Path) -> None:
    pag = Path(sys.executable).with_name("pag")
    command = [pag, "build", trace, store, "--engine", "spark", "--rules", rules]
    subprocess.run(command, check=True, capture_output=True)


def _files(trace: Path) -> list[Path]:
    return sorted((trace / "events").glob("*.parquet"))


def reads(trace: Path) -> Yardstick:
    """Return a yardstick: Polars reads the columns of a trace that a build needs, some files at a time."""
    return Yardstick(name="Polars reads the columns that a build needs", run=lambda: _read(_files(trace)))


def _read(files: list[Path]) -> None:
    # Some files at a time: a large trace fits no memory.
    for first in range(0, len(files), 200):
        pl.scan_parquet(files[first : first + 200]).select(_COLUMNS).collect()


def writes_the_same(session: Session, trace: Path, store: Path, *, times: int = 1) -> Yardstick:
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
        "A build goes from the Parquet files of a trace to the graph. Either the graph is made in memory and"
        " dropped slice by slice (which is what SnailTrail 2's `inspect` does), or it is committed to a store."
        " `recorded` is the adapter's `triangles` (2.1 M events, 1,500 rounds, 2 workers, seed 1). `tri-l` is"
        " SnailTrail 2's own trace (Timely 0.10, 2.1 M events, 1,500 epochs, 2 workers). Clocks are aligned by"
        " messages if the trace asks for it (`tri-l` under `timely`). Compilation is not counted."
    ),
    run=run,
)
