"""Real Kineto traces: every window's path is as long as the window, and explained."""

from __future__ import annotations

import os
from pathlib import Path

import polars as pl
import pytest

from pag_graph import api
from pag_graph.sources.kineto.convert import map_files, write_mapped

ORACLES = Path(os.environ.get("PAG_ORACLES", Path(__file__).parents[2].parent / "shared" / "oracles")) / "chrome"

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.skipif(not ORACLES.is_dir(), reason=f"the oracles are not at {ORACLES}"),
]


@pytest.mark.parametrize("name", ["simple_add", "alexnet"])
@pytest.mark.parametrize("steps", [None, r"measure\|forward"])
def test_paths_are_as_long_as_their_windows_and_explained(tmp_path: Path, name: str, steps: str | None) -> None:
    (file,) = (ORACLES / name).glob("*_trace.json.gz")
    write_mapped(map_files([file], steps=steps), tmp_path / "trace")
    api.build(tmp_path / "trace", tmp_path / "pag", engine="local")
    pag = api.open(tmp_path / "pag")
    windows = [window for window in pag.run.windows() if window.span_ns]
    assert len(windows) == (1 if steps is None else 3)
    for window in windows:
        path = pag.critical_path(between=(window.start_ns, window.end_ns))
        assert path.length_ns == window.span_ns
        assert path.explained == 1
    workers = pag.run.scan("workers").collect().height
    total = pag.run.scan("edges").filter(pl.col("read").is_null()).collect()["duration_ns"].sum()
    assert total == workers * pag.run.end_ns
