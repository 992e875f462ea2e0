"""Numbers of paths: exact while they are small, and of any size."""

from __future__ import annotations

import math
from fractions import Fraction

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pag_graph.kernels.participation import LIMB_BITS, Arcs, _add, count_paths
from pag_graph.kernels.replay import group_arcs


def value(mantissa: float, limbs: int) -> Fraction:
    return Fraction(mantissa) * 2 ** (LIMB_BITS * int(limbs))


def count(arcs: list[tuple[int, int]], vertices: int, starts: set[int], ends: set[int]) -> tuple[list[Fraction], ...]:
    src, dst = (np.array(column, np.int64) for column in zip(*arcs, strict=True))
    first, position = group_arcs(dst, vertices)
    flags = [np.isin(np.arange(vertices), list(chosen)) for chosen in (starts, ends)]
    arcs_into = Arcs(first, src[position], dst[position])
    before, before_limbs, after, after_limbs, paths, limbs = count_paths(arcs_into, *flags)
    return (
        [value(*pair) for pair in zip(before, before_limbs, strict=True)],
        [value(*pair) for pair in zip(after, after_limbs, strict=True)],
        [value(paths, limbs)],
    )


@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=30),
    st.sets(st.integers(0, 8)),
    st.sets(st.integers(0, 8)),
)
def test_small_numbers_are_those_of_a_list(pairs: list[tuple[int, int]], starts: set[int], ends: set[int]) -> None:
    arcs = [(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]]
    if not arcs:
        return
    dag = nx.MultiDiGraph(arcs)
    dag.add_nodes_from(range(9))

    def listed(source: int, target: int) -> int:
        return 1 if source == target else len(list(nx.all_simple_edge_paths(dag, source, target)))

    before, after, [paths] = count(arcs, 9, starts, ends)
    assert before == [sum(listed(start, vertex) for start in starts) for vertex in range(9)]
    assert after == [sum(listed(vertex, end) for end in ends) for vertex in range(9)]
    assert paths == sum(listed(start, end) for start in starts for end in ends)


@pytest.mark.parametrize("ways", [2, 3])
@pytest.mark.parametrize("steps", [300, 700, 3_000])
def test_numbers_of_any_size(ways: int, steps: int) -> None:
    arcs = [(at, at + 1) for at in range(steps) for _ in range(ways)]
    before, after, [paths] = count(arcs, steps + 1, {0}, {steps})
    for at, (into, out) in enumerate(zip(before, after, strict=True)):
        assert abs(into / Fraction(ways) ** at - 1) < Fraction(1, 10**12)
        assert abs(out / Fraction(ways) ** (steps - at) - 1) < Fraction(1, 10**12)
    if ways == 2:
        assert paths == 2**steps


@given(
    st.floats(0, 2.0**LIMB_BITS, exclude_max=True).filter(lambda x: x == 0 or x >= 1),
    st.integers(0, 6),
    st.floats(0, 2.0**LIMB_BITS, exclude_max=True).filter(lambda x: x == 0 or x >= 1),
    st.integers(0, 6),
)
def test_sums(one: float, one_limbs: int, other: float, other_limbs: int) -> None:
    mantissa, limbs = _add(one, one_limbs, other, other_limbs)
    assert mantissa < 2.0**LIMB_BITS
    exact = value(one, one_limbs) + value(other, other_limbs)
    found = value(mantissa, limbs)
    assert abs(found - exact) <= exact * Fraction(1, 2**52)
    assert math.isfinite(mantissa)
