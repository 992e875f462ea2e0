"""What runs across partitions says the same as in one piece: here on frames of Polars, on Spark in the integration."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import narwhals.stable.v2 as nw
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pag_graph.analyses import ANALYSES, find_analysis, table_of
from pag_graph.analyses.contraction import IS_STRETCH, contract
from pag_graph.analyses.critical_path import critical_path
from pag_graph.analyses.invariants import InvariantsParameters
from pag_graph.analyses.k_hops import KHopsParameters
from pag_graph.analyses.view import View, in_process, view_of
from pag_graph.errors import AnalysisError, PagError, UnsupportedPlanError
from pag_graph.graph.window import Window
from pag_graph.model.enums import LOCAL_TYPES
from pag_graph.testing.strategies import small_traces

if TYPE_CHECKING:
    from collections.abc import Callable

    from pag_graph.api import Pag
    from pag_graph.graph.run import Run

    Fixture = Callable[..., Any]

k_hops = find_analysis("k-hops")

PROVE = os.environ.get("PAG_PROVE") == "1"
ACROSS = [analysis.name for analysis in ANALYSES if analysis.across]
WEIGHTS = st.sampled_from(["delivered", "transfer"])
traces = small_traces(skewed=True, max_steps=50)


def spread(run: Run, window: Window) -> View:
    """Return a view as Spark spreads it, whose frames Polars runs."""
    return View(run=run, windows=[window], spread=in_process(run))


def windows_of(run: Run, data: st.DataObject) -> list[Window]:
    chosen = run.windows()
    if run.end_ns:
        start = data.draw(st.integers(0, run.end_ns - 1))
        chosen.append(run.window(between=(start, data.draw(st.integers(start + 1, run.end_ns)))))
    return chosen


def both(run: Run, window: Window, name: str, parameters: Any = None) -> tuple[pl.DataFrame, pl.DataFrame]:
    analysis = find_analysis(name)
    one, other = (
        pl.DataFrame(analysis.table(view, parameters)) for view in (view_of(run.snapshot(window)), spread(run, window))
    )
    if name == "invariants":
        # Nobody relies on the order of what the rounds are asked for.
        order = ["fixed", "invariant", "worker", "to_worker", "type", "operator", "channel", "src", "dst"]
        one, other = one.sort(order), other.select(one.columns).sort(order)
    return one, other


@pytest.mark.sampled(4)
@pytest.mark.parametrize("sample", ["skewed", "bfs"])
@pytest.mark.parametrize("name", ACROSS)
def test_all_epochs_of_samples(request: pytest.FixtureRequest, sample: str, name: str) -> None:
    pag: Pag = request.getfixturevalue(sample)
    rows = 0
    for window in pag.run.windows():
        one, other = both(pag.run, window, name)
        assert one.equals(other), window
        rows += one.height
    assert rows > 0


@settings(max_examples=10_000 if PROVE else 15)
@given(traces, st.data(), st.sampled_from(ACROSS))
def test_random_traces(in_memory: Fixture, whole_run: Fixture, trace: Any, data: st.DataObject, name: str) -> None:
    run = whole_run(in_memory(trace))
    window = data.draw(st.sampled_from(windows_of(run, data)))
    one, other = both(run, window, name)
    assert one.equals(other)


@given(traces, st.data(), st.builds(KHopsParameters, k=st.integers(1, 6), through_waits=st.booleans(), weight=WEIGHTS))
def test_k_hops_of_every_kind(in_memory: Fixture, trace: Any, data: st.DataObject, parameters: KHopsParameters) -> None:
    run = in_memory(trace).run
    window = data.draw(st.sampled_from(windows_of(run, data)))
    one, other = both(run, window, "k-hops", parameters)
    assert one.equals(other)


@given(traces, st.data(), st.integers(0, 30))
def test_limits_of_invariants(in_memory: Fixture, trace: Any, data: st.DataObject, limit: int) -> None:
    run = in_memory(trace).run
    parameters = InvariantsParameters(epoch_max_ns=limit, message_max_ns=limit, operator_max_ns=limit)
    window = data.draw(st.sampled_from(windows_of(run, data)))
    one, other = both(run, window, "invariants", parameters)
    assert one.equals(other)


@given(traces)
def test_contracted_graphs_are_made_of_waits_and_what_ended_them(in_memory: Fixture, trace: Any) -> None:
    run = in_memory(trace).run
    for window in run.windows():
        if window.span_ns == 0:
            continue
        whole, small = run.snapshot(window), contract(spread(run, window)).edges
        waits = whole.edges.filter(type="waiting").sort("dst")
        assert small.filter(type="waiting").sort("dst").equals(waits)
        local = pl.col("type").is_in([str(kind) for kind in LOCAL_TYPES])
        stretches = small.filter(IS_STRETCH)
        # Each message that ended a wait adds at most two vertices, each wait two, each worker three at the borders.
        messages = small.filter(~local).height
        assert stretches.height <= 2 * messages + 2 * waits.height + 3 * len(run.workers)
        # No instant of a worker is told twice.
        of_worker = small.filter(local).sort("src").with_columns(worker=pl.col("src") // (1 << 40))
        ends = of_worker["start_ns"] + of_worker["duration_ns"]
        for (_,), edges in of_worker.with_columns(end_ns=ends).group_by("worker"):
            in_order = edges.sort("src")
            assert (in_order["end_ns"][:-1] <= in_order["start_ns"][1:]).all()


def test_what_follows_edges_one_after_the_other_is_refused(skewed: Pag) -> None:
    with pytest.raises(UnsupportedPlanError, match="slack follows a window's edges one after the other"):
        skewed.analyse("slack", spark=object(), epoch=4)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedPlanError, match="participation follows"):
        skewed.each("participation", spark=object())  # type: ignore[arg-type]


def test_the_job_says_so_before_it_starts_spark(tmp_path: Path) -> None:
    job = Path(__file__).parents[3] / "spark_jobs" / "analyse.py"
    command = [sys.executable, str(job), "store", str(tmp_path / "out"), "--analysis", "slack", "--across"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 8
    assert "slack follows a window's edges one after the other" in json.loads(found.stdout)["message"]
    assert not (tmp_path / "out").exists()


def test_edges_that_are_lost_are_missed(skewed: Pag) -> None:
    view = spread(skewed.run, skewed.run.window(epoch=4))
    path = critical_path(view)
    lost = int(pl.DataFrame(path.steps).filter(type="processing")["edge_dst"][0])
    stored = view.engine.edges
    less = replace(view.engine, edges=lambda near: stored(near).filter(nw.col("dst") != lost))
    with pytest.raises(PagError, match="leave a gap"):
        critical_path(replace(view, spread=less))


def test_more_walks_than_can_be_counted(drawn_run: Fixture) -> None:
    # Two messages between the same two vertices, again and again: 2 to the power of the hops.
    none = {"operator": None, "read": None, "receive_buffer_ns": None}
    common = {"epoch": 0, "src_epoch": 0, "flags": 0, "alternatives": 0, **none}
    edges = [
        {**common, "src": step % 2 << 40 | 2 * step, "dst": (step + 1) % 2 << 40 | 2 * step + 2}
        | {"type": "data_message", "channel": channel, "start_ns": step, "duration_ns": 1}
        for step in range(70)
        for channel in range(2)
    ]
    last = edges[-1]["dst"]
    wait = {**common, "src": last - 1, "dst": last, "type": "waiting", "start_ns": 0, "duration_ns": 70}
    run = drawn_run(edges=[*edges, wait], processes={0: 0, 1: 0}, epochs=[]).run
    window = Window(start_ns=0, end_ns=run.end_ns)
    for subject in (spread(run, window), run.snapshot(window)):
        assert table_of(k_hops(subject, KHopsParameters(k=50))).num_rows > 0
        with pytest.raises(AnalysisError, match="64 bits"):
            k_hops(subject, KHopsParameters(k=70))
