"""Builds of traces whose clocks are not aligned, or wrongly: the messages themselves say how the clocks stand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pag_graph import api
from pag_graph.analyses.critical_path import critical_path
from pag_graph.rules.rows import RuleParameters
from pag_graph.testing.traces import draw

ORACLES = Path(__file__).parents[2].parent / "shared" / "oracles" / "timely"

# Worker 1's clock is 1,000 ahead; a message takes 10 at least, either way.
PING = "0 start 1 | 100 send 3>1 #0 | 300 recv 3<1 #0 | 400 stop 1 | 500 end"
PONG = "1000 start 1 | 1110 recv 3<0 #0 | 1290 send 3>0 #0 | 1400 stop 1 | 1500 end"


def unaligned(trace: Path) -> Path:
    meta = trace / "meta.json"
    meta.write_text(json.dumps({**json.loads(meta.read_text()), "aligned": False}))
    return trace


def findings(pag: api.Pag) -> dict[str, list[dict[str, Any]]]:
    return {name[0]: rows.to_dicts() for name, rows in pag.findings().group_by("finding")}


def test_a_trace_that_is_not_aligned_is_aligned_by_its_messages(tmp_path: Path) -> None:
    trace = unaligned(draw(PING, PONG).write(tmp_path / "trace"))
    api.build(trace, tmp_path / "store", engine="local")
    pag = api.open(tmp_path / "store")
    sent = pag.edges().filter(pl.col("type") == "data_message").sort("start_ns").collect()
    assert sent["duration_ns"].to_list() == [10, 10]
    assert pag.run.info.run["clocks"] == {
        "from": "messages",
        "margin_ns": 10,
        "offset_ns": {"0": 0, "1": -1000},
        "drift": {"0": 0.0, "1": 0.0},
    }
    moved = sorted((row["worker"], row["observed"], row["limit"]) for row in findings(pag)["clock_estimated"])
    assert moved == [(0, 0, 0), (1, -1000, 10)]
    assert "negative_transfer" not in findings(pag)


def test_wrong_offsets_are_findings_until_the_messages_are_asked(tmp_path: Path) -> None:
    trace = draw(PING, PONG, processes=[0, 1]).write(tmp_path / "trace")
    api.build(trace, tmp_path / "recorded", engine="local")
    assert len(findings(api.open(tmp_path / "recorded"))["negative_transfer"]) == 1
    api.build(trace, tmp_path / "asked", engine="local", parameters=RuleParameters(clocks="messages"))
    assert "negative_transfer" not in findings(api.open(tmp_path / "asked"))


def test_clocks_that_messages_do_not_bound_are_named(tmp_path: Path) -> None:
    trace = unaligned(draw("0 send 3>1 | 9 end", "5 recv 3<0 | 9 end", "3 end").write(tmp_path / "trace"))
    api.build(trace, tmp_path / "store", engine="local")
    assert {row["worker"] for row in findings(api.open(tmp_path / "store"))["clock_not_bounded"]} == {1, 2}


def test_what_no_clocks_can_explain_stays_negative(tmp_path: Path) -> None:
    # Each of two messages is read before it was sent, whatever the offset.
    trace = draw("0 recv 3<1 | 50 send 3>1 | 60 end", "0 recv 3<0 | 50 send 3>0 | 60 end").write(tmp_path / "trace")
    api.build(unaligned(trace), tmp_path / "store", engine="local")
    found = findings(api.open(tmp_path / "store"))
    assert found["clocks_contradict_messages"][0]["observed"] < 0
    assert found["negative_transfer"]


def test_an_append_keeps_the_clocks_of_what_is_committed(tmp_path: Path) -> None:
    ping = f"{PING} | 600 send 3>1 #1 | 700 end"
    pong = f"{PONG} | 1605 recv 3<0 #1 | 1700 end"
    whole = draw(ping, pong)
    early = replace(whole.until_epoch(0), complete=False)
    api.build(unaligned(early.write(tmp_path / "early")), tmp_path / "s", engine="local")
    later = unaligned(whole.write(tmp_path / "late"))
    api.build(later, tmp_path / "s", engine="local", mode="append")
    assert api.open(tmp_path / "s").run.info.run["clocks"]["offset_ns"] == {"0": 0, "1": -1000}


@pytest.mark.oracle
@pytest.mark.skipif(not ORACLES.is_dir(), reason=f"there are no oracles at {ORACLES}")
def test_two_processes_without_their_offsets(tmp_path: Path) -> None:
    """The estimate lies within 50 us of what was recorded, and no message is negative (it is off by 1 us)."""
    trace = tmp_path / "trace"
    api.convert(ORACLES / "2proc-n2w1", trace)
    workers = pl.read_parquet(trace / "workers.parquet")
    recorded = dict(workers.select("worker", "offset_ns").iter_rows())
    blank = pl.lit(0, pl.Int64).alias("offset_ns")
    from pyarrow import parquet

    from pag_graph.model.tables import TRACE_WORKERS

    parquet.write_table(workers.with_columns(blank).to_arrow().cast(TRACE_WORKERS), trace / "workers.parquet")
    unaligned(trace)
    api.build(trace, tmp_path / "store", engine="local")
    pag = api.open(tmp_path / "store")
    offset = pag.run.info.run["clocks"]["offset_ns"]
    assert abs((offset["1"] - offset["0"]) - (recorded[1] - recorded[0])) < 50_000
    assert "negative_transfer" not in findings(pag)
    for window in pag.run.windows():
        assert critical_path(pag.run.snapshot(window)).length_ns == window.span_ns
