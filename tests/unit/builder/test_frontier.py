"""Which epochs are closed, and which of them are answered."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pag_graph import api
from pag_graph.builder import saved
from pag_graph.builder.frontier import SETTLE_NS
from tests.support.growing import late_reads

if TYPE_CHECKING:
    from pathlib import Path

    from pag_graph.testing.traces import SmallTrace


def grown(whole: SmallTrace, place: Path) -> list[tuple[int, int]]:
    """Append epoch after epoch; return the last closed epoch and the last one that is answered, each time."""
    count = 1 + max(event.epoch for log in whole.events for event in log)
    told = []
    for epoch in range(count):
        part = replace(whole.until_epoch(epoch), complete=epoch == count - 1)
        info = api.build(part.write(place / f"{epoch}"), place / "store", engine="local", mode="append").store
        told.append((info.run["last_closed_epoch"], info.run["last_answered_epoch"]))
        begin = saved.load(info)
        assert begin is not None
        assert [epoch for epoch, _ in begin.answered.pending] == [
            epoch for epoch in range(begin.closed.last + 1) if epoch > begin.answered.last
        ]
    return told


def test_epochs_are_answered_when_their_messages_are_read(tmp_path: Path) -> None:
    told = grown(late_reads(8, sent=1, read=4), tmp_path)
    closed = [last for last, _ in told]
    assert closed == sorted(closed)
    # The read in epoch 4 is decided when epoch 4 is: until then only epoch 0 is answered.
    assert [known for _, known in told] == [min(last, 0) if last < 4 else last for last in closed]
    assert (1 in closed, 3 in closed, 4 in closed) == (True, True, True)


def test_epochs_with_messages_that_nobody_reads_are_answered_at_the_end(tmp_path: Path) -> None:
    told = grown(late_reads(6, sent=1, read=None), tmp_path)
    assert {known for _, known in told[:-1]} == {-1, 0}
    assert told[-1] == (5, 5)


@pytest.mark.parametrize(("length", "settled"), [(SETTLE_NS // 3, True), (SETTLE_NS // 6, False)])
def test_epochs_settle(tmp_path: Path, length: int, settled: bool) -> None:  # noqa: FBT001
    told = grown(late_reads(7, sent=1, read=None, length=length), tmp_path)
    assert (max(known for _, known in told[:-1]) > 0) == settled
