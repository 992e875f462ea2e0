"""Traces of the adapter's example programs, from the program to the answer."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from pag_graph import api
from pag_graph.cli.app import app
from pag_graph.errors import InvalidParameterError, MissingExtraError, StoreExistsError, TraceFormatError
from pag_graph.model.enums import MESSAGE_TYPES
from pag_graph.sources.record import PROGRAMS, adapter_folder, build_program, record

try:
    ADAPTER = adapter_folder()
except MissingExtraError as error:
    pytest.skip(error.message, allow_module_level=True)

needs_cargo = pytest.mark.skipif(shutil.which("cargo") is None, reason="cargo is not on the path")
SMALL = {
    "skewed": ["--records", "200"],
    "bfs": ["--nodes", "300", "--edges", "900"],
    "triangles": [],
    "imbalance": [],
    "ground_truth": [],
    "adjustable": [],
    "degrees": ["--nodes", "300", "--edges", "900", "--inputs", "30"],
    "elastic": ["-w", "3", "--active", "1,3", "--epochs", "6", "--period", "2000"],
    "pipeline": ["-w", "2", "--place", "0,0,1", "--costs", "500,500,500"],
}


def crates_are_there() -> bool:
    target = Path(os.environ.get("CARGO_TARGET_DIR", ADAPTER / "target"))
    return (target / "debug" / "deps").is_dir()


pytestmark = [
    needs_cargo,
    pytest.mark.skipif(not crates_are_there(), reason="the adapter is not compiled; `make adapter` does it"),
]


def built(program: str, place: Path, *arguments: str) -> api.Pag:
    record(program, place / "trace", [*SMALL[program], *arguments], optimised=False)
    api.build(place / "trace", place / "store", engine="local")
    return api.open(place / "store")


@pytest.mark.sampled(6)
@pytest.mark.parametrize("how", ["park", "step"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_every_program_gives_a_whole_graph(program: str, how: str, tmp_path: Path) -> None:
    """Each message has both ends, none is negative beyond the clocks' doubt, and paths are as long as their windows."""
    pag = built(program, tmp_path, *(["--step"] if how == "step" else []))
    found = set(pag.findings()["finding"])
    assert not found & {"receive_without_send", "send_without_receive", "log_cut_short"}
    early = pag.findings().filter(pl.col("finding") == "negative_transfer")["observed"]
    assert all(ns >= -1_000 for ns in early)
    for path in pag.critical_paths():
        assert path.length_ns == path.window.span_ns
    local = pag.edges().filter(~pl.col("type").is_in([str(kind) for kind in MESSAGE_TYPES]))
    tiled = local.group_by(pl.col("src") // 2**40).agg(pl.col("duration_ns").sum()).collect()
    assert set(tiled["duration_ns"]) == {pag.run.end_ns}


def test_two_processes_are_started_and_aligned(tmp_path: Path) -> None:
    pag = built("bfs", tmp_path, "-n", "2", "-w", "1")
    workers = pl.read_parquet(tmp_path / "trace" / "workers.parquet")
    assert sorted(workers["process"]) == [0, 1]
    early = pag.findings().filter(pl.col("finding") == "negative_transfer")["observed"]
    assert all(ns >= -1_000 for ns in early)
    for path in pag.critical_paths():
        assert path.length_ns == path.window.span_ns


def overlap(row: dict[str, Any], edges: pl.DataFrame) -> dict[str, int]:
    """Return the time of each type of edge inside an interval of the worker's clock, made common."""
    low, high = row["start"], row["stop"]
    inside = edges.filter(pl.col("worker") == row["worker"], pl.col("start_ns") < high, pl.col("end_ns") > low)
    cut = pl.min_horizontal("end_ns", pl.lit(high)) - pl.max_horizontal("start_ns", pl.lit(low))
    return dict(inside.group_by("type").agg(cut.sum()).iter_rows())


@pytest.mark.parametrize("how", ["park", "step"])
def test_types_agree_with_what_the_program_did(how: str, tmp_path: Path) -> None:
    """Known work lies in edges that say work, within 2 %: `prepare` in its own activity, the rest in operators."""
    pag = built("ground_truth", tmp_path, *(["--step"] if how == "step" else []))
    workers = pl.read_parquet(tmp_path / "trace" / "workers.parquet")
    origin = pag.run.info.run["origin_unix_ns"]
    offset = {worker: ns - origin for worker, ns in workers.select("worker", "offset_ns").iter_rows()}
    local = pag.edges().filter(~pl.col("type").is_in([str(kind) for kind in MESSAGE_TYPES])).collect()
    edges = local.with_columns(worker=pl.col("src") // 2**40, end_ns=pl.col("start_ns") + pl.col("duration_ns"))
    truth = pl.read_csv(tmp_path / "trace" / "ground_truth.csv")
    known: dict[str, int] = {}
    agreed: dict[str, int] = {}
    for row in truth.iter_rows(named=True):
        row["start"], row["stop"] = (row[name] + offset[row["worker"]] for name in ("start_ns", "stop_ns"))
        expected = "application" if row["name"] == "prepare" else "processing"
        known[row["name"]] = known.get(row["name"], 0) + row["stop"] - row["start"]
        agreed[row["name"]] = agreed.get(row["name"], 0) + overlap(row, edges).get(expected, 0)
    assert set(known) == {"prepare", "busy", "doze", "collect"}
    assert {name: agreed[name] / ns >= 0.98 for name, ns in known.items()} == dict.fromkeys(known, True)


def test_what_a_program_does_not_know_is_an_error_and_leaves_no_trace(tmp_path: Path) -> None:
    with pytest.raises(TraceFormatError, match=r"skewed failed: .*no-such-thing"):
        record("skewed", tmp_path / "trace", ["--no-such-thing"], optimised=False)
    assert not (tmp_path / "trace").exists()
    with pytest.raises(InvalidParameterError, match="there are skewed, bfs"):
        build_program("skwed")
    (tmp_path / "there").mkdir()
    with pytest.raises(StoreExistsError):
        record("skewed", tmp_path / "there")


def test_the_command_says_what_it_recorded(tmp_path: Path) -> None:
    arguments = ["record", "skewed", "--debug", "-o", str(tmp_path / "t"), "-w", "2", "--records", "100"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "of 2 workers" in done.output.replace("\n", " ")
    assert "pag build" in done.output
