"""Counts of degrees: an edge in and one out touch four counts at most, however many edges there are."""

from __future__ import annotations

import os
from collections import Counter

import numpy as np
import pytest

from pag_graph.analyses.degrees import DegreeCounts

SIZES = (10_000, 1_000_000) if os.environ.get("PAG_PROVE") == "1" else (1_000, 100_000)
ROUNDS = 200


def brute(edges: list[int]) -> dict[int, int]:
    return dict(Counter(Counter(edges).values()))


def test_changes_add_up_to_the_counts() -> None:
    chance = np.random.default_rng(1)
    counted, edges = DegreeCounts(), list[int]()
    total: Counter[tuple[int, int]] = Counter()
    for _ in range(100):
        came = chance.integers(0, 10, chance.integers(0, 8)).tolist()
        gone = [
            edges.pop(int(chance.integers(0, len(edges)))) for _ in range(min(len(edges), int(chance.integers(0, 7))))
        ]
        edges += came
        for degree, vertices, diff in counted.apply(np.array(came, np.int64), np.array(gone, np.int64)):
            total[degree, vertices] += diff
        assert counted.vertices == brute(edges)
        assert dict.fromkeys(counted.vertices.items(), 1) == {key: diff for key, diff in total.items() if diff}


@pytest.mark.parametrize("size", SIZES)
def test_an_edge_in_and_one_out_touch_four_counts(size: int) -> None:
    chance = np.random.default_rng(2)
    # As many edges for each vertex, whatever the size.
    edges = chance.integers(0, size // 5, size)
    counted = DegreeCounts()
    counted.apply(edges, np.empty(0, np.int64))
    begun = counted.touched
    seen = set()
    for number in range(ROUNDS):
        before = counted.touched
        changes = counted.apply(chance.integers(0, size // 5, 1), edges[number : number + 1])
        assert counted.touched - before <= 4
        # Of each count the old one goes and the new one comes.
        assert len(changes) <= 8
        seen.add(len(changes))
    assert counted.touched - begun <= 4 * ROUNDS
    assert max(seen) == 8
