"""Public Kineto traces: every step's path is as long as the step, and workers are tiled; how much is explained.

``python -m tests.support.public_kineto TRACE...`` reads files (each one a job of its own) or folders (a job of several
ranks), such as `tests/data` of facebookresearch/HolisticTraceAnalysis and `tb_plugin/samples` of pytorch/kineto. None
is kept. One line per job; ends with 1 if a path or a worker falls short.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import polars as pl

from pag_graph import api
from pag_graph.errors import TraceFormatError
from pag_graph.sources.kineto.convert import map_files, trace_files, write_mapped

__all__ = ["told"]


def told(source: Path, folder: Path) -> tuple[str, bool]:
    """Return what holds of a job, as a line, and whether its paths and workers are whole.

    Parameters
    ----------
    source
        A trace, or a folder with one per rank.
    folder
        An empty one for trace and store.
    """
    try:
        mapped = map_files(trace_files(source))
    except TraceFormatError as error:
        return f"refused: {error}", True
    write_mapped(mapped, folder / "trace")
    api.build(folder / "trace", folder / "pag", engine="local")
    pag = api.open(folder / "pag")
    windows = [window for window in pag.run.windows() if window.span_ns]
    paths = [pag.critical_path(between=(window.start_ns, window.end_ns)) for window in windows]
    short = sum(path.length_ns != window.span_ns for path, window in zip(paths, windows, strict=True))
    length = sum(path.length_ns for path in paths)
    explained = sum(path.explained * path.length_ns for path in paths) / length if length else 1.0
    local = pag.run.scan("edges").filter(pl.col("read").is_null())
    tiled = local.collect()["duration_ns"].sum() == pag.run.scan("workers").collect().height * pag.run.end_ns
    line = (
        f"{len(mapped.ranks)} rank(s), {len(windows)} step(s), {length / 1e6:,.1f} ms: {short} path(s) too short,"
        f" {explained:.1%} explained, workers {'tiled' if tiled else 'NOT tiled'}"
    )
    return line, not short and tiled


def main() -> None:
    """Look at traces."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("traces", nargs="+", type=Path, metavar="TRACE")
    wrong = 0
    for source in parser.parse_args().traces:
        with tempfile.TemporaryDirectory() as folder:
            line, whole = told(source, Path(folder))
        wrong += not whole
        sys.stdout.write(f"{source.parent.name}/{source.name}: {line}\n")
        sys.stdout.flush()
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
