"""Recorded runs: every window's path is as long as the window, and the skew of the thesis' study shows.

The bundled traces are always there. Where the folder of oracles is at hand, so are the longer runs of two processes
and of a program that parks, with what a plain prototype found in them.
"""

from __future__ import annotations

import os
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from pag_graph import api
from pag_graph.cli.demo import SAMPLES
from pag_graph.sources import convert

if TYPE_CHECKING:
    from pag_graph.analyses.critical_path import CriticalPath
    from pag_graph.api import Pag

ORACLES = Path(os.environ.get("PAG_ORACLES", Path(__file__).parents[2].parent / "shared" / "oracles")) / "timely"
BUNDLED = ["skewed", "bfs"]
# Rounds after the startup, as the prototype counted them.
RECORDED = {"skewed-w4": 9, "bfs-small": 19, "bfs-medium": 299, "2proc-n2w1": 49}
needs_oracles = [
    pytest.mark.oracle,
    pytest.mark.skipif(not ORACLES.is_dir(), reason=f"the oracles are not at {ORACLES}"),
]


@pytest.fixture(scope="module")
def stores() -> dict[str, Pag]:
    """Runs that are built already, by name."""
    return {}


@pytest.fixture
def pag(request: pytest.FixtureRequest, stores: dict[str, Pag], tmp_path_factory: pytest.TempPathFactory) -> Pag:
    name = str(request.param)
    if name not in stores:
        place = tmp_path_factory.mktemp(name)
        if name in BUNDLED:
            trace = SAMPLES / name
        else:
            trace = place / "trace"
            convert(ORACLES / name, trace)
        api.build(trace, place / "store", engine="local")
        stores[name] = api.open(place / "store")
    return stores[name]


def every_run() -> list[object]:
    return [*BUNDLED, *(pytest.param(name, marks=needs_oracles) for name in RECORDED)]


def check_path(path: CriticalPath, edges: pl.DataFrame) -> None:
    window = path.window
    steps = pl.DataFrame(pl.from_arrow(path.steps))
    assert path.length_ns == window.span_ns
    assert "waiting" not in steps["type"].to_list()
    for before, after in pairwise(steps.iter_rows(named=True)):
        assert before["dst"] == after["src"]
        assert before["edge_dst"] == after["edge_src"]
        assert before["start_ns"] + before["duration_ns"] == after["start_ns"]
    # Every step is an edge of the store, or what the window leaves of one; only the first and the last can be cut.
    known = steps.join(
        edges, left_on=["edge_src", "edge_dst", "type"], right_on=["src", "dst", "type"], how="left", suffix="_edge"
    )
    assert known.height == steps.height
    assert known["duration_ns_edge"].null_count() == 0
    end = pl.col("start_ns_edge") + pl.col("duration_ns_edge")
    cut = known.select(
        start=pl.max_horizontal("start_ns_edge", pl.lit(window.start_ns)),
        duration=pl.min_horizontal(end, pl.lit(window.end_ns))
        - pl.max_horizontal("start_ns_edge", pl.lit(window.start_ns)),
    )
    assert cut["start"].to_list() == steps["start_ns"].to_list()
    assert cut["duration"].to_list() == steps["duration_ns"].to_list()
    assert set(steps["src"][1:].to_list() + steps["dst"][:-1].to_list()).isdisjoint({-1, -2})
    if window.end_vertex is not None:
        assert steps["dst"][-1] == window.end_vertex


@pytest.mark.sampled(3)
@pytest.mark.parametrize("pag", every_run(), indirect=True)
def test_every_path_spans_its_window(pag: Pag) -> None:
    edges = pag.edges().select("src", "dst", "type", "start_ns", "duration_ns").collect()
    windows = [window for window in pag.run.windows() if window.span_ns]
    # The longest run has hundreds of windows; some of them show the same.
    for window in windows[:: max(1, len(windows) // 10)]:
        check_path(pag.critical_path(epoch=window.epoch), edges)
    end = pag.run.end_ns
    for part in (0, 3, 6):
        check_path(pag.critical_path(between=(end * part // 9, end * (part + 2) // 9)), edges)


@pytest.mark.parametrize("pag", every_run(), indirect=True)
def test_every_event_is_a_vertex_or_counted(pag: Pag) -> None:
    info = pag.run.info
    vertices = pag.vertices().collect()
    assert vertices["seq"].count() + sum(info.dropped.values()) == info.events
    assert vertices["id"].is_unique().all()
    local = pag.edges().filter(pl.col("read").is_null()).collect()
    summed = local.with_columns(worker=pl.col("src") // 2**40).group_by("worker").agg(pl.col("duration_ns").sum())
    assert set(summed["duration_ns"]) == {info.run["end_ns"]}
    assert summed.height == info.run["workers"]
    assert (local["duration_ns"] >= 0).all()
    assert pag.epochs["waiting_ns"].sum() == local.filter(pl.col("type") == "waiting")["duration_ns"].sum()
    # Every message has both its ends. Few are read before their sends are logged: a thread can lose its core between
    # sending and writing that down.
    found = Counter(pag.findings()["finding"].to_list())
    assert set(found) <= {"negative_transfer"}
    assert found["negative_transfer"] < 10


@pytest.mark.parametrize(
    ("pag", "rounds"),
    [("skewed", 9), ("bfs", 20), *(pytest.param(name, n, marks=needs_oracles) for name, n in RECORDED.items())],
    indirect=["pag"],
)
def test_rounds_are_those_of_the_prototype(pag: Pag, rounds: int) -> None:
    assert Counter(pag.epochs["role"].to_list()) == {"startup": 1, "round": rounds, "shutdown": 1}


@pytest.mark.parametrize("pag", ["skewed", pytest.param("skewed-w4", marks=needs_oracles)], indirect=True)
def test_the_skew_shows(pag: Pag) -> None:
    data = pag.edges().filter(pl.col("type") == "data_message").collect()
    # All that passes the filter goes to worker 0.
    pairs = set(data.select(pl.col("src") // 2**40, pl.col("dst") // 2**40).iter_rows())
    assert pairs == {(1, 0), (2, 0), (3, 0)}
    # In the slowest round the others wait, for longer than worker 0 does, which works longest over all rounds.
    waited: Counter[int] = Counter()
    for row in pag.waits().to_pylist():
        waited[row["worker"]] += row["waiting_ns"]
    assert set(waited) == {1, 2, 3}
    work = pag.edges().filter(pl.col("type") == "processing").with_columns(worker=pl.col("src") // 2**40)
    worked = dict(work.group_by("worker").agg(pl.col("duration_ns").sum()).collect().iter_rows())
    assert worked[0] == max(worked.values())
    # The rounds' paths spend most of their local time on the worker that gets everything: the prototype found 61 % in
    # its trace; where each record is more work, as in the bundled one, it is nearly all of it.
    spent: Counter[int] = Counter()
    for window in pag.run.windows():
        if window.role is api.EpochRole.ROUND:
            steps = pag.critical_path(epoch=window.epoch).steps.to_pylist()
            for step in steps:
                spent[step["worker"]] += step["duration_ns"] * (step["worker"] == step["to_worker"])
    share = spent[0] / spent.total()
    assert share > 0.9 if pag.run.info.run["source"]["format"] == "pag-timely" else 0.55 < share < 0.67


@pytest.mark.parametrize("pag", ["skewed"], indirect=True)
def test_the_bundled_trace_is_the_recorded_one(pag: Pag) -> None:
    assert pag.run.info.events == 2_922
    waits = pag.edges().filter(pl.col("type") == "waiting").collect()
    assert sum(row["waits"] for row in pag.waits(between=(0, pag.run.end_ns)).to_pylist()) == waits.height
