"""Metrics and matrices: of a graph drawn by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pag_graph.analyses import find_analysis
from pag_graph.testing.traces import draw

if TYPE_CHECKING:
    from collections.abc import Callable

    Fixture = Callable[..., Any]

matrix = find_analysis("matrix")
traffic = find_analysis("traffic")
why = find_analysis("why")
metrics = find_analysis("metrics")
stragglers = find_analysis("stragglers")


# Worker 0 works for worker 1, then worker 1 for worker 0; the end of the epoch is worker 0's.
PING = "0 start 1 | 30 send 3>1 *5 | 31 stop 1 | 40 park | 80 unpark | 85 start 2 | 86 recv 3<1 *2 | 90 stop 2 | 90 end"
PONG = (
    "0 park | 35 unpark | 36 start 1 | 37 recv 3<0 *5 | 70 send 3>0 *2 | 72 stop 1 | 75 park 30 | 105 unpark | 110 end"
)
NAMES = {1: ("0.1", "Map"), 2: ("0.2", "Reduce")}


def test_counts_times_and_records(in_memory: Fixture, whole_run: Fixture) -> None:
    run = whole_run(in_memory(draw(PING, PONG)))
    rows = metrics(run.snapshot(run.window(epoch=0))).to_pylist()
    found = {(row["from_worker"], row["to_worker"], row["type"]): tuple(row.values())[4:] for row in rows}
    assert found[0, 0, "processing"] == (4, 36, 36, 2)
    assert found[1, 1, "processing"] == (3, 36, 36, 5)
    assert found[0, 0, "waiting"] == (1, 30, 30, None)
    # The edge ends when the message arrives, at once; it is read at 37, 7 after it was sent.
    assert found[0, 1, "data_message"] == (1, 0, 7, 5)
    assert found[1, 0, "data_message"] == (1, 0, 16, 2)
    # Whole edges of the epoch, also where the round ends before them: worker 1 goes on until 110.
    assert found[1, 1, "idle"] == (1, 30, 30, None)


def test_a_free_window_counts_what_ends_in_it(in_memory: Fixture, whole_run: Fixture) -> None:
    run = whole_run(in_memory(draw(PING, PONG)))
    rows = metrics(run.snapshot(run.window(between=(31, 40)))).to_pylist()
    assert [(row["to_worker"], row["type"], row["duration_ns"]) for row in rows] == [
        (0, "busy", 9),
        (1, "busy", 1),
        (1, "processing", 1),
        (1, "wake_up", 5),
    ]


def test_pairs_without_messages_are_listed_as_well(in_memory: Fixture, whole_run: Fixture) -> None:
    run = whole_run(in_memory(draw(PING, PONG, "95 end")))
    rows = {
        (row["from_worker"], row["to_worker"]): row for row in matrix(run.snapshot(run.window(epoch=0))).to_pylist()
    }
    assert len(rows) == 6
    assert (rows[0, 1]["data_messages"], rows[0, 1]["records"], rows[0, 1]["delivered_ns"]) == (1, 5, 7)
    assert rows[1, 0]["records_share"] == 2 / 7
    assert rows[2, 0]["messages"] == 0


def test_records_that_nobody_counts_are_not_called_none(in_memory: Fixture, whole_run: Fixture) -> None:
    sender = "10 send 3>1 #0 *4 | 20 send 3>1 #1 | 30 send 5>2 #0 *2 | 40 send 5>2 #1 *0 | 90 end"
    readers = "50 recv 3<0 #0 *4 | 60 recv 3<0 #1 | 90 end", "50 recv 5<0 #0 *2 | 60 recv 5<0 #1 *0 | 90 end"
    run = whole_run(in_memory(draw(sender, *readers)))
    snapshot = run.snapshot(run.window(epoch=0))
    rows = {(row["from_worker"], row["to_worker"]): row for row in matrix(snapshot).to_pylist()}
    assert {pair: (row["data_messages"], row["records"]) for pair, row in rows.items()} == {
        (0, 1): (2, None),
        (0, 2): (2, 2),
        **dict.fromkeys([(1, 0), (1, 2), (2, 0), (2, 1)], (0, 0)),
    }
    # Of what nobody knows, nothing is a share.
    assert {row["records_share"] for row in rows.values()} == {None}
    assert [(row["channel"], row["records"]) for row in traffic(snapshot).to_pylist()] == [(5, 2), (3, None)]
    assert "records 0 -> 2 (2), 0 -> 1 (not counted, 2 messages)" in why(snapshot).text(top=50)
    counted = [(*tuple(row.values())[1:4], row["records"]) for row in metrics(snapshot).to_pylist()]
    messages = [row for row in counted if row[2] == "data_message"]
    assert messages == [(0, 1, "data_message", None), (0, 2, "data_message", 2)]


@pytest.mark.parametrize(("told", "read"), [((" *4", " *2"), (4, 2, 0)), ((" *4", ""), (4, None, 0)), (("", ""), ())])
def test_who_reads_what_nobody_counts_has_not_read_nothing(
    in_memory: Fixture, whole_run: Fixture, told: tuple[str, str], read: tuple[int | None, ...]
) -> None:
    sender = f"10 send 3>1 #0{told[0]} | 20 send 3>2 #0{told[1]} | 90 end"
    first = f"30 start 1 | 50 recv 3<0 #0{told[0]} | 80 stop 1 | 90 end"
    second = f"30 start 1 | 50 recv 3<0 #0{told[1]} | 70 stop 1 | 90 end"
    run = whole_run(in_memory(draw(sender, first, second, "30 start 1 | 70 stop 1 | 90 end")))
    snapshot = run.snapshot(run.window(epoch=0))
    found = {row["worker"]: row["records"] for row in stragglers(snapshot).to_pylist()}
    # Workers 0 and 3 read nothing, which a log that counts what others read does say.
    first_read, second_read, none = read or (None, None, None)
    assert found == {0: none, 1: first_read, 2: second_read, 3: none}
    processing = {
        row["to_worker"]: row["records"] for row in metrics(snapshot).to_pylist() if row["type"] == "processing"
    }
    assert (processing.get(1), processing.get(2)) == (first_read, second_read)


def test_a_round_without_length_has_the_origin_to_itself(in_memory: Fixture, whole_run: Fixture) -> None:
    # Epoch 0 ends where the run begins, and so does the round after it begin there.
    run = whole_run(in_memory(draw("0 send 3>1 | 0 end | 20 end", "5 recv 3<0 | 6 end | 20 end")))
    first, second, *_ = windows = run.windows()
    assert (first.start_ns, first.end_ns, second.start_ns) == (0, 0, 0)
    assert [sum(matrix(run.snapshot(window))["messages"].to_pylist()) for window in windows] == [
        1,
        *[0] * (len(windows) - 1),
    ]
    # A free window that begins there has it as well: nothing lies before it.
    assert sum(matrix(run.snapshot(run.window(between=(0, 3))))["messages"].to_pylist()) == 1
