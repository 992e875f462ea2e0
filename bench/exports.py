"""Exports: how fast a run becomes a timeline, a graph or tables for other programs."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from bench.harness import Bench, Session, Yardstick
from bench.spark_log import make_large, real_log
from pag_graph import api

if TYPE_CHECKING:
    from pathlib import Path

_FORMATS = (
    ("a timeline for Perfetto", "perfetto", "run.json"),
    ("a compressed timeline", "perfetto", "run.json.gz"),
    ("GraphML", "graphml", "run.graphml"),
    ("CSV", "csv", "tables"),
)


def _store(session: Session) -> Path:
    megabytes = 5 if session.quick else 60
    log = session.fixed(f"spark-log-{megabytes}mb-v1", lambda path: make_large(path, megabytes << 20))
    trace = session.fixed(f"spark-log-{megabytes}mb-v1.trace", lambda path: api.convert(log, path))
    return session.fixed(
        f"spark-log-{megabytes}mb-v1.pag", lambda path: api.build(trace, path, rules="stated", engine="local")
    )


def _json_lines(edges: list[str], target: Path) -> Yardstick:
    def write() -> None:
        with target.open("w", encoding="utf-8") as file:
            for row in pl.scan_parquet(edges).collect().iter_rows(named=True):
                file.write(json.dumps(row) + "\n")

    return Yardstick(name="Python's json writes the edges, a line each", run=write)


def run(session: Session) -> None:
    """Make the measurements."""
    pag = api.open(_store(session))
    count = int(pag.run.scan("edges").select(pl.len()).collect().item())
    lines = session.new_folder("export-lines.jsonl")
    stick = _json_lines(pag.run.info.files("edges"), lines)
    for name, to, file in _FORMATS:
        figure = session.measure(
            name,
            partial(pag.export, to=to),
            before=partial(session.new_folder, f"export-{file}"),
            against=stick,
            items=count,
            unit="edges",
            repeat=3,
        )
        output = session.scratch / "output" / f"export-{file}"
        sizes = [part.stat().st_size for part in ([output] if output.is_file() else output.iterdir())]
        figure.note = f"{sum(sizes) / 1e6:.0f} MB"
    session.measure("networkx", pag.to_networkx, against=stick, items=count, unit="edges", repeat=3)
    lines.unlink(missing_ok=True)


BENCH = Bench(
    name="exports",
    title="Exports",
    about=(
        "A whole run is written for other programs: the store of a Spark log of 60 MiB that was made from a real"
        " one (`spark-log` says how). The files have all columns of edges and vertices and, except for networkx,"
        " the critical path of every epoch."
    ),
    run=run,
    needs=lambda: "" if real_log() else "a real event log in tests/data/spark",
)
