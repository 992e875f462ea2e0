"""Analyses over all epochs of a run, in one window of a million events, and where many messages meet."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from bench import harness
from bench.harness import Bench, Session, polars_reads
from pag_graph import api
from pag_graph.analyses import find_analysis
from pag_graph.graph.run import Run
from pag_graph.graph.window import Window
from pag_graph.model.enums import EpochRole, RuleSet
from pag_graph.model.ids import POSITION_BITS
from pag_graph.model.tables import PAG_EDGES, PAG_EPOCHS, TRACE_WORKERS
from pag_graph.sources.record import record

if TYPE_CHECKING:
    import pyarrow as pa

    from pag_graph.graph.snapshot import Snapshot

ORACLES = Path(os.environ.get("PAG_ORACLES", harness.ROOT.parent / "shared" / "oracles"))
"""Where traces of other programs lie, if they do; see ``tests/integration/test_st2_oracle.py``."""

_EACH = ("k-hops", "critical-path", "slack", "participation", "metrics", "causal-profile", "blame")
_OF_RUN = ("profile-rounds", "invariants")
_FEW, _MANY = 10_000, 1_000_000
_READ = ("src", "dst", "type", "epoch", "start_ns", "duration_ns", "operator", "channel", "records", "read")


def triangles(session: Session, rounds: int = 1_500) -> tuple[Path, Path]:
    """Return a recorded trace and its store; unless told, it is as large and in as many rounds as SnailTrail 2's."""
    rounds = 100 if session.quick else rounds
    sizes = ["-w", "2", "--nodes", "3000", "--edges", "15000", "--batch", "400", "--rounds", str(rounds), "--seed", "1"]
    trace = session.fixed(f"triangles-{rounds}.trace", lambda path: record("triangles", path, sizes))
    store = session.fixed(f"triangles-{rounds}.pag", lambda path: api.build(trace, path, engine="local"))
    return trace, store


def _snailtrail(session: Session) -> Path | None:
    """Return the store of SnailTrail 2's triangles, by its rules; None where its trace is not there."""
    name = "tri-m-w2" if session.quick else "tri-l-w2"
    raw = ORACLES / "st2" / name / "raw.parquet"
    if not raw.is_file():
        return None
    trace = session.fixed(f"{name}.trace", lambda path: api.convert(raw, path))
    return session.fixed(f"{name}.pag", lambda path: api.build(trace, path, rules="st2", engine="local"))


def _edges(store: Path) -> harness.Yardstick:
    files = api.open(store).run.info.files("edges")
    return polars_reads(files, columns=_READ, name="Polars reads the columns of the edges that analyses need")


def run(session: Session) -> None:
    """Make the measurements."""
    snailtrail_store = _snailtrail(session)
    if snailtrail_store is not None:
        pag, stick = api.open(snailtrail_store), _edges(snailtrail_store)
        edges = int(pag.epochs["edges"].sum())
        all_epochs = partial(_answer_of, snailtrail_store, "k-hops")
        target = "1 s and 1 GB; SnailTrail 2 needs 28-41 s and 11-13 GB"
        session.measure(
            "10-hops, all epochs (tri-l)", all_epochs, against=stick, items=edges, unit="edges", target=target
        )
        session.measure(
            "10-hops as SnailTrail 2 counts them (tri-l)",
            lambda: api.open(snailtrail_store).k_hops_st2(k=10),
            against=stick,
            items=edges,
            unit="edges",
        )
        for name in ("metrics", "invariants"):
            subject = partial(_answer_of, snailtrail_store, name)
            session.measure(f"{name}, all epochs (tri-l)", subject, against=stick, items=edges, unit="edges")
        _building(session, "building the store, for comparison (tri-l)", snailtrail_store, stick, RuleSet.ST2)
    _, store = triangles(session)
    stick, edges = _edges(store), int(api.open(store).epochs["edges"].sum())
    _building(session, "building the store, for comparison", store, stick, RuleSet.TIMELY)
    for name in (*_EACH, *_OF_RUN):
        subject = partial(_answer_of, store, name)
        session.measure(
            f"{name}, all epochs", subject, against=stick, items=edges, unit="edges", target="less than building"
        )
    _one_window(session, store)
    _advice(session)
    _fan_in(session)


def _building(session: Session, name: str, store: Path, stick: harness.Yardstick, rules: RuleSet) -> None:
    """Measure building a store, out of the trace that lies beside it."""
    session.measure(
        name,
        lambda place: api.build(store.with_suffix(".trace"), place, rules=rules, engine="local"),
        before=lambda: session.new_folder("build.pag"),
        against=stick,
        items=api.open(store).run.info.events,
    )


def _answer_of(store: Path, name: str) -> pa.Table:
    pag = api.open(store)
    return pag.analyse(name) if name in _OF_RUN else pag.each(name)


def _one_window(session: Session, store: Path) -> None:
    """Measure what one window of about a million edges costs, after it was loaded."""
    opened = Run(store)
    total = int(opened.epochs["edges"].sum())
    window = opened.window(between=(0, max(1, opened.end_ns * min(_MANY, total) // total)))

    def load() -> Snapshot:
        snapshot = opened.snapshot(window)
        # Sorting is a part of loading.
        _ = snapshot.tiling
        return snapshot

    edges = load().edges.height
    for name, target in (("critical-path", "50 ms"), ("slack", ""), ("participation", ""), ("k-hops", "")):
        session.measure(
            f"{name}, one window, loaded",
            find_analysis(name),
            before=load,
            items=edges,
            unit="edges",
            target=target,
        )
    session.measure("loading that window", load, items=edges, unit="edges")


def _pipeline(session: Session) -> Path:
    """Return the store of 51 operators in a row on one worker, with about a million edges."""
    epochs, operators = 10 if session.quick else 100, 51
    costs, places = (",".join([word] * operators) for word in ("200", "0"))
    sizes = ["-w", "1", "--costs", costs, "--place", places, "--records", "2000", "--batch", "20"]
    sizes += ["--epochs", str(epochs)]
    trace = session.fixed(f"pipeline-{epochs}.trace", lambda path: record("pipeline", path, sizes))
    return session.fixed(f"pipeline-{epochs}.pag", lambda path: api.build(trace, path, engine="local"))


def _advice(session: Session) -> None:
    """Measure advice on one window of a million edges, in which 50 operators may get a port."""
    pag = api.open(_pipeline(session))
    rounds = [window for window in pag.run.windows() if window.role is EpochRole.ROUND]
    between = (rounds[0].start_ns, rounds[-1].end_ns)
    operator = pag.advise(between=between, beta=0.0).table["operator"].drop_null()[0].as_py()
    session.measure(
        "advise, one window, 50 candidates",
        lambda: pag.advise(between=between, beta=0.0),
        against=harness.Yardstick(
            name="what-if of one operator", run=lambda: pag.what_if(operator=operator, factor=0.5, between=between)
        ),
        items=pag.snapshot(between=between).edges.height,
        unit="edges",
        target="at most 50 what-ifs",
    )


def _fan_in(session: Session) -> None:
    """Measure messages into one vertex: ten times as many must cost no more than ten times as much."""
    for name in ("k-hops", "participation", "slack"):
        times = {}
        for count in (_FEW, 10 * _FEW):
            figure = session.measure(
                f"{name}, {count:,} messages into one vertex",
                find_analysis(name),
                before=partial(_star, count),
                items=count,
                unit="messages",
            )
            times[count] = figure.median
        figure.target = "linear"
        figure.values = {f"{10 * _FEW:,} over {_FEW:,} messages (10 is linear)": times[10 * _FEW] / times[_FEW]}


def _star(count: int) -> Snapshot:
    """Return a window in which a worker sends messages one after the other, and another one reads all at one vertex."""
    sender, reader = 0, 1 << POSITION_BITS
    positions = np.arange(2, 2 * count + 2, 2)
    local = _rows(sender + np.append(0, positions[:-1]) + 2, sender + positions + 2, np.arange(count), "processing")
    end_ns = 2 * count
    wait = _rows(
        np.array([reader + 2, reader + 4]), np.array([reader + 4, reader + 6]), np.array([0, end_ns - 1]), "busy"
    )
    wait[0] |= {"duration_ns": end_ns - 1, "type": "waiting"}
    sent = sender + positions + 2
    messages = _rows(sent, np.full(count, reader + 4), np.arange(1, count + 1), "data_message")
    for row in messages:
        row["duration_ns"] = end_ns - 1 - row["start_ns"]
    rows = pl.DataFrame([*local, *wait, *messages], schema=_schema(PAG_EDGES))
    run = Run.__new__(Run)
    run.info = SimpleNamespace(run={"rules": "timely", "end_ns": end_ns}, path="memory")  # type: ignore[assignment]
    workers = [{"worker": worker, "process": 0, "clock_domain": "", "offset_ns": 0} for worker in (0, 1)]
    tables = {"edges": rows, "epochs": _schema(PAG_EPOCHS).to_frame()}
    run._scans = {name: table.lazy() for name, table in tables.items()}  # noqa: SLF001
    run._scans["workers"] = pl.DataFrame(workers, schema=_schema(TRACE_WORKERS)).lazy()  # noqa: SLF001
    snapshot = run.snapshot(Window(start_ns=0, end_ns=end_ns))
    _ = snapshot.tiling
    return snapshot


def _rows(src: Any, dst: Any, start: Any, kind: str) -> list[dict[str, Any]]:
    return [
        {
            "src": int(a),
            "dst": int(b),
            "type": kind,
            "epoch": 0,
            "src_epoch": 0,
            "start_ns": int(t),
            "duration_ns": 1,
            "flags": 0,
            "alternatives": 0,
        }
        for a, b, t in zip(src, dst, start, strict=True)
    ]


def _schema(table: pa.Schema) -> pl.Schema:
    return pl.DataFrame(pl.from_arrow(table.empty_table())).schema


def _missing() -> str:
    import shutil

    return "" if shutil.which("cargo") else "cargo, to record a trace"


BENCH = Bench(
    name="analyses",
    title="Analyses",
    about=(
        "Each analysis runs over all epochs of a run at once (`Pag.each`, or `Pag.analyse` of all rounds), in one"
        " process. Opening the store and reading it are part of the time. `tri-l` is SnailTrail 2's own trace"
        " (Timely 0.10, 2.1 M events, 1,500 epochs, 2 workers), built by SnailTrail 2's rules. The other trace was"
        " recorded by the adapter's `triangles` on the same scale (2.1 M events, 1,500 rounds, 2 workers, seed 1)."
        " One window is a stretch of that run with about a million edges."
    ),
    run=run,
    needs=_missing,
)
