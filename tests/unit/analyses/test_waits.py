"""Waits: under the rule set whose workers keep their own clocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pag_graph import api
from pag_graph.testing.traces import draw

if TYPE_CHECKING:
    from pathlib import Path

FIRST = (
    "0 start 1 | 10 send 3>1 | 20 stop 1 | 30 psend 9 #0 | 45 precv 9<1 #0 | 60 end"
    " | 70 start 1 | 90 stop 1 | 95 precv 9<1 #1 | 100 end"
)
SECOND = (
    "5 start 2 | 12 recv 3<0 | 14 stop 2 | 15 psend 9 #0 | 40 precv 9<0 #0 | 55 end"
    " | 75 start 2 | 80 stop 2 | 82 psend 9 #1 | 99 end"
)


@pytest.mark.parametrize("ahead_ns", [0, 50, 10**15])
def test_waits_under_st2_do_not_depend_on_how_far_clocks_are_apart(tmp_path: Path, ahead_ns: int) -> None:
    events = [event.split(maxsplit=1) for event in SECOND.split(" | ")]
    ahead = " | ".join(f"{int(t) + ahead_ns} {what}" for t, what in events)
    draw(FIRST, ahead).write(tmp_path / "trace")
    api.build(tmp_path / "trace", tmp_path / "store", engine="local", rules="st2")
    pag = api.open(tmp_path / "store")
    found = [
        [(row["worker"], row["from_worker"], row["waits"], row["waiting_ns"]) for row in pag.waits(epoch=n).to_pylist()]
        for n in (0, 1)
    ]
    assert found == [[(1, 0, 1, 25), (0, 1, 1, 15)], [(0, 1, 1, 5)]]
