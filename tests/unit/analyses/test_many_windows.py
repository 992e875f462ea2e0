"""Many windows in one pass say the same as each window alone."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pag_graph.analyses import ANALYSES, ReportAnalysis, RunAnalysis, Scope, TableAnalysis, find_analysis
from pag_graph.analyses import view as view_module
from pag_graph.analyses.k_hops import KHopsParameters
from pag_graph.analyses.view import View, view_of
from pag_graph.errors import CycleError, InvalidParameterError
from pag_graph.graph.tiling import TYPES, Tiling, ranks, tile, tilings
from pag_graph.model.enums import MESSAGE_TYPES
from pag_graph.testing.strategies import small_traces
from pag_graph.testing.traces import draw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from pag_graph.api import Pag
    from pag_graph.graph.run import Run
    from pag_graph.graph.window import Window
    from pag_graph.testing.traces import SmallTrace

    Fixture = Callable[..., Any]

AT_ONCE = [
    analysis.name
    for analysis in ANALYSES
    if isinstance(analysis, TableAnalysis)
    or (isinstance(analysis, ReportAnalysis) and analysis.steps is not None)
    or (isinstance(analysis, RunAnalysis) and analysis.part is not None)
]


@pytest.fixture(autouse=True, scope="module", params=[1, 40], ids="parts of {} edges".format)
def small_parts(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let threads share what one of them would do alone: runs of tests are small."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(view_module, "_PART", request.param)
        yield


def frames(table: pa.Table) -> pl.DataFrame:
    return pl.DataFrame(pl.from_arrow(table))


def together(run: Run, windows: list[Window], name: str) -> pl.DataFrame:
    """Answer of some windows in one pass."""
    analysis = find_analysis(name)
    return frames(
        analysis.table(View(run=run, windows=windows), analysis.make_parameters(dict(analysis.example_values)))
    )


def one_by_one(run: Run, windows: list[Window], name: str) -> list[pl.DataFrame]:
    """Answer each of some windows alone."""
    analysis = find_analysis(name)
    parameters = analysis.make_parameters(dict(analysis.example_values))
    return [frames(analysis.table(view_of(run.snapshot(window)), parameters)).drop("window") for window in windows]


def compare(run: Run, windows: list[Window], name: str) -> int:
    """Check an analysis of many windows; return how many rows it has."""
    rows = together(run, windows, name)
    for place, alone in enumerate(one_by_one(run, windows, name)):
        of_window = rows.filter(window=place).select(alone.columns)
        assert of_window.sort(alone.columns).equals(alone.sort(alone.columns)), (name, windows[place])
        if find_analysis(name).scope is Scope.WINDOW:
            # Not only the same rows: in the same order, and of the schema's types.
            assert of_window.equals(alone)
    return rows.height


@pytest.mark.sampled(12)
@pytest.mark.parametrize("sample", ["skewed", "bfs"])
@pytest.mark.parametrize("name", AT_ONCE)
def test_all_epochs_at_once(request: pytest.FixtureRequest, sample: str, name: str) -> None:
    pag: Pag = request.getfixturevalue(sample)
    assert compare(pag.run, pag.run.windows(), name) > 0


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", [name for name in AT_ONCE if name not in {"invariants", "metrics"}])
@given(st.data(), small_traces())
def test_free_windows_at_once(in_memory: Fixture, name: str, data: st.DataObject, trace: SmallTrace) -> None:
    run = in_memory(trace).run
    borders = data.draw(st.lists(st.integers(0, max(run.end_ns, 1)), min_size=2, max_size=6, unique=True).map(sorted))
    if borders[-1] > run.end_ns:
        return
    windows = [run.window(between=pair) for pair in pairwise(borders)]
    try:
        compare(run, windows, name)
    except CycleError:
        # On coarse clocks things may wait for themselves: both say so, or it is an error of one.
        for answer in (together, one_by_one):
            with pytest.raises(CycleError):
                answer(run, windows, name)


@given(small_traces(), st.integers(1, 4))
def test_stretches_change_nothing(in_memory: Fixture, trace: SmallTrace, stretch: int) -> None:
    run = in_memory(trace).run
    windows = run.windows()
    for belongs in ("ends", "touches", "labels"):
        cut, whole = (
            pl.concat([tiling.edges for tiling in tilings(run, windows, ["operator"], belongs, stretch=size)])
            for size in (stretch, 1_000_000)
        )
        assert cut.equals(whole)


@given(small_traces())
def test_every_edge_ends_in_one_window_and_carries_one_label(in_memory: Fixture, trace: SmallTrace) -> None:
    run = in_memory(trace).run
    edges = run.scan("edges").collect()
    for belongs in ("ends", "labels"):
        found = pl.concat([tiling.edges for tiling in tilings(run, run.windows(), ["operator"], belongs)])
        assert found.select("src", "dst").sort("src", "dst").equals(edges.select("src", "dst").sort("src", "dst"))


@given(small_traces())
def test_a_tiling_is_sorted_and_has_what_the_snapshot_shows(in_memory: Fixture, trace: SmallTrace) -> None:
    run = in_memory(trace).run
    for window in run.windows():
        snapshot = run.snapshot(window)
        tiling: Tiling = tile(snapshot, "touches")
        edges = tiling.edges.with_columns(message=pl.col("type").cast(pl.String).is_in(MESSAGE_TYPES))
        assert edges.equals(edges.sort("dst", "message", "src", maintain_order=True))
        shown = snapshot.edges.with_columns(pl.col("type").cast(TYPES))
        assert tiling.edges.sort("src", "dst", "type").equals(shown.sort("src", "dst", "type"))


@given(small_traces())
def test_snapshots_of_many_windows_are_those_of_each(in_memory: Fixture, trace: SmallTrace) -> None:
    run = in_memory(trace).run
    windows = [window for window in run.windows() if window.span_ns > 0]
    overlapping = run.series(max(1, run.end_ns // 3), step_ns=max(1, run.end_ns // 5)) if run.end_ns else []
    for some in (windows, overlapping, windows[::-1]):
        for window, snapshot in zip(some, run.snapshots(some), strict=True):
            assert snapshot.window == window
            assert snapshot.edges.equals(run.snapshot(window).edges)


def test_the_origin_is_not_shown_by_what_follows_an_empty_round(in_memory: Fixture) -> None:
    run = in_memory(draw("0 start 0 | 0 exit", "1 start 0")).run
    empty, later = run.windows()
    assert empty.span_ns == 0
    (alone,) = run.snapshots([later])
    assert alone.edges.equals(run.snapshot(later).edges)
    assert alone.edges.height == 1


@given(st.lists(st.integers(-5, 5) | st.integers(-(1 << 60), 1 << 60)))
def test_ranks(values: list[int]) -> None:
    found, known = ranks(pl.Series(values, dtype=pl.Int64).to_numpy())
    assert known.tolist() == sorted(set(values))
    assert [known[rank] for rank in found] == values


def test_each_and_series_check_what_they_are_asked(skewed: Pag) -> None:
    for ask in (skewed.each, lambda name, *given, **more: skewed.series(name, *given, every_ns=1_000_000, **more)):
        with pytest.raises(InvalidParameterError, match="does not look at one window"):
            ask("invariants")
        with pytest.raises(InvalidParameterError, match="There is no analysis"):
            ask("nothing")
        with pytest.raises(InvalidParameterError, match="has no parameter 'hops'"):
            ask("k-hops", hops=3)
        with pytest.raises(InvalidParameterError, match="Give k as fields"):
            ask("k-hops", KHopsParameters(k=2), k=3)


def test_windows_without_length(in_memory: Fixture) -> None:
    run = in_memory(draw("0 start 1")).run
    windows = run.windows()
    assert not any(window.span_ns for window in windows)
    for name in AT_ONCE:
        analysis = find_analysis(name)
        made = analysis.make_parameters(dict(analysis.example_values))
        assert analysis.table(View(run=run, windows=windows), made).num_rows >= 0


@given(small_traces(), st.integers(1, 20))
def test_parts_of_a_tiling_are_all_of_it(in_memory: Fixture, trace: SmallTrace, edges: int) -> None:
    run = in_memory(trace).run
    for tiling in tilings(run, run.windows(), ["operator"], "touches"):
        parts = tiling.parts(edges)
        assert [window for part in parts for window in part.windows] == list(tiling.windows)
        assert pl.concat([part.edges for part in parts]).equals(tiling.edges)
        assert [count for part in parts for count in np.diff(part.first)] == list(np.diff(tiling.first))
        # Each holds its share, but for the last one, and for what its last window adds.
        assert all(part.edges.height > 0 for part in parts) or not tiling.edges.height
        # Windows without edges at the end are in the last one, however full it is.
        begins = [part.first[:-1][np.diff(part.first) > 0] for part in parts]
        assert all((begin < edges).all() for begin in begins)
