"""Quantiles of how long epochs took: each is the time of some epoch, and the definitions are those of the page."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from pag_graph.graph.timings import SPANS, distribution, lags
from pag_graph.model.live import TIMINGS
from pag_graph.store.live import add_timings, read_timings

if TYPE_CHECKING:
    from pathlib import Path

steps = st.lists(st.integers(0, 50), min_size=4, max_size=4)


def row(epoch: int, took: list[int], events: int) -> dict[str, int]:
    times = [1_000]
    for step in took:
        times.append(times[-1] + step)
    names = ("published_ns", "read_ns", "closed_ns", "committed_ns", "answered_ns")
    return {"epoch": epoch, "ended_ns": 0, "rows": events, "commit": epoch, **dict(zip(names, times, strict=True))}


@given(st.lists(st.tuples(steps, st.sampled_from([0, 1, 9, 10, 99, 100])), min_size=1, max_size=120))
def test_quantiles_are_exact(rows: list[tuple[list[int], int]]) -> None:
    known = TIMINGS.empty_table().from_pylist([row(e, *each) for e, each in enumerate(rows)], TIMINGS)
    for lag in lags(known):
        place = list(SPANS).index(lag.span)
        took = [sum(steps) if place == 4 else steps[place] for steps, _ in rows]
        assert (lag.epochs, lag.max_ns) == (len(rows), max(took))
        for share, found in ((0.5, lag.p50_ns), (0.99, lag.p99_ns)):
            # The least value that so many do not exceed.
            enough = [value for value in took if sum(other <= value for other in took) >= math.ceil(share * len(took))]
            assert found == min(enough)
        shares = dict(distribution(known, lag.span))
        assert shares == {value: sum(other <= value for other in took) / len(took) for value in took}
    by_size = lags(known, by_size=True)
    assert {lag.size for lag in by_size} == {1 if events < 10 else 10 if events < 100 else 100 for _, events in rows}
    assert sum(lag.epochs for lag in by_size) == len(SPANS) * len(rows)


def test_half_a_line_is_no_row(tmp_path: Path) -> None:
    folder = tmp_path / "_live"
    folder.mkdir()
    rows = [row(epoch, [1, 2, 3, 4], 5) for epoch in range(3)]
    add_timings(folder, rows[:2])
    with (folder / "timings.jsonl").open("ab") as file:
        file.write(b'{"epoch":2,"ended')
    assert read_timings(tmp_path).to_pylist() == [{name: each[name] for name in TIMINGS.names} for each in rows[:2]]


def test_what_was_not_followed_has_no_timings(tmp_path: Path) -> None:
    assert read_timings(tmp_path).num_rows == 0
    assert lags(read_timings(tmp_path)) == []
