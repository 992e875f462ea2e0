"""Skew and stragglers: drawn by hand, and the study of the thesis on the bundled sample."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pag_graph.analyses import find_analysis
from pag_graph.analyses.skew import SkewParameters
from pag_graph.analyses.stragglers import StragglersParameters
from pag_graph.errors import InvalidParameterError
from pag_graph.testing.traces import draw

if TYPE_CHECKING:
    from collections.abc import Callable

    Fixture = Callable[..., Any]

skew = find_analysis("skew")
stragglers = find_analysis("stragglers")


NAMES = {1: ("0.1", "Map")}
# Worker 0 works 90, worker 1 only 10 before it waits, and 5 after.
SLOW = "0 start 1 | 2 send 3>0 *4 | 3 recv 3<0 *4 | 90 send 4>1 | 91 stop 1 | 100 end"
QUICK = (
    "0 start 1 | 2 send 3>1 *{n} | 3 recv 3<1 *{n} | 10 stop 1 | 10 park"
    " | 92 unpark | 93 start 2 | 94 recv 4<0 | 98 stop 2 | 100 end"
)


def test_records_per_worker_and_operator(in_memory: Fixture, whole_run: Fixture) -> None:
    run = whole_run(in_memory(draw(SLOW, QUICK.format(n=1))), NAMES)
    rows = skew(run.snapshot(run.window(epoch=0))).to_pylist()
    assert [(row["operator_name"], row["worker"], row["records"], row["share"], row["mean_ratio"]) for row in rows] == [
        ("Map", 0, 4, 0.8, 1.6),
        ("Map", 1, 1, 0.2, 0.4),
    ]
    assert [(row["skew_ratio"], row["skewed"], row["activations"]) for row in rows] == [(1.6, True, 1)] * 2
    assert not any(skew(run.snapshot(run.window(epoch=0)), SkewParameters(above=1.6))["skewed"].to_pylist())


@pytest.mark.parametrize(("records", "cause"), [(1, "data"), (4, "speed")])
def test_a_straggler_has_more_data_or_is_slower(
    in_memory: Fixture, whole_run: Fixture, records: int, cause: str
) -> None:
    run = whole_run(in_memory(draw(SLOW, QUICK.format(n=records))))
    rows = stragglers(run.snapshot(run.window(epoch=0)), StragglersParameters(above=1.25)).to_pylist()
    assert [(row["worker"], row["straggler"], row["cause"]) for row in rows] == [(0, True, cause), (1, False, None)]
    # Worker 1 waited from 10 to 90 for what worker 0 did.
    assert (rows[0]["blamed_ns"], rows[1]["waiting_ns"], rows[0]["work_ns"]) == (80, 80, 100)
    assert (rows[0]["records"], rows[0]["ns_per_record"]) == (4, 25.0)


def test_workers_that_have_left_or_are_not_born_yet_are_compared_with_nobody(
    in_memory: Fixture, whole_run: Fixture
) -> None:
    # Worker 2 leaves where the window begins, and worker 3 is born where it ends.
    left = "0 start 1 | 10 stop 1 | 100 exit"
    born = "200 start 1 | 290 stop 1 | 300 end"
    sends = "110 start 1 | 112 send 6>1 *2 | 120 recv 5<1 *6 | 190 stop 1 | 195 spawn 3 | 200 end | 300 end"
    reads = "110 start 1 | 115 send 5>0 *6 | 120 recv 6<0 *2 | 121 stop 1 | 200 end | 300 end"
    logs = (f"{SLOW} | {sends}", f"{QUICK.format(n=1)} | {reads}", left, born)
    run = whole_run(in_memory(draw(*logs)), NAMES)
    snapshot = run.snapshot(run.window(between=(100, 200)))
    rows = {row["worker"]: row for row in stragglers(snapshot).to_pylist()}
    assert {worker: row["work_ns"] for worker, row in rows.items()} == {0: 100, 1: 100}
    assert [row["work_ratio"] for row in rows.values()] == [1, 1]
    read = {row["worker"]: (row["records"], row["mean_ratio"]) for row in skew(snapshot).to_pylist()}
    assert read == {0: (6, 1.5), 1: (2, 0.5)}


def test_who_is_not_recorded_in_a_window_is_not_called_idle(in_memory: Fixture, whole_run: Fixture) -> None:
    # Nothing is known of worker 2 before 200, and of worker 3 only what it did from 95 on.
    late = "200 start 1 | 202 send 5>2 *4 | 203 recv 5<2 *4 | 290 stop 1 | 300 end"
    later = "95 start 1 | 96 stop 1 | 100 end | 300 end"
    logs = (f"{SLOW} | 300 end", f"{QUICK.format(n=1)} | 300 end", f"100 end | {late}")
    run = whole_run(in_memory(draw(*logs)), NAMES)
    snapshot = run.snapshot(run.window(between=(0, 99)))
    rows = {row["worker"]: (row["work_ns"], row["work_ratio"]) for row in stragglers(snapshot).to_pylist()}
    assert rows == {0: (99, 99 / 59), 1: (19, 19 / 59)}
    assert {row["worker"]: row["mean_ratio"] for row in skew(snapshot).to_pylist()} == {0: 1.6, 1: 0.4}
    # Who is recorded for a moment is one of those that are compared.
    run = whole_run(in_memory(draw(*logs, later)), NAMES)
    judged = stragglers(run.snapshot(run.window(between=(0, 99)))).to_pylist()
    assert [row["worker"] for row in judged] == [0, 1, 3]


@pytest.mark.parametrize(("analysis", "parameters"), [(skew, SkewParameters), (stragglers, StragglersParameters)])
def test_limits_below_one_mean_nothing(analysis: Any, parameters: Any) -> None:
    with pytest.raises(InvalidParameterError, match="at least 1"):
        analysis.function(None, parameters(above=0.5))


def test_the_data_skew_study(skewed: Any) -> None:
    """ST2 5.2.2: four workers, and every record is exchanged to worker 0."""
    for window in skewed.rounds():
        sent = skewed.matrix(epoch=window.epoch).to_pylist()
        assert {(row["from_worker"], row["to_worker"]) for row in sent if row["records"]} == {(1, 0), (2, 0), (3, 0)}
        rows = {(row["operator_name"], row["worker"]): row for row in skewed.skew(epoch=window.epoch).to_pylist()}
        assert rows["Exchange", 0]["skew_ratio"] == 4
        assert rows["Exchange", 0]["share"] == 1
        assert rows["FlatMap", 0]["skewed"]
        assert not rows["Filter", 0]["skewed"]
    found = skewed.stragglers(epoch=5).to_pylist()
    assert [(row["worker"], row["cause"]) for row in found if row["straggler"]] == [(0, "data")]
    assert {row["worker"] for row in skewed.waits(epoch=5).to_pylist()} == {1, 2, 3}
    violations = skewed.invariants(message_max_ns=30_000, learn=False).to_pylist()
    assert {row["to_worker"] for row in violations if row["type"] == "data_message"} == {0}
