"""Imbalance: of a graph drawn by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pag_graph.analyses import find_analysis
from pag_graph.analyses.imbalance import ImbalanceParameters
from pag_graph.testing.traces import draw

if TYPE_CHECKING:
    from collections.abc import Callable

    Fixture = Callable[..., Any]

imbalance = find_analysis("imbalance")


# Worker 0 works for worker 1, then worker 1 for worker 0; the end of the epoch is worker 0's.
PING = "0 start 1 | 30 send 3>1 *5 | 31 stop 1 | 40 park | 80 unpark | 85 start 2 | 86 recv 3<1 *2 | 90 stop 2 | 90 end"
PONG = (
    "0 park | 35 unpark | 36 start 1 | 37 recv 3<0 *5 | 70 send 3>0 *2 | 72 stop 1 | 75 park 30 | 105 unpark | 110 end"
)
NAMES = {1: ("0.1", "Map"), 2: ("0.2", "Reduce")}


def test_what_the_path_has_more_of_than_the_workers(in_memory: Fixture, whole_run: Fixture) -> None:
    run = whole_run(in_memory(draw(PING, PONG)))
    rows = imbalance(run.snapshot(run.window(epoch=0))).to_pylist()
    found = {row["type"]: (row["path_ns"], row["mean_ns"], row["imbalance_ns"], row["excess_ns"]) for row in rows}
    assert found == {
        "processing": (69, 36.0, 33.0, 33.0),
        "wake_up": (15, 7.5, 7.5, 7.5),
        "data_message": (0, 0.0, 0.0, 0.0),
        "busy": (6, 9.0, -3.0, 0.0),
        "idle": (0, 7.5, -7.5, 0.0),
    }
    assert [row["type"] for row in rows] == list(found)
    # Each worker waits 30.
    assert sum(row["imbalance_ns"] for row in rows) == 30


def test_by_operator(in_memory: Fixture, whole_run: Fixture) -> None:
    run = whole_run(in_memory(draw(PING, PONG)))
    table = imbalance(run.snapshot(run.window(epoch=0)), ImbalanceParameters(by="operator"))
    found = {(row["type"], row["operator"]): row["imbalance_ns"] for row in table.to_pylist()}
    # Operator 1: 0 to 30 and 36 to 70 on the path; 31 and 36 on the workers.
    assert found["processing", 1] == 64 - 33.5
    assert found["processing", 2] == 5 - 2.5
