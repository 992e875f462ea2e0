"""Events that are missing are found whatever the footers of files tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from pag_graph.store.tail import Tail
from pag_graph.store.trace import Trace
from pag_graph.testing.traces import draw

if TYPE_CHECKING:
    from pathlib import Path

LOG = "1 start 1 | 2 stop 1 | 3 end | {}5 start 1 | 6 stop 1 | 7 end | {}9 start 1 | 10 stop 1 | 11 end"


@pytest.mark.parametrize("without", [(), (0,), (1,), (0, 1), (0, 2), (0, 1, 2)])
@pytest.mark.parametrize(("first", "second"), [("", ""), ("lost | ", ""), ("", "lost | lost | "), ("lost | ",) * 2])
def test_row_groups_without_statistics(tmp_path: Path, without: tuple[int, ...], first: str, second: str) -> None:
    # The log of worker 1 says that the source numbers events without gaps.
    path = draw(LOG.format(first, second), "lost | 1 end").write(tmp_path / "trace")
    (path / "checksums.json").unlink()
    (path / "events/worker-001.parquet").unlink()
    table = pq.read_table(path / "events/worker-000.parquet")
    (path / "events/worker-000.parquet").unlink()
    for number in range(3):
        rows, file = table.slice(3 * number, 3), path / f"events/worker-000-{number}.parquet"
        pq.write_table(rows, file, row_group_size=2, write_statistics=number not in without)
    tail = Tail(path)
    while not tail.complete or tail.rows < 9:
        tail.look(0)
    count = f"{first}{second}".count("lost")
    for found in (Trace.open(path).findings, tail.trace().findings):
        assert found["finding"].to_pylist() == ["events_missing"] * bool(count)
        assert found["observed"].to_pylist() == [count] * bool(count)
