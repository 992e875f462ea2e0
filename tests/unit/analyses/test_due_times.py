"""Latencies from due times: drawn logs, the two kinds of loop, and what censoring does to quantiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pag_graph.analyses.due_times import LatencyReport, latencies, load_curve, quantile
from pag_graph.errors import InvalidParameterError, TraceFormatError
from pag_graph.model.input_tables import INPUT_LATENCIES, LOAD_CURVE, TRACE_INPUTS

MS = 1_000_000


def table(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist([{"worker": 0} | row for row in rows], TRACE_INPUTS)


def schedule(*, first: int = 0, interval: int | None, count: int, worker: int = 0) -> dict[str, Any]:
    return {"worker": worker, "due_ns": first, "interval_ns": interval, "count": count}


def gave(number: int, at: int, *, due: int | None = None, **more: Any) -> dict[str, Any]:
    return {"number": number, "due_ns": at if due is None else due, "given_ns": at, "epoch": number} | more


def saw(done: int, at: int, **more: Any) -> dict[str, Any]:
    return {"frontier": done, "noticed_ns": at} | more


def measure(inputs: pa.Table, *, end: int = 0, run: str = "run") -> LatencyReport:
    workers = set(inputs["worker"].to_pylist())
    return latencies(run, inputs, dict.fromkeys(workers, 1_000), dict.fromkeys(workers, end))


def stalled(interval: int | None) -> LatencyReport:
    """Give 2,000 inputs that take 0.1 ms each at 1 kHz; the program is held up for 0.5 s after it gave input 1,000."""
    rows, now = [schedule(interval=interval, count=2_000)], 0
    for number in range(2_000):
        due = number * (interval or 0)
        # In a closed loop somebody thinks for a millisecond before the next one.
        now = max(now, due) if interval else now + MS - MS // 10
        rows.append(gave(number, now, due=due if interval else now))
        now += 500 * MS * (number == 1_000) + MS // 10
        rows.append(saw(number + 1, now))
    return measure(table(*rows))


def test_a_closed_loop_omits_what_a_stall_costs() -> None:
    slow = [int((report.rows()["latency_ns"] > 25 * MS).sum()) for report in (stalled(MS), stalled(None))]
    assert 450 <= slow[0] <= 550
    assert slow[1] == 1
    assert [stalled(each).loop for each in (MS, None)] == ["open", "closed"]


def test_latency_counts_from_when_input_was_due() -> None:
    report = measure(
        table(schedule(first=10, interval=10, count=3), gave(0, 12), gave(1, 35), saw(1, 30), saw(2, 50)), end=45
    )
    assert report.table.schema.equals(INPUT_LATENCIES)
    columns = ("number", "due_ns", "given_ns", "noticed_ns", "latency_ns", "censored")
    assert [tuple(row[name] for name in columns) for row in report.table.to_pylist()] == [
        (0, 1_010, 1_012, 1_030, 20, False),
        (1, 1_020, 1_035, 1_050, 30, False),
        # Never given; it was due at 30, and the log goes on to 50.
        (2, 1_030, None, None, 20, True),
    ]
    assert report.not_due == 0
    [worker, pooled] = report.curve()
    assert (worker["worker"], pooled["worker"], pooled["censored"]) == (0, None, 1)
    assert (pooled["p50_ns"], pooled["p99_ns"], pooled["max_ns"]) == (20, 30, 30)
    assert pooled["at_least"] == ["p50_ns", "p99_ns", "max_ns", "mean_ns"]
    slowest = report.slowest()
    assert slowest is not None
    assert slowest["number"] == 1


def test_a_worker_in_a_closed_loop_beside_an_open_one_is_offered_nothing() -> None:
    inputs = table(
        schedule(first=0, interval=100, count=4),
        *(gave(number, 100 * number, due=100 * number) for number in range(4)),
        saw(4, 400),
        *(row | {"worker": 1} for row in (schedule(interval=None, count=1), gave(0, 50), saw(1, 90))),
    )
    report = measure(inputs, end=400)
    assert report.rows()["latency_ns"].to_list() == [400, 300, 200, 100, 40]
    columns = ("worker", "loop", "inputs", "offered_per_s", "stable")
    assert [tuple(row[name] for name in columns) for row in report.curve()] == [
        (0, "open", 4, 1e7, True),
        (1, "closed", 1, None, None),
        (None, "open", 5, 1e7, True),
    ]


@pytest.mark.parametrize("zero", [0, -1_000_000, 10**15])
def test_where_a_clock_has_its_zero_does_not_matter(zero: int) -> None:
    # Nothing was given before the log ended; of a worker without events nobody knows until when it ran.
    inputs = table(schedule(first=zero, interval=10, count=100), schedule(first=zero, interval=10, count=5, worker=1))
    report = latencies("run", inputs, {0: 0, 1: 0}, {0: zero + 25})
    columns = ("worker", "number", "latency_ns", "censored")
    rows = [tuple(row[name] for name in columns) for row in report.table.to_pylist()]
    assert rows == [(0, 0, 25, True), (0, 1, 15, True), (0, 2, 5, True)]
    assert report.not_due == 102


@pytest.mark.parametrize(("interval", "count", "end"), [(10**15, 20_000, 10**15), (2**62, 3, 2**62), (10, 2**60, 15)])
def test_a_schedule_may_go_on_for_longer_than_anybody_counts(interval: int, count: int, end: int) -> None:
    report = measure(table(schedule(interval=interval, count=count), gave(0, 0), saw(1, 5)), end=end)
    assert [(row["due_ns"], row["latency_ns"]) for row in report.table.to_pylist()] == [
        (1_000, 5),
        (1_000 + interval, end - interval),
    ]
    assert report.not_due == count - 2


def test_more_inputs_than_memory_holds_are_refused() -> None:
    with pytest.raises(TraceFormatError, match=r"1,152,921,504,606,846,976 inputs that were due; at most"):
        measure(table(schedule(interval=0, count=2**60)), end=50)


@pytest.mark.parametrize(("interval", "count"), [(-5, 3), (5, -3), (None, -1)])
def test_a_schedule_that_runs_backward_is_refused(interval: int | None, count: int) -> None:
    with pytest.raises(TraceFormatError, match="Worker 0 declares a schedule of"):
        measure(table(schedule(interval=interval, count=count)), end=50)


def test_an_input_that_was_passed_over_is_not_done() -> None:
    # The program was held up from 15 to 55, and left out what was due meanwhile.
    rows = [schedule(interval=10, count=8), gave(0, 0), saw(1, 5), gave(1, 10), saw(2, 55), gave(6, 60), saw(7, 64)]
    report = measure(table(*rows, gave(7, 70), saw(8, 73)), end=80)
    [*_, pooled] = report.curve()
    assert report.rows()["censored"].to_list() == [False, False, True, True, True, True, False, False]
    assert report.rows()["latency_ns"].to_list() == [5, 45, 44, 34, 24, 14, 4, 3]
    assert (pooled["inputs"], pooled["censored"], pooled["stable"]) == (8, 4, False)
    assert pooled["at_least"] == ["p50_ns", "p99_ns", "max_ns", "mean_ns"]


def test_a_program_that_is_killed_leaves_what_it_did_not_finish() -> None:
    rows = [schedule(interval=10, count=1_000)]
    rows += [gave(number, 10 * number) for number in range(60)] + [
        saw(number + 1, 10 * number + 4) for number in range(50)
    ]
    report = measure(table(*rows), end=595)
    [*_, pooled] = report.curve()
    assert (pooled["inputs"], pooled["censored"], report.not_due) == (60, 10, 940)
    assert (pooled["p50_ns"], pooled["p99_ns"]) == (4, 95)
    assert pooled["at_least"] == ["p99_ns", "max_ns", "mean_ns"]
    assert pooled["stable"] is False


DD = (
    (1, 0.000022360, 44_723.61),
    (10, 0.000096040, 104_122.98),
    (100, 0.000642212, 155_711.79),
    (1_000, 0.004543951, 220_072.78),
    (10_000, 0.030170409, 331_450.60),
    (100_000, 0.209353117, 477_661.86),
    (1_000_000, 1.654989484, 604_233.44),
)
"""Batch, latency in s and throughput per s of the closed loops in the text on Differential Dataflow."""


@pytest.mark.parametrize(("batch", "seconds", "per_second"), DD)
def test_in_a_closed_loop_a_batch_is_latency_times_throughput(batch: int, seconds: float, per_second: float) -> None:
    took, rows = round(seconds * 1e9), [schedule(interval=None, count=40)]
    for number in range(40):
        rows += [gave(number, number * took, records=batch), saw(number + 1, (number + 1) * took)]
    [*_, pooled] = measure(table(*rows)).curve()
    assert pooled["records_per_s"] == pytest.approx(per_second, rel=0.01)
    assert pooled["mean_ns"] / 1e9 * pooled["records_per_s"] == pytest.approx(batch, rel=0.01)
    assert (pooled["loop"], pooled["offered_per_s"], pooled["stable"]) == ("closed", None, None)


def test_a_load_curve_is_by_offered_load_and_names_what_is_unstable() -> None:
    def run(name: str, interval: int, took: int) -> LatencyReport:
        rows, now = [schedule(interval=interval, count=500)], 0
        for number in range(500):
            now = max(now, number * interval) + took
            rows += [gave(number, now - took), saw(number + 1, now)]
        return measure(table(*rows), run=name)

    curve = load_curve([run("fast", 10, 15), run("slow", 100, 15)])
    assert curve.schema.equals(LOAD_CURVE)
    pooled = [row for row in curve.to_pylist() if row["worker"] is None]
    assert [(row["run"], row["stable"]) for row in pooled] == [("slow", True), ("fast", False)]
    assert pooled[0]["p99_ns"] == 15
    assert pooled[1]["offered_per_s"] == pytest.approx(1e8)


def test_a_load_curve_needs_a_run() -> None:
    """None gave a table without rows, as if the runs had had no input."""
    with pytest.raises(InvalidParameterError, match="no run"):
        load_curve([])


@pytest.mark.parametrize("schedules", [0, 2])
def test_every_worker_has_one_schedule(schedules: int) -> None:
    with pytest.raises(TraceFormatError, match=f"declares {schedules} schedules"):
        measure(table(*[schedule(interval=10, count=1)] * schedules, gave(0, 0)))


@given(
    st.lists(st.tuples(st.integers(0, 20), st.booleans()), min_size=1, max_size=20),
    st.sampled_from([0.01, 0.5, 0.99, 1.0]),
)
def test_a_quantile_is_exact_or_says_that_it_is_a_bound(inputs: list[tuple[int, bool]], share: float) -> None:
    latency, censored = (np.array(column) for column in zip(*inputs, strict=True))
    found = quantile(latency, censored, share)

    def exact(beyond: int) -> int:
        """Say what it is if what was not done took so much longer."""
        values = sorted(ns + beyond * late for ns, late in inputs)
        return values[max(int(np.ceil(share * len(values) - 1e-9)), 1) - 1]

    assert exact(0) == found.ns
    assert found.at_least or exact(1_000) == found.ns
    assert exact(1_000) >= found.ns
