"""SnailTrail 2's own graphs, made by SnailTrail 2, against those of the rule set `st2`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from pag_graph.sources import convert
from pag_graph.store.order import check_trace
from pag_graph.store.trace import Trace
from tests.support.st2_parts import build_part

if TYPE_CHECKING:
    from pag_graph.model.graph import GraphPart

ORACLES = Path(__file__).parents[2].parent / "shared" / "oracles"
TYPES = {
    "Busy": "busy",
    "Waiting": "waiting",
    "Spinning": "spinning",
    "Processing": "processing",
    "DataMessage": "data_message",
    "ControlMessage": "progress_message",
}
EDGES = {"minimal-w2": 3_786, "skewed-w4": 1_108, "imb1-w4": 2_680, "tri-m-w2": 129_557}

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.skipif(not ORACLES.is_dir(), reason=f"the oracles are not at {ORACLES}"),
]


def converted(source: Path, tmp_path: Path) -> Trace:
    convert(source, tmp_path / "trace")
    trace = Trace.open(tmp_path / "trace")
    check_trace(trace)
    return trace


def graph(trace: Trace) -> GraphPart:
    offsets = dict.fromkeys(trace.workers["worker"].to_pylist(), 0)
    return build_part(trace.events(), position_offset=offsets, prepared=trace.meta.prepared, operators=trace.operators)


def with_ends(part: GraphPart) -> pl.DataFrame:
    ends = pl.DataFrame(part.vertices).select("id", "worker", "seq")
    return (
        pl.DataFrame(part.edges)
        .join(ends, left_on="src", right_on="id", validate="m:1")
        .join(ends, left_on="dst", right_on="id", suffix="_dst", validate="m:1")
    )


@pytest.mark.sampled(4)
@pytest.mark.parametrize("source", ["raw", "lrs"])
@pytest.mark.parametrize("name", EDGES)
def test_edges_are_those_of_snailtrail(name: str, source: str, tmp_path: Path) -> None:
    trace = converted(ORACLES / "st2" / name / f"{source}.parquet", tmp_path)
    part = graph(trace)
    ours = with_ends(part)
    theirs = pl.read_parquet(ORACLES / "st2" / name / "pag.parquet").with_columns(
        pl.col("edge_type").replace_strict(TYPES)
    )
    assert ours.height == EDGES[name]
    assert Counter(
        ours.select("worker", "seq", "worker_dst", "seq_dst", "type", "epoch", "operator", "records").iter_rows()
    ) == Counter(
        theirs.select(
            "src_worker", "src_seq", "dst_worker", "dst_seq", "edge_type", "dst_epoch", "operator_id", "length"
        ).iter_rows()
    )
    local = theirs.filter(pl.col("src_worker") == pl.col("dst_worker"))
    assert Counter(
        ours.filter(pl.col("read").is_null()).select("worker", "seq", "seq_dst", "start_ns", "duration_ns").iter_rows()
    ) == Counter(
        local.select("src_worker", "src_seq", "dst_seq", "src_ts", pl.col("dst_ts") - pl.col("src_ts")).iter_rows()
    )
    assert part.vertices.num_rows + sum(part.dropped.values()) == trace.rows


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", [*EDGES, "tri-l-w2"])
def test_preparation_is_that_of_snailtrail(name: str, tmp_path: Path) -> None:
    part = graph(converted(ORACLES / "st2" / name / "raw.parquet", tmp_path))
    theirs = pl.read_parquet(ORACLES / "st2" / name / "lrs.parquet").sort("local_worker", maintain_order=True)
    ours = pl.DataFrame(part.vertices)
    assert ours["id"].is_sorted()
    assert (
        ours.select("worker", "seq", "epoch", "t_ns", "operator")
        .cast(pl.Int64)
        .equals(
            theirs.select(worker="local_worker", seq="seq_no", epoch="epoch", t_ns="timestamp", operator="operator_id")
        )
    )


@pytest.mark.parametrize(
    ("name", "events", "dropped"),
    [
        ("skewed-w4", 2_186, {"communication_channel": 4}),
        ("bfs-small", 70_395, {"communication_channel": 4, "shutdown": 10}),
        ("2proc-n2w1", 211_281, {"communication_channel": 4, "shutdown": 10}),
    ],
)
def test_logs_of_current_timely(name: str, events: int, dropped: dict[str, int], tmp_path: Path) -> None:
    trace = converted(ORACLES / "timely" / name, tmp_path)
    assert (trace.rows, trace.meta.dropped) == (events, dropped)
    part = graph(trace)
    assert part.vertices.num_rows + sum(part.dropped.values()) == events
    # Every send has its receives in these logs: what crosses epochs is all that cannot be matched.
    assert set(part.findings["finding"].to_pylist()) <= {"message_across_epochs"}
    assert pl.DataFrame(part.edges).filter(pl.col("read").is_null())["duration_ns"].min() >= 0
