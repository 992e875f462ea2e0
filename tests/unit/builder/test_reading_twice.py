"""A worker reads a message once: a second read has no send and ends no wait, wherever slices are cut."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pag_graph import api
from pag_graph.testing.reference import build_reference
from pag_graph.testing.traces import draw
from tests.support.compare import WAYS, assembled, committed, differences

if TYPE_CHECKING:
    from pathlib import Path

    from pag_graph.testing.traces import SmallTrace


def waits(sender: str, reads: str) -> SmallTrace:
    """Worker 1 waits for what worker 0 sends at 4, and for what it sends at 20; then it reads the first one again."""
    return draw(
        f"0 start 1 | 4 {sender} #0 | 5 stop 1 | 9 end | 18 start 1 | 20 {sender} #1 | 21 stop 1 | 31 end"
        " | 40 park | 60 unpark | 61 end",
        f"0 park | 6 unpark | 7 {reads} #0 | 9 end | 10 park | 25 unpark | 26 {reads} #0 | 26 {reads} #1 | 31 end"
        " | 40 park | 50 unpark | 55 end",
        "9 end | 20 park | 30 unpark | 31 end | 40 park | 60 unpark | 61 end",
    )


TRACES = [
    pytest.param(waits("send 3>1", "recv 3<0"), id="data"),
    pytest.param(waits("psend 3", "precv 3<0"), id="progress"),
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("trace", TRACES)
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_second_read_says_nothing_of_a_wait(tmp_path: Path, trace: SmallTrace, way: dict[str, int]) -> None:
    for slice_events in (1, 5, 1_000):
        graph = assembled(trace, tmp_path, slice_events=slice_events, **way)
        assert differences(graph, build_reference(trace)) == ""
        assert graph.findings["receive_without_send", 1, 6, None] == 1
        # Were the message there before the second wait, it would have been none.
        assert sorted(edge["start_ns"] for edge in graph.edges if edge["type"] == "waiting") == [0, 10]


@pytest.mark.parametrize("trace", TRACES)
def test_nor_does_one_that_an_append_brings(tmp_path: Path, trace: SmallTrace) -> None:
    for epoch in range(3):
        part = replace(trace.until_epoch(epoch), complete=epoch == 2)
        api.build(part.write(tmp_path / f"{epoch}"), tmp_path / "store", engine="local", mode="append")
        assert differences(committed(tmp_path / "store"), build_reference(part)) == ""
