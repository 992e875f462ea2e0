"""The hash table of sends, against a dictionary."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pag_graph.kernels.activations import OTHER, PROGRESS_RECEIVE, PROGRESS_SEND, RECEIVE, SEND
from pag_graph.kernels.messages import EVERYONE, collect_sends, count_sends, find_sends, index_sends, pair
from pag_graph.model.ids import vertex_id

if TYPE_CHECKING:
    from numpy.typing import NDArray

NEVER = -99
Row = tuple[int, int, int, int]

keys = st.lists(st.tuples(*[st.integers(-1, 2) | st.integers(-(2**63), 2**63 - 1)] * 3), max_size=40)
logs = st.lists(
    st.lists(
        st.tuples(
            st.sampled_from([SEND, RECEIVE, PROGRESS_SEND, PROGRESS_RECEIVE, OTHER]),
            st.integers(-1, 1),
            st.integers(-1, 2),
            st.integers(-1, 2),
        ),
        max_size=15,
    ),
    min_size=1,
    max_size=3,
)


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


@given(logs)
def test_a_receive_finds_the_first_send_of_its_key(workers: list[list[Row]]) -> None:
    columns = [
        [np.array([row[place] for row in log], np.int8 if place == 0 else np.int64) for place in range(4)]
        for log in workers
    ]
    first = np.cumsum([0, *(count_sends(kind) for kind, *_ in columns)])
    key, origin = np.empty((first[-1], 4), np.int64), np.empty((first[-1], 3), np.int64)
    for worker, (kind, channel, peer, number) in enumerate(columns):
        t = np.arange(len(kind)) + 100 * worker
        collect_sends(kind, channel, peer, number, t + 7, t, worker, 5, first[worker], key, origin)
    table, _ = index_sends(key)
    known: dict[Row, list[int]] = {}
    for worker, log in enumerate(workers):
        for row, (kind, channel, peer, number) in enumerate(log):
            if kind in {SEND, PROGRESS_SEND}:
                receiver = peer if kind == SEND else EVERYONE
                t = row + 100 * worker
                known.setdefault((channel, worker, receiver, number), [vertex_id(worker, 2 * (5 + row)), t, t + 7])
    seen = np.zeros(len(key), np.int32)
    matched = 0
    for worker, (kind, channel, peer, number) in enumerate(columns):
        vertex, sent, epoch = (np.empty(len(kind), np.int64) for _ in range(3))
        lost = find_sends(kind, channel, peer, number, worker, key, origin, table, NEVER, seen, vertex, sent, epoch)
        expected = []
        for code, on, sender, message in workers[worker]:
            receiver = worker if code == RECEIVE else EVERYONE
            receives = code in {RECEIVE, PROGRESS_RECEIVE}
            expected.append(known.get((on, sender, receiver, message)) if receives else None)
        matched += sum(send is not None for send in expected)
        assert [list(row) for row in zip(vertex, sent, epoch, strict=True)] == [e or [-1, NEVER, -1] for e in expected]
        assert lost == sum(row[0] in {RECEIVE, PROGRESS_RECEIVE} for row in workers[worker]) - sum(map(bool, expected))
    assert seen.sum() == matched
