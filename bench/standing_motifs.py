"""What motifs cost as standing queries, epoch by epoch, beside queries about windows: processor time of this process.

``python -m bench.standing_motifs [--last 5] [--sample bfs]`` builds a bundled trace, lets each query answer one epoch
after the other as a follower that commits every epoch does, and prints milliseconds of processor time per epoch (median
and most). Reading the store is part of it; finding what is new, and writing it, is not.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from pag_graph import api, samples
from pag_graph.analyses.standing import Delta, Query, answers
from pag_graph.graph.run import Run
from pag_graph.motif.patterns import PATTERNS

if TYPE_CHECKING:
    from collections.abc import Callable

WINDOWS = ("critical-path", "metrics")


def main() -> None:
    """Measure all queries, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--last", type=int, default=5, help="epochs whose edges a motif looks at")
    parser.add_argument("--sample", default="bfs", help="a bundled trace")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "run.pag"
        api.build(samples.path(options.sample), store, engine="local")
        run = Run(store)
        print(f"{run.epochs.height} epochs of {run.epochs['edges'].median():,.0f} edges (median); ms per epoch")
        for name in WINDOWS:
            _print(name, run, _of_windows(run, Query.parse(name)))
        for name in PATTERNS:
            _print(name, run, _of_motif(run, Query.parse(f"motif:pattern={name}:last={options.last}")))


def _of_windows(run: Run, query: Query) -> Callable[[int], object]:
    return lambda epoch: list(answers(run, {query: [epoch]}))


def _of_motif(run: Run, query: Query) -> Callable[[int], object]:
    warm: dict[str, Any] = {}
    analysis: Any = query.analysis
    nothing = pl.DataFrame(schema=dict.fromkeys(("epoch", "src_epoch", "start_ns", "duration_ns"), pl.Int64))

    def answer(epoch: int) -> object:
        delta = Delta(state=run, edges=nothing, before=epoch - 1, answered=epoch, renamed=False, redrawn=frozenset())
        return list(analysis.steps(delta, query.parameters, warm, each=False))

    return answer


def _print(name: str, run: Run, answer: Callable[[int], object]) -> None:
    # The first epochs fill the last ones, make plans, and load kernels.
    epochs = run.epochs["epoch"].to_list()
    took_ms = []
    for epoch in epochs:
        begin = time.process_time()
        answer(epoch)
        took_ms.append((time.process_time() - begin) * 1e3)
    late_ms = took_ms[len(epochs) // 2 :]
    print(f"{name:22}{statistics.median(late_ms):8.1f}{max(late_ms):8.1f}")


if __name__ == "__main__":
    main()
