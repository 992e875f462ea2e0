"""Waits that are inferred, beside those that the same log tells of; and a real log that tells of none."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from pag_graph import api, samples
from pag_graph.cli.app import app
from pag_graph.sources import convert
from tests.support.silenced import compare

ORACLES = Path(__file__).parents[2].parent / "shared" / "oracles"


@pytest.mark.parametrize("name", ["skewed", "triangles", "ground_truth"])
def test_inferred_waits_are_those_of_the_log(name: str, tmp_path: Path) -> None:
    found = compare(samples.path(name), tmp_path)
    assert found.recall >= 0.95
    assert found.precision >= 0.9
    # What is left is the step before a park, which finds nothing: of a worker that polls it belongs to the wait.
    assert found.precision_of_polling >= 0.97
    assert max(abs(change) for change in found.shares.values()) <= 0.05


@pytest.mark.oracle
@pytest.mark.skipif(not ORACLES.is_dir(), reason=f"the oracles are not at {ORACLES}")
def test_a_log_of_timely_0_10_names_its_straggler(tmp_path: Path) -> None:
    convert(ORACLES / "st2" / "imb1-w4" / "raw.parquet", tmp_path / "trace")
    api.build(tmp_path / "trace", tmp_path / "run.pag", engine="local")
    pag = api.open(tmp_path / "run.pag")
    assert pag.findings().filter(finding="no_idle_logged")["worker"].to_list() == [0, 1, 2, 3]
    for epoch in (3, 5, 7):
        said = str(pag.why(epoch=epoch))
        assert "worker 0 is slow" in said
        assert "workers 1, 2 and 3 waited" in said
        assert "medium confidence" in said
        assert "the log does not say when workers had nothing to do" in said
    # Each batch of worker 0 sleeps for 500 ms in InspectBatch: so the log says, and nothing else takes any time.
    for row in pag.epochs.filter(pl.col("role") != "shutdown").iter_rows(named=True):
        epoch, span_ns = row["epoch"], row["end_ns"] - row["start_ns"]
        path = pl.DataFrame(pag.critical_path(epoch=epoch).steps)
        sleeps = path.filter((pl.col("operator") == 4) & (pl.col("worker") == 0) & (pl.col("to_worker") == 0))
        assert sleeps["duration_ns"].sum() >= 0.99 * span_ns
        waits = pl.DataFrame(pag.waits(epoch=epoch)).group_by("worker").agg(pl.col("waiting_ns").sum())
        waited = dict(waits.iter_rows())
        assert sorted(waited) == [1, 2, 3]
        assert min(waited.values()) >= 0.98 * span_ns
    stretch = api.build(tmp_path / "trace", tmp_path / "cut.pag", engine="local", slice_events=100).store
    assert stretch.run["closed_fingerprint"] == api.open(tmp_path / "run.pag").run.info.run["closed_fingerprint"]
    shown = CliRunner().invoke(app, ["info", str(tmp_path / "run.pag")]).output
    assert "waits are inferred (" in shown


@pytest.mark.oracle
@pytest.mark.skipif(not ORACLES.is_dir(), reason=f"the oracles are not at {ORACLES}")
def test_a_log_of_timely_0_10_names_its_skew(tmp_path: Path) -> None:
    convert(ORACLES / "st2" / "skewed-w4" / "raw.parquet", tmp_path / "trace")
    api.build(tmp_path / "trace", tmp_path / "run.pag", engine="local")
    pag = api.open(tmp_path / "run.pag")
    assert len(pag.rounds()) == 9
    for window in pag.rounds():
        said = " ".join(str(pag.why(epoch=window.epoch)).split())
        assert "the data is skewed" in said.lower()
        assert "orker 0 read all 3,000 records of Exchange (0.3)" in said
        assert {1, 2, 3} <= {row["worker"] for row in pag.waits(epoch=window.epoch).to_pylist()}
