"""The hash table of sends, against a dictionary."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pag_graph.kernels.messages import index_sends, pair

if TYPE_CHECKING:
    from numpy.typing import NDArray

keys = st.lists(st.tuples(*[st.integers(-1, 2) | st.integers(-(2**63), 2**63 - 1)] * 3), max_size=40)


def array(rows: list[tuple[int, int, int]]) -> NDArray[np.int64]:
    return np.array(rows, np.int64).reshape(-1, 3)


@given(sends=keys, receives=keys)
def test_a_receive_is_paired_with_all_sends_of_its_key(
    sends: list[tuple[int, int, int]], receives: list[tuple[int, int, int]]
) -> None:
    receives = [*receives, *sends[::2]]
    table, following = index_sends(array(sends))
    found = pair(array(receives), array(sends), table, following)
    expected = [(r, s) for r, key in enumerate(receives) for s, other in enumerate(sends) if key == other]
    assert list(zip(*(part.tolist() for part in found), strict=True)) == expected
