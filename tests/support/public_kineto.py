"""Public Kineto traces: every step's path is as long as the step, and workers are tiled; how much is explained.

``python -m tests.support.public_kineto TRACE...`` reads files (each one a job of its own) or folders (a job of several
ranks), such as `tests/data` of facebookresearch/HolisticTraceAnalysis and `tb_plugin/samples` of pytorch/kineto. None
is kept. One line per job, with the causes that `pag torch` names; ends with 1 if a path or a worker falls short.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from pag_graph import api
from pag_graph.diagnosis.torch.answer import answer
from pag_graph.errors import TraceFormatError
from pag_graph.model.enums import EpochRole
from pag_graph.sources.kineto.convert import trace_files

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pag_graph.analyses.critical_path import CriticalPath

__all__ = ["told"]


def told(source: Path, folder: Path) -> tuple[str, bool]:
    """Return what holds of a job, as a line, and whether its paths and workers are whole.

    Parameters
    ----------
    source
        A trace, or a folder with one per rank.
    folder
        A place for trace and store.
    """
    try:
        diagnosis = answer(trace_files(source), folder=folder)
    except TraceFormatError as error:
        return f"refused: {error}", True
    pag = api.open(folder / "pag")
    rounds = pag.run.epochs.filter(pl.col("role") == str(EpochRole.ROUND)).height > 0
    windows = [window for window in pag.run.windows() if window.span_ns]
    steps = [window for window in windows if not rounds or window.role == EpochRole.ROUND]
    paths = [pag.critical_path(between=(window.start_ns, window.end_ns)) for window in windows]
    short = sum(path.length_ns != window.span_ns for path, window in zip(paths, windows, strict=True))
    length_ns, explained = _explained([path for path, window in zip(paths, windows, strict=True) if window in steps])
    rest_ns, explained_of_rest = _explained(
        [path for path, window in zip(paths, windows, strict=True) if window not in steps]
    )
    local = pag.run.scan("edges").filter(pl.col("read").is_null())
    tiled = local.collect()["duration_ns"].sum() == pag.run.scan("workers").collect().height * pag.run.end_ns
    causes = ", ".join(f"{cause.cause} {cause.share:.0%}" for cause in diagnosis.causes) or "no cause"
    line = (
        f"{len(diagnosis.look.mapped.ranks)} rank(s), {len(steps)} step(s), {length_ns / 1e6:,.1f} ms: {short} path(s)"
        f" too short, {explained:.2%} explained, workers {'tiled' if tiled else 'NOT tiled'}; {causes}"
    )
    return line + (
        f"; besides steps {rest_ns / 1e6:,.1f} ms, {explained_of_rest:.2%} explained" if rest_ns else ""
    ), not short and tiled


def _explained(paths: Sequence[CriticalPath]) -> tuple[int, float]:
    """Return how long paths are together, and which share of them is explained."""
    length = sum(path.length_ns for path in paths)
    return length, sum(path.explained * path.length_ns for path in paths) / length if length else 1.0


def main() -> None:
    """Look at traces."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("traces", nargs="+", type=Path, metavar="TRACE")
    wrong = 0
    for source in parser.parse_args().traces:
        with tempfile.TemporaryDirectory() as folder:
            line, is_sound = told(source, Path(folder) / "out")
        wrong += not is_sound
        sys.stdout.write(f"{source.parent.name}/{source.name}: {line}\n")
        sys.stdout.flush()
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
