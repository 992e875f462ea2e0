"""Intervals inside intervals, against a search through all pairs."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pag_graph.kernels.nesting import depths, nest

_interval = st.tuples(st.integers(0, 1), st.integers(0, 12), st.integers(1, 8))


@given(st.lists(_interval, min_size=1, max_size=14))
def test_intervals_nest_and_cover_what_they_covered(drawn: list[tuple[int, int, int]]) -> None:
    rows = sorted(((w, s, s + d) for w, s, d in drawn), key=lambda row: (row[0], row[1], -row[2]))
    worker, start, end = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    parent, ended, cut_by = nest(worker, start, end)

    def covered(ends: np.ndarray) -> set[tuple[int, int]]:
        return {(int(w), t) for w, s, e in zip(worker, start, ends, strict=True) for t in range(s, e)}

    assert covered(ended) == covered(end)
    for i in range(len(rows)):
        assert start[i] < ended[i] <= end[i]
        assert (cut_by[i] >= 0) == (ended[i] < end[i])
        if cut_by[i] >= 0:
            other = cut_by[i]
            assert worker[other] == worker[i]
            assert start[other] == ended[i]
            # It is cut only where the other one really reaches beyond it.
            assert ended[other] > ended[i]
        # Two intervals are apart, or one contains the other.
        around = []
        for j in range(len(rows)):
            if j == i or worker[j] != worker[i]:
                continue
            apart = ended[j] <= start[i] or ended[i] <= start[j]
            inside = start[i] <= start[j] and ended[j] <= ended[i]
            outside = start[j] <= start[i] and ended[i] <= ended[j]
            assert apart or inside or outside
            # Of two that are equal the earlier row is the outer one.
            if outside and (not inside or j < i):
                around.append(j)
        assert parent[i] == (max(around, key=lambda j: (start[j], -ended[j], j)) if around else -1)
    chosen = np.arange(len(rows)) % 3 == 0
    depth, inside_chosen = depths(parent, chosen)
    for i in range(len(rows)):
        chain = []
        above = parent[i]
        while above >= 0:
            chain.append(above)
            above = parent[above]
        assert depth[i] == len(chain)
        assert inside_chosen[i] == any(chosen[j] for j in chain)
