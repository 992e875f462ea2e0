"""Where a run may be cut, and what the windows of a run are."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pag_graph import api
from pag_graph.builder.clocks import Clock
from pag_graph.builder.cuts import instants_of_rows
from pag_graph.builder.plan import plan_run
from pag_graph.errors import InvalidParameterError, TraceFormatError
from pag_graph.model.enums import EpochRole, RuleSet
from pag_graph.rules.rows import RuleParameters
from pag_graph.store.log import TraceLog, column
from pag_graph.store.trace import Trace
from pag_graph.testing.reference import build_reference
from pag_graph.testing.strategies import small_traces
from pag_graph.testing.traces import draw
from tests.support import compare
from tests.support.compare import WAYS, assembled, differences

if TYPE_CHECKING:
    from pathlib import Path

    from pag_graph.builder.plan import RunPlan
    from pag_graph.testing.traces import SmallTrace


def plan(place: Path, trace: SmallTrace, slice_events: int, *, shuffle: int | None = None) -> RunPlan:
    written = trace.write(place / f"trace-{len(list(place.iterdir()))}", shuffle=shuffle)
    return plan_run(Trace.open(written), RuleSet.TIMELY, slice_events=slice_events)


def cuts(place: Path, log: str, *, shuffle: int | None = None) -> list[int]:
    """Rows of worker 0 where a slice begins, when slices are as small as can be."""
    made = plan(place, draw(log), 1, shuffle=shuffle).slices
    rows = [part.rows[0] for part in made]
    assert [low for low, _ in rows] == [0, *(high for _, high in rows[:-1])]
    return [low for low, _ in rows[1:]]


@pytest.mark.parametrize("shuffle", [None, 1, 2, 3])
@pytest.mark.parametrize(
    ("log", "expected"),
    [
        # Where a park begins that does not go on with another.
        ("0 start 1 | 1 stop 1 | 2 park | 3 unpark | 4 end | 5 park | 6 unpark | 7 end", [2, 5]),
        ("0 start 1 | 2 park | 3 unpark | 4 park | 5 unpark | 6 end", [1]),
        # A park without its other end is none, and what follows it has its type from it.
        ("0 start 1 | 1 park | 2 unpark | 3 end | 4 park | 5 end | 6 park | 7 unpark", [1, 6]),
        ("0 start 1 | 1 park | 2 park | 3 unpark | 4 end | 5 park", []),
        # Who never parks is cut after the ends of epochs.
        ("0 start 1 | 1 stop 1 | 2 end | 3 start 1 | 4 end | 5 start 1", [3, 5]),
        ("0 start 1 | 1 stop 1 | 2 start 1", []),
    ],
)
def test_where_a_log_is_cut(tmp_path: Path, log: str, expected: list[int], shuffle: int | None) -> None:
    assert cuts(tmp_path, log, shuffle=shuffle) == expected


@settings(max_examples=20)
@given(small_traces(max_workers=3), st.data())
def test_instants_are_those_of_all_rows_in_order(
    tmp_path_factory: pytest.TempPathFactory, trace: SmallTrace, data: st.DataObject
) -> None:
    place = tmp_path_factory.mktemp("instants")
    log = TraceLog.index(Trace.open(trace.write(place / "trace", shuffle=data.draw(st.sampled_from((None, 1, 2))))))
    clocks = {worker: Clock(offset_ns=data.draw(st.integers(-50, 50))) for worker in log.chunks}
    start = {worker: data.draw(st.integers(0, log.rows_of(worker))) for worker in log.chunks}
    times = [
        clocks[worker].common(column(log.read(worker, start[worker], log.rows_of(worker), ["t_ns"]), "t_ns"))
        for worker in log.chunks
    ]
    ordered = np.sort(np.concatenate(times))
    places = np.arange(0, len(ordered), data.draw(st.integers(1, 5)))
    assert instants_of_rows(log, clocks, start, places) == ordered[places].tolist()


@pytest.mark.parametrize("since_1970", [1_795_258_388_426_779_597 + more for more in (0, 50, 100)])
def test_what_is_later_than_all_logs_go_is_not_decided(tmp_path: Path, since_1970: int) -> None:
    log = " | ".join(f"{t} park | {t + 1} unpark | {t + 2} end" for t in (0, *range(90, 240, 10)))
    trace = replace(draw("0 start 1 | 1 stop 1 | 2 end | 100 start 1", log), complete=False)
    for clock in (0, since_1970):
        recorded = replace(trace.shifted(clock), offsets_ns=(-clock, -clock))
        # Worker 0 has logged until 100, so nobody knows what reached worker 1 after its third park.
        assert plan(tmp_path, recorded, 1000).slices[-1].rows[1][0] == 6


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_no_horizon_is_too_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: dict[str, int]) -> None:
    rests = " | ".join(f"{t} park | {t + 1} unpark | {t + 2} end" for t in range(0, 100, 10))
    trace = draw(
        f"{rests} | 101 send 3>1 | 110 park | 120 unpark | 130 end",
        f"{rests} | 105 park | 119 unpark | 121 recv 3<0 | 125 recv 3<0 #7 | 130 end",
    )
    monkeypatch.setattr(compare, "RuleParameters", partial(RuleParameters, horizon_ns=2**63 - 1))
    assert differences(assembled(trace, tmp_path, slice_events=4, **way), build_reference(trace)) == ""


@pytest.mark.parametrize("slice_events", [1, 2, 3, 5, 100])
@pytest.mark.parametrize(
    ("log", "peer"),
    [
        # What is read after a park that was cut off belongs to the interval before it.
        ("0 park | 10 unpark | 12 start 1 | 13 stop 1 | 20 park | 30 recv 3<1 | 40 end", "0 end | 5 send 3>0 | 40 end"),
        ("0 start 1 | 1 stop 1 | 10 park | 20 park | 30 unpark | 40 end", "0 start 1 | 40 end"),
        # An activation that is open where a slice ends.
        ("0 start 1 | 10 park | 20 unpark | 21 send 3>1 | 25 stop 1 | 30 park | 35 unpark", "0 end | 30 recv 3<0"),
        # Slices of which nothing becomes a vertex.
        ("0 start 1 | 2 stop 1 | 3 park | 4 unpark | 5 park | 6 unpark", "0 push 1 | 1 push 1 | 2 push 1 | 40 end"),
        # Segments that last over several slices, and messages that do.
        (
            "0 send 3>1 | 1 park | 20 unpark | 21 recv 4<1 | 25 park | 26 unpark | 27 end | 30 park | 31 unpark",
            "0 park | 9 unpark | 10 end | 15 send 4>0 | 16 park | 17 unpark | 39 recv 3<0 | 40 end",
        ),
    ],
)
def test_cuts_do_not_show(tmp_path: Path, log: str, peer: str, slice_events: int) -> None:
    trace = draw(log, peer)
    assert differences(assembled(trace, tmp_path, slice_events=slice_events), build_reference(trace)) == ""


def test_slices_hold_every_row_once_and_silent_workers_too(tmp_path: Path) -> None:
    log = " | ".join(f"{t} park | {t + 1} unpark | {t + 2} end" for t in range(0, 30, 3))
    made = plan(tmp_path, draw(log, log, ""), 7)
    assert len(made.slices) > 3
    assert sum(part.events for part in made.slices) == 60
    assert [part.number for part in made.slices] == list(range(len(made.slices)))
    # The run ends for all workers in the last slice.
    assert made.slices[-1].rows[2] == (0, 0)
    assert all(2 not in part.rows for part in made.slices[:-1])
    assert len(plan(tmp_path, draw(log, log, ""), 60).slices) == 1


def test_slices_must_not_be_empty(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameterError, match="slice_events is 0"):
        plan(tmp_path, draw("0 end"), 0)


def test_two_rule_sets_or_parameters_are_two_runs(tmp_path: Path) -> None:
    trace = Trace.open(draw("0 end").write(tmp_path / "trace"))
    ids = {
        plan_run(trace, rules, parameters).run_id
        for rules in (RuleSet.TIMELY, RuleSet.ST2)
        for parameters in (None, RuleParameters(busy_below_ns=1))
    }
    assert len(ids) == 4
    assert plan_run(trace, RuleSet.TIMELY).run_id == plan_run(trace, RuleSet.TIMELY, RuleParameters()).run_id


def windows(place: Path, *logs: str) -> list[tuple[object, ...]]:
    graph = assembled(draw(*logs), place)
    assert differences(graph, build_reference(draw(*logs))) == ""
    return [(row["epoch"], row["role"], row["start_ns"], row["end_ns"]) for row in graph.epochs]


def test_a_round_closes_with_the_earliest_end_of_its_epoch(tmp_path: Path) -> None:
    assert windows(tmp_path, "0 start 1 | 20 end | 50 end | 60 stop 1", "0 start 1 | 30 end | 45 end") == [
        (0, "startup", 0, 20),
        (1, "round", 20, 45),
        (2, "shutdown", 45, 60),
    ]


def test_an_epoch_that_not_all_have_left_is_open(tmp_path: Path) -> None:
    assert windows(tmp_path, "0 start 1 | 20 end | 50 end", "0 start 1 | 30 end | 45 stop 1") == [
        (0, "startup", 0, 20),
        (1, "shutdown", 20, 50),
    ]


def test_nothing_that_follows_an_open_epoch_is_closed(tmp_path: Path) -> None:
    assert windows(tmp_path, "0 start 1 | 20 end | 40 end | 50 end", "0 start 1 | ~1 30 end | 45 end") == [
        (0, "startup", 0, 50)
    ]


def test_numbers_of_epochs_may_have_gaps(tmp_path: Path) -> None:
    log = "0 start 1 | ~3 20 end | 25 stop 1 | ~9 40 end"
    assert windows(tmp_path, log, log) == [(3, "startup", 0, 20), (9, "round", 20, 40)]


def test_without_ends_of_epochs_the_last_event_stands_in(tmp_path: Path) -> None:
    assert windows(tmp_path, "0 start 1 | 20 stop 1 | ~1 30 start 1", "0 start 1 | 15 stop 1 | ~1 40 start 1") == [
        (0, "startup", 0, 15),
        (1, "round", 15, 30),
        (2, "shutdown", 30, 40),
    ]


def test_a_run_of_one_instant(tmp_path: Path) -> None:
    assert windows(tmp_path, "0 end") == [(0, "startup", 0, 0)]


def test_windows_that_do_not_exist(tmp_path: Path) -> None:
    draw("0 start 1 | 20 end | 50 end").write(tmp_path / "trace")
    api.build(tmp_path / "trace", tmp_path / "store", engine="local")
    run = api.open(tmp_path / "store").run
    assert [window.name for window in run.windows()] == ["startup", "epoch 1"]
    assert run.window(between=(3, 9)).name == "3..9 ns"
    assert run.slowest().epoch == 1
    with pytest.raises(InvalidParameterError, match="has no epoch 7; it has epochs 0 to 1"):
        run.window(epoch=7)
    with pytest.raises(InvalidParameterError, match="has no shutdown"):
        run.window(role=EpochRole.SHUTDOWN)
    for between in ((-1, 5), (5, 5), (0, 51)):
        with pytest.raises(InvalidParameterError, match="does not lie in the run, which goes from 0 to 50"):
            run.window(between=between)


@pytest.mark.parametrize(
    ("rules", "idle_logged", "why"),
    [
        (RuleSet.TIMELY, True, "no wait begins there"),
        (RuleSet.TIMELY, False, "it does not say when workers had nothing to do"),
        (RuleSet.ST2, True, "they are of one epoch"),
    ],
)
def test_a_log_that_cannot_be_cut_and_does_not_fit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rules: RuleSet, *, idle_logged: bool, why: str
) -> None:
    trace = draw("0 start 1 | 1 stop 1 | 2 start 1 | 3 stop 1 | 9 end", "0 end", idle_logged=idle_logged)
    written = trace.write(tmp_path / "trace")
    api.build(written, tmp_path / "store", rules=rules, engine="local", slice_events=2)
    monkeypatch.setattr("pag_graph.builder.plan._MANY_EVENTS", 5)
    monkeypatch.setattr("pag_graph.store.capacity.available_bytes", lambda: 100)
    with pytest.raises(TraceFormatError, match=rf"log of worker 0 .* rows 0 and 5: {why}.* of 6 events .*GiB"):
        api.build(written, tmp_path / "store", rules=rules, engine="local", slice_events=2, mode="replace")
