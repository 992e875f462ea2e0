"""Streams of messages, against a dictionary."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pag_graph.kernels import NEVER, streams
from pag_graph.kernels.activations import OTHER, PROGRESS_RECEIVE, PROGRESS_SEND, RECEIVE, SEND
from pag_graph.kernels.messages import EVERYONE
from pag_graph.kernels.streams import (
    SEND_COLUMNS,
    Ends,
    Reads,
    Sent,
    Streams,
    fill_streams,
    find_streams,
    follow_streams,
    index_streams,
    message_ends,
    order_streams,
    unmatched_sends,
)
from pag_graph.model.ids import vertex_id

if TYPE_CHECKING:
    import pytest

Row = tuple[int, int, int, int]

logs = st.lists(
    st.lists(
        st.tuples(
            st.sampled_from([SEND, RECEIVE, PROGRESS_SEND, PROGRESS_RECEIVE, OTHER]),
            st.integers(-1, 1),
            st.integers(-1, 2),
            st.integers(-1, 3),
        ),
        max_size=25,
    ),
    min_size=1,
    max_size=3,
)


def drawn_columns(log: list[Row]) -> list[np.ndarray]:
    return [np.array([row[place] for row in log], np.int8 if place == 0 else np.int64) for place in range(4)]


@given(logs, st.sampled_from((20, 1_000)))
def test_a_receive_finds_the_first_send_of_its_key(workers: list[list[Row]], horizon: int) -> None:
    columns = [drawn_columns(log) for log in workers]
    ends_of = [message_ends(kind) for kind, *_ in columns]
    which = [np.empty(len(sending), np.int32) for sending, _ in ends_of]
    found = [
        find_streams(Ends(ends_of[worker][0], *rows, rows[1]), worker, which[worker])
        for worker, rows in enumerate(columns)
    ]
    known_streams = np.concatenate([mine for mine, _ in found])
    first = np.cumsum([0, *np.concatenate([counts for _, counts in found])])
    sends = np.empty((first[-1], SEND_COLUMNS), np.int64)
    at = 0
    for worker, (kind, _, _, number) in enumerate(columns):
        t = np.arange(len(kind)) + 100 * worker
        ends = first[at : at + len(found[worker][0]) + 1]
        at = at + len(found[worker][0])
        sending = ends_of[worker][0]
        if not fill_streams(Sent(sending, which[worker], number, t + 7, t), worker, 5, ends[:-1].copy(), sends):
            order_streams(ends, sends)
    table = index_streams(known_streams, len(known_streams), 1 << (2 * len(known_streams)).bit_length())
    known: dict[Row, list[int]] = {}
    for worker, log in enumerate(workers):
        for row, (kind, channel, peer, number) in enumerate(log):
            if kind in {SEND, PROGRESS_SEND}:
                receiver = peer if kind == SEND else EVERYONE
                t = row + 100 * worker
                known.setdefault((channel, worker, receiver, number), [vertex_id(worker, 2 * (5 + row)), t, t + 7])
    seen, reader, hints = np.zeros(len(sends), np.int32), np.full(len(sends), -1, np.int32), first[:-1].copy()
    matched = 0
    for worker, rows in enumerate(columns):
        reading = ends_of[worker][1]
        named, vertex, sent, epoch = (np.empty(len(reading), np.int64) for _ in range(4))
        lost = follow_streams(
            Ends(reading, *rows, 2 * np.arange(len(rows[0]))),
            worker,
            Streams(known_streams, table, first, sends),
            Reads(hints, seen, reader, named, vertex, sent, epoch),
            horizon,
        )
        expected, read = [], set()
        for row, (code, on, sender, message) in enumerate(workers[worker]):
            if code in {RECEIVE, PROGRESS_RECEIVE}:
                key = (on, sender, worker if code == RECEIVE else EVERYONE, message)
                send = known.get(key)
                # Each worker reads a message once, and none that was sent much later.
                expected.append(send if send and key not in read and send[1] <= 2 * row + horizon else None)
                if expected[-1]:
                    read.add(key)
        matched += sum(send is not None for send in expected)
        assert [list(row) for row in zip(vertex, sent, epoch, strict=True)] == [e or [-1, NEVER, -1] for e in expected]
        assert named.tolist() == rows[2][reading].tolist()
        assert lost == len(expected) - sum(map(bool, expected))
    assert seen.sum() == matched
    # As if several had counted: who is for everyone lacks the rest of three.
    left, stream, missing = unmatched_sends(known_streams, first, 3, np.stack([seen, np.zeros_like(seen)]))
    of_send = np.repeat(np.arange(len(known_streams)), np.diff(first))
    lacks = [(3 if known_streams[s, 2] == EVERYONE else 1) - int(seen[at]) for at, s in enumerate(of_send.tolist())]
    assert left.tolist() == [at for at, rest in enumerate(lacks) if rest]
    assert stream.tolist() == of_send[left].tolist()
    assert missing.tolist() == [rest for rest in lacks if rest]


@given(st.lists(st.sampled_from([SEND, RECEIVE, PROGRESS_SEND, PROGRESS_RECEIVE, OTHER])))
def test_rows_that_send_and_rows_that_read(kinds: list[int]) -> None:
    sending, reading = message_ends(np.array(kinds, np.int8))
    assert sending.tolist() == [row for row, kind in enumerate(kinds) if kind in {SEND, PROGRESS_SEND}]
    assert reading.tolist() == [row for row, kind in enumerate(kinds) if kind in {RECEIVE, PROGRESS_RECEIVE}]


def test_more_streams_than_there_is_room_for_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_FEW", 1)
    number = count()
    log = [(SEND, channel, peer, next(number)) for _ in range(2) for channel in range(7) for peer in range(3)]
    columns = drawn_columns(log)
    which = np.empty(len(log), np.int32)
    found, sends = find_streams(Ends(message_ends(columns[0])[0], *columns, columns[1]), 9, which)
    assert found.tolist() == [[channel, 9, peer] for channel in range(7) for peer in range(3)]
    assert sends.tolist() == [2] * 21
    assert which.tolist() == [*range(21), *range(21)]
