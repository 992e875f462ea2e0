"""Kineto traces: how fast they are read, converted and answered, beside a parser of JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from bench.harness import Bench, Session, Yardstick

if TYPE_CHECKING:
    from pathlib import Path


def _job(path: Path, *, ranks: int, steps: int) -> None:
    from pag_graph.testing.kineto_traces import Job, simulate

    simulate(Job(ranks=ranks, steps=steps, layers=60)).write(path)


def _built(file: Path, folder: Path) -> None:
    from pag_graph import api
    from pag_graph.sources.kineto.convert import map_files, write_mapped

    write_mapped(map_files([file]), folder / "trace")
    api.build(folder / "trace", folder / "pag", engine="local")


def run(session: Session) -> None:
    """Measure."""
    from pag_graph.diagnosis.torch.answer import answer
    from pag_graph.sources.kineto.convert import map_files, write_mapped
    from pag_graph.sources.kineto.rank_log import read_rank

    steps = 20 if session.quick else 200
    one_rank = session.fixed(f"kineto-1x{steps}-v1", lambda path: _job(path, ranks=1, steps=steps))
    (file,) = one_rank.iterdir()
    log = read_rank(file)
    events = len(log.kind) + sum(log.dropped.values())
    parse = Yardstick(name="orjson parses the same file", run=lambda: orjson.loads(file.read_bytes()))
    session.measure(
        "read one rank",
        lambda: read_rank(file),
        against=parse,
        items=events,
        repeat=3,
        target="200,000 events/s per core, 1.6 x orjson",
    )
    session.measure(
        "convert one rank",
        lambda: write_mapped(map_files([file]), session.new_folder("kineto") / "trace"),
        against=parse,
        items=events,
        repeat=3,
    )
    session.measure(
        "convert and build one rank",
        lambda: _built(file, session.new_folder("kineto")),
        against=parse,
        items=events,
        repeat=3,
        target="120,000 events/s, 1 KB/event",
    )
    for ranks in (2, 8, 64):
        job = session.fixed(f"kineto-{ranks}x10-v1", lambda path, ranks=ranks: _job(path, ranks=ranks, steps=10))
        files = sorted(job.iterdir())
        count = sum(len(read_rank(trace_file).kind) for trace_file in files)
        session.measure(
            f"pag torch on {ranks} ranks, 10 steps",
            lambda files=files: answer(files),
            items=count,
            repeat=3,
            target="linear in ranks",
        )


BENCH = Bench(
    name="torch",
    title="Kineto traces",
    about=(
        "The input is simulated training jobs of 60 layers. Reading finds events and their exact times in the"
        " text, parses all events but flows, and makes columns. The answer also builds the graph, walks its"
        " critical path, and replays seven changes."
    ),
    run=run,
)
