"""Causal profiles: each row is a replay, and all that pays is there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pag_graph.analyses import causal_profile as module
from pag_graph.analyses import find_analysis
from pag_graph.analyses.causal_profile import CausalProfileParameters
from pag_graph.analyses.critical_path import critical_path
from pag_graph.analyses.what_if import WORK, WhatIfParameters, what_if
from pag_graph.errors import InvalidParameterError, UnsupportedPlanError
from pag_graph.graph.window import Window
from pag_graph.model.tables import CAUSAL_PROFILE
from pag_graph.testing.strategies import small_traces
from pag_graph.testing.traces import draw

if TYPE_CHECKING:
    from collections.abc import Callable

    from pag_graph.api import Pag
    from pag_graph.graph.snapshot import Snapshot

    Fixture = Callable[..., Any]
    Row = dict[str, Any]

causal_profile = find_analysis("causal-profile")

PROVE = os.environ.get("PAG_PROVE") == "1"

# Worker 0 works until 30 and sends; worker 1, which waits for it from 10 on, works until 60 and ends the epoch first.
FAST = "0 start 1 | 20 stop 1 | 25 start 2 | 30 send 3>1 | 40 stop 2 | 70 end"
SLOW = "0 start 4 | 10 stop 4 | 10 park | 34 unpark | 35 start 3 | 36 recv 3<0 | 60 stop 3 | 60 end"


def thing(row: Row) -> tuple[Any, ...]:
    return (row["kind"], row["operator"], row["worker"], row["from_worker"], row["to_worker"])


def profile(snapshot: Snapshot, **parameters: Any) -> dict[tuple[Any, ...], list[Row]]:
    table = causal_profile(snapshot, CausalProfileParameters(**parameters))
    assert table.schema.equals(CAUSAL_PROFILE)
    result: dict[tuple[Any, ...], list[Row]] = {}
    for row in table.to_pylist():
        result.setdefault(thing(row), []).append(row)
    return result


def change(row: Row, **more: Any) -> WhatIfParameters:
    """The what-if replay that a row is."""
    selection: dict[str, Any] = {
        "operator": {"operator": (row["operator"],)},
        "worker": {"worker": (row["worker"],)},
        "message": {"from_worker": (row["from_worker"],), "to_worker": (row["to_worker"],)},
    }[row["kind"]]
    return WhatIfParameters(**selection, factor=(100 - row["virtual_speedup_percent"]) / 100, **more)


def test_what_pays_most_comes_first(in_memory: Fixture) -> None:
    run = in_memory(draw(FAST, SLOW)).run
    found = profile(run.snapshot(run.window(epoch=0)), steps=4)
    spans = {key: [row["span_ns"] for row in rows] for key, rows in found.items()}
    # Edge by edge, and rounded: of worker 0's 20 + 5 + 5 three quarters are 15 + 4 + 4. From 20 saved on, worker 1 is
    # not ready for the message.
    assert list(spans.items()) == [
        (("worker", None, 1, None, None), [60, 54, 46, 40, 34]),
        (("operator", 3, None, None, None), [60, 54, 47, 41, 35]),
        (("worker", None, 0, None, None), [60, 53, 44, 40, 40]),
        (("operator", 1, None, None, None), [60, 55, 50, 45, 40]),
        (("operator", 2, None, None, None), [60, 59, 57, 56, 55]),
        (("operator", 4, None, None, None), [60] * 5),
        (("message", None, None, 0, 1), [60] * 5),
    ]
    assert [(row["time_ns"], row["path_ns"]) for row in found["operator", 2, None, None, None]] == [(15, 5)] * 5
    assert found["operator", 1, None, None, None][2]["saved_percent"] == pytest.approx(100 / 6)


def test_all_that_happens_is_there(bfs: Pag) -> None:
    snapshot = bfs.snapshot()
    found = profile(snapshot, steps=1)
    edges = snapshot.edges.to_dicts()
    assert {key[1] for key in found if key[0] == "operator"} == {
        edge["operator"] for edge in edges if edge["operator"] is not None
    }
    assert {key[2] for key in found if key[0] == "worker"} == set(bfs.run.workers)
    assert {key[3:] for key in found if key[0] == "message"} == {(0, 1), (1, 0)}
    by_type = critical_path(snapshot).by_type
    on_path = sum(rows[0]["path_ns"] for key, rows in found.items() if key[0] == "worker")
    assert on_path == sum(ns for kind, ns in by_type.items() if kind in {str(kind) for kind in WORK})


def test_only_what_is_on_the_path_is_replayed(bfs: Pag, monkeypatch: pytest.MonkeyPatch) -> None:
    replays = []

    def count(*arguments: Any) -> Any:
        replays.append(len(arguments[3].origin))
        return scaled(*arguments)

    scaled = module.scaled_ends
    monkeypatch.setattr(module, "scaled_ends", count)
    found = profile(bfs.snapshot(), steps=2)
    assert sum(replays) == sum(rows[0]["path_ns"] > 0 for rows in found.values()) < len(found)


@pytest.mark.parametrize("sample", ["skewed", "bfs"])
def test_rows_are_what_if_replays(sample: str, request: pytest.FixtureRequest) -> None:
    pag = request.getfixturevalue(sample)
    snapshot = pag.snapshot()
    found = profile(snapshot, steps=2)
    assert len(found) > 5
    for rows in found.values():
        assert [row["virtual_speedup_percent"] for row in rows] == [0, 50, 100]
        assert rows[0]["saved_ns"] == 0
        for row in rows[1:]:
            result = what_if(snapshot, change(row))
            assert (row["span_ns"], row["saved_ns"], row["time_ns"]) == (
                result.span_ns,
                result.saved_ns,
                result.changed_ns,
            )


@settings(max_examples=1_000 if PROVE else 10)
@given(
    small_traces(max_steps=40, instant=False),
    st.sampled_from(["closed", "open"]),
    st.sampled_from(["shortest", "read"]),
)
def test_rows_are_what_if_replays_on_random_traces(in_memory: Fixture, trace: Any, loop: Any, arrival: Any) -> None:
    run = in_memory(trace).run
    for window in run.windows():
        snapshot = run.snapshot(window)
        for rows in profile(snapshot, steps=2, loop=loop, arrival=arrival).values():
            for row in rows:
                result = what_if(snapshot, change(row, loop=loop, arrival=arrival))
                assert row["span_ns"] == result.span_ns
                assert row["time_ns"] == result.changed_ns
            # Nothing saves more than the time that it takes on the path, nor does less work make it longer.
            spans = [row["span_ns"] for row in rows]
            assert spans == sorted(spans, reverse=True)
            assert all(row["saved_ns"] <= row["path_ns"] for row in rows)


def test_faster_networks_pay_between_processes(in_memory: Fixture) -> None:
    there = "0 start 1 | 10 send 3>1 | 11 stop 1 | 12 park | 60 unpark | 61 start 2 | 62 recv 3<1 | 63 stop 2 | 64 end"
    back = "0 park | 20 unpark | 21 start 2 | 22 recv 3<0 | 40 send 3>0 | 41 stop 2 | 90 end"
    run = in_memory(draw(there, back, processes=(0, 1))).run
    found = profile(run.snapshot(run.window(epoch=0)), steps=1)
    # The message back lasts 20, the one there 10.
    assert [(key[3:], rows[1]["saved_ns"]) for key, rows in found.items() if key[0] == "message"] == [
        ((1, 0), 20),
        ((0, 1), 10),
    ]


@pytest.mark.parametrize("steps", [0, -1, 1_001])
def test_steps_have_a_range(skewed: Pag, steps: int) -> None:
    with pytest.raises(InvalidParameterError, match="from 1 to 1,000"):
        profile(skewed.snapshot(), steps=steps)


def test_an_empty_window_has_no_rows(skewed: Pag) -> None:
    assert profile(skewed.run.snapshot(Window(start_ns=10, end_ns=10))) == {}


def test_clocks_must_be_aligned(in_memory: Fixture) -> None:
    drawn = in_memory(draw(FAST, SLOW))
    drawn.rules = "st2"
    with pytest.raises(UnsupportedPlanError, match="aligned clocks"):
        profile(drawn.run.snapshot(drawn.run.window(epoch=0)))
