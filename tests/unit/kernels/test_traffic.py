"""Sums of messages, against a dictionary."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pag_graph.kernels import ABSENT, NEVER, traffic
from pag_graph.kernels.reads import Reads, Rows

Read = tuple[int, int, int, int, int, int, bool]

# Epoch of the send, channel, sender, type, records, bytes, and whether the send is known. Epochs that lie far apart
# leave no room for keys in one number.
logs = st.sampled_from([1, 1 << 20, 1 << 61]).flatmap(
    lambda step: st.lists(
        st.lists(
            st.tuples(
                st.integers(0, 3).map(lambda epoch: epoch * step),
                st.integers(-1, 2),
                st.integers(0, 2),
                st.sampled_from([8, 9]),
                st.integers(-1, 4),
                st.integers(-1, 4),
                st.sampled_from([True, True, True, False]),
            ),
            max_size=30,
        ),
        max_size=3,
    )
)


def sums_of(log: list[Read], worker: int) -> np.ndarray:
    # Every other row reads nothing.
    epoch, channel, sender, kind, records, size, known = np.array(log, np.int64).reshape(-1, 7).T
    rows = [np.repeat(column, 2) for column in (epoch, epoch, sender, channel, records, size)]
    reads = Reads(
        np.arange(1, 2 * len(log), 2, dtype=np.int32),
        sender.copy(),
        np.where(known, 4, -1),
        np.where(known, 40, NEVER),
        np.where(known, epoch, -1),
        kind.astype(np.int8),
    )
    return traffic.sum_reads(Rows(*rows, np.empty(0, np.int64)), reads, worker)


def total(values: list[int]) -> int:
    return ABSENT if ABSENT in values else sum(values)


@pytest.mark.parametrize("slots", [1, 2, traffic._SLOTS])
@given(workers=logs)
def test_reads_of_one_key_make_one_sum(slots: int, workers: list[list[Read]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        # With few slots, channels and senders drive each other out.
        patch.setattr(traffic, "_SLOTS", slots)
        parts = [sums_of(log, worker) for worker, log in enumerate(workers)]
    groups: defaultdict[tuple[int, ...], list[tuple[int, int]]] = defaultdict(list)
    for worker, log in enumerate(workers):
        for epoch, channel, sender, kind, records, size, known in log:
            if known:
                groups[epoch, channel, sender, worker, kind].append((records, size))
    assert traffic.added_up(np.concatenate([np.empty((0, traffic.COLUMNS), np.int64), *parts])).tolist() == [
        [*key, len(reads), *(total(list(values)) for values in zip(*reads, strict=True))]
        for key, reads in sorted(groups.items())
    ]


def test_what_takes_turns_begins_no_sums_while_there_are_slots() -> None:
    in_turn = [(0, channel, sender, 8, 1, 1, True) for channel in range(3) for sender in range(2)]
    assert len(sums_of(5 * in_turn, 1)) == len(in_turn)
