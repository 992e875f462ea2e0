"""Critical participation: against enumeration of all paths, and where there are too many to list."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pag_graph.analyses import find_analysis
from pag_graph.errors import CycleError, UnsupportedPlanError
from pag_graph.graph.window import Window
from pag_graph.model.tables import PARTICIPATION
from pag_graph.testing.strategies import small_traces
from pag_graph.testing.traces import draw

if TYPE_CHECKING:
    from collections.abc import Callable

    from pag_graph.api import Pag

    Fixture = Callable[..., Any]
    Row = dict[str, Any]

participation = find_analysis("participation")

# Worker 0 works until 30 and sends; worker 1 waits for it from 10 on.
FAST = "0 start 1 | 20 stop 1 | 25 start 2 | 30 send 3>1 | 40 stop 2 | 70 end"
SLOW = "0 start 4 | 10 stop 4 | 10 park | 34 unpark | 35 start 3 | 36 recv 3<0 | 60 stop 3 | 60 end"


def shares(run: Any, window: Window) -> dict[str, Any]:
    """Share of paths by ``start worker:type``."""
    result = {}
    for row in participation(run.snapshot(window)).to_pylist():
        to = f">{row['to_worker']}" if row["to_worker"] != row["worker"] else ""
        result[f"{row['start_ns']} {row['worker']}{to}:{row['type']}"] = row["path_share"]
    return result


def test_paths_begin_at_the_start_and_end_at_the_end(in_memory: Fixture) -> None:
    run = in_memory(draw(FAST, SLOW)).run
    # From 5 to 50 there are two paths: along worker 0, and over its message. Worker 1's own start leads nowhere.
    assert shares(run, run.window(between=(5, 50))) == {
        "5 0:spinning": 1,
        "20 0:busy": 1,
        "25 0:processing": 1,
        "30 0:processing": 0.5,
        "40 0:busy": 0.5,
        "30 0>1:data_message": 0.5,
        "30 1:wake_up": 0.5,
        "34 1:busy": 0.5,
        "35 1:processing": 0.5,
        "36 1:processing": 0.5,
        "5 1:spinning": 0,
        "10 1:busy": 0,
    }
    table = participation(run.snapshot(run.window(between=(5, 50))))
    assert table.schema.equals(PARTICIPATION)
    by_start = {(row["worker"], row["start_ns"], row["type"]): row for row in table.to_pylist()}
    first = by_start[0, 5, "spinning"]
    assert (first["participation"], first["paths_mantissa"], first["paths_exponent"]) == (15 / 45, 2, 0)
    assert table["participation"].to_pylist() == sorted(table["participation"].to_pylist(), reverse=True)


def test_messages_that_a_border_cuts_begin_and_end_there(in_memory: Fixture) -> None:
    buffered = "0 start 3 | 30 recv 3<0 | 60 stop 3 | 60 end"
    run = in_memory(draw("0 send 3>1 | 40 end", buffered)).run
    # From 10 to 20: two workers and a message under way are three paths.
    assert shares(run, run.window(between=(10, 20))) == {
        "10 0:busy": 1 / 3,
        "10 1:processing": 1 / 3,
        "10 0>1:data_message": 1 / 3,
    }
    # Until 35: the message is read, and its path goes on.
    assert shares(run, run.window(between=(10, 35))) == {
        "10 0:busy": 1 / 3,
        "10 1:processing": 1 / 3,
        "10 0>1:data_message": 1 / 3,
        "30 1:processing": 2 / 3,
    }


def test_no_path_leads_over_a_message_that_was_read_before_it_was_sent(in_memory: Fixture) -> None:
    run = in_memory(draw("0 start 1 | 30 send 3>1 | 50 end", "0 start 1 | 20 recv 3<0 | 50 end", processes=(0, 1))).run
    assert shares(run, run.window(between=(5, 40))) == dict.fromkeys(
        ["5 0:processing", "30 0:processing", "5 1:processing", "20 1:processing"], 0.5
    )


def all_paths(edges: list[Row], window: Window) -> tuple[int, dict[int, int]]:
    """Count paths by listing them: all, and those over each edge."""
    begin, end = window.start_ns, window.end_ns
    used: dict[int, tuple[Any, Any]] = {}
    t: dict[Any, int] = {}
    for number, edge in enumerate(edges):
        start, finish = edge["start_ns"], edge["start_ns"] + edge["duration_ns"]
        inside = (finish > begin or begin == 0) and (start < end or finish <= end)
        if edge["type"] == "waiting" or edge["flags"] & 2 or not inside:
            continue
        src = edge["src"] if start >= begin else ("before", number)
        dst = edge["dst"] if finish <= end else ("after", number)
        t[src], t[dst] = max(start, begin), min(finish, end)
        used[number] = (src, dst)
    out: dict[Any, list[int]] = defaultdict(list)
    for number, (src, _) in used.items():
        out[src].append(number)
    counts = dict.fromkeys(used, 0)
    total = 0

    def walk(vertex: Any, way: list[int]) -> None:
        nonlocal total
        if way and t[vertex] == end:
            total += 1
            for number in way:
                counts[number] += 1
        for number in out[vertex]:
            walk(used[number][1], [*way, number])

    for vertex, at in t.items():
        if at == begin:
            walk(vertex, [])
    return total, counts


@given(small_traces(max_steps=30, instant=False, skewed=True), st.data())
def test_counts_are_those_of_a_list_of_all_paths(in_memory: Fixture, trace: Any, data: st.DataObject) -> None:
    drawn = in_memory(trace)
    run = drawn.run
    window = data.draw(st.sampled_from(run.windows()))
    if run.end_ns and data.draw(st.booleans()):
        start = data.draw(st.integers(0, run.end_ns - 1))
        window = run.window(between=(start, data.draw(st.integers(start + 1, run.end_ns))))
    if not window.span_ns:
        return
    total, counts = all_paths(drawn.edges, window)
    rows = participation(run.snapshot(window)).to_pylist()
    numbers = {(edge["src"], edge["dst"]): number for number, edge in enumerate(drawn.edges)}
    assert {numbers[row["src"], row["dst"]] for row in rows} == set(counts)
    whole = Fraction(0)
    for row in rows:
        count = counts[numbers[row["src"], row["dst"]]]
        assert (row["paths_mantissa"], row["paths_exponent"]) == (count, 0)
        if total:
            share = Fraction(count, total)
            assert row["path_share"] == pytest.approx(float(share), rel=1e-12)
            exact = share * row["duration_ns"] / window.span_ns
            assert row["participation"] == pytest.approx(float(exact), rel=1e-12)
            whole += exact
    assert whole == (1 if total else 0)


def ladder(steps: int) -> list[Row]:
    """Two workers that tell each other everything, at every step."""
    rows = []
    for at in range(steps):
        for worker in (0, 1):
            for to in (0, 1):
                kind = {"type": "processing"} if to == worker else {"type": "data_message", "read": None}
                ends = {"src": (worker << 40) + 2 * at + 2, "dst": (to << 40) + 2 * at + 4}
                common = {"epoch": 0, "src_epoch": 0, "start_ns": at, "duration_ns": 1, "flags": 0, "alternatives": 0}
                rows.append({**ends, **kind, **common})
    return rows


@pytest.mark.parametrize(
    ("steps", "mantissa", "exponent"),
    [(1_000, 2.0**999, 0), (1_001, 1.0, 1_000), (1_002, 1.0, 1_001), (20_000, 1.0, 19_999)],
)
def test_any_number_of_paths_can_be_counted(drawn_run: Any, steps: int, mantissa: float, exponent: int) -> None:
    run = drawn_run(edges=ladder(steps), processes={0: 0, 1: 0}).run
    table = participation(run.snapshot(Window(start_ns=0, end_ns=steps)))
    # There are 2^(steps + 1) paths, and half as many over an edge by each of its ends: 2^(steps - 1).
    assert set(table["path_share"].to_pylist()) == {0.25}
    assert set(table["participation"].to_pylist()) == {0.25 / steps}
    assert set(table["paths_mantissa"].to_pylist()) == {mantissa}
    assert set(table["paths_exponent"].to_pylist()) == {exponent}


@pytest.mark.parametrize("sample", ["skewed", "bfs"])
def test_participations_add_up_to_one(sample: str, request: pytest.FixtureRequest) -> None:
    pag = request.getfixturevalue(sample)
    end = pag.run.end_ns
    windows = [*pag.run.windows(), pag.run.window(between=(0, end)), pag.run.window(between=(end // 3, end // 2))]
    for window in windows:
        rows = participation(pag.run.snapshot(window))
        assert np.sum(rows["participation"].to_numpy()) == pytest.approx(1, abs=1e-9)
        assert max(rows["path_share"].to_pylist()) <= 1


def test_without_a_path_nothing_participates(in_memory: Fixture) -> None:
    # Everybody waits from 20 to 50, and the message that is sent then comes after.
    one = "0 start 1 | 10 stop 1 | 10 park | 60 unpark | 61 start 1 | 62 recv 3<1 | 63 stop 1 | 64 end"
    other = "0 start 1 | 10 stop 1 | 10 park | 70 unpark | 71 start 1 | 72 recv 3<0 | 73 stop 1 | 74 end"
    drawn = in_memory(draw(one, other))
    for edge in drawn.edges:
        if edge["start_ns"] <= 10 < edge["start_ns"] + edge["duration_ns"]:
            edge["type"] = "waiting"
    rows = participation(drawn.run.snapshot(Window(start_ns=5, end_ns=40))).to_pylist()
    assert rows
    assert all(row["participation"] == row["path_share"] == row["paths_mantissa"] == 0 for row in rows)


def test_an_empty_window_has_no_rows(skewed: Pag) -> None:
    assert participation(skewed.run.snapshot(Window(start_ns=10, end_ns=10))).num_rows == 0


def test_events_that_wait_for_each_other_are_an_error(in_memory: Fixture) -> None:
    crossed = [f"0 start 1 | 10 recv 3<{other} | 10 send 3>{other} | 20 stop 1 | 30 end" for other in (1, 0)]
    run = in_memory(draw(*crossed)).run
    with pytest.raises(CycleError, match="waits for itself"):
        participation(run.snapshot(run.window(epoch=0)))


def test_clocks_must_be_aligned(in_memory: Fixture) -> None:
    drawn = in_memory(draw(FAST, SLOW))
    drawn.rules = "st2"
    with pytest.raises(UnsupportedPlanError, match="aligned clocks"):
        participation(drawn.run.snapshot(drawn.run.window(epoch=0)))
