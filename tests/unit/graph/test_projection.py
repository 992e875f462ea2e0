"""Windows of drawn graphs: the five cases of the projection (CPA Def. 3.4), and CPA's example graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pag_graph import api
from pag_graph.errors import UnsupportedPlanError
from pag_graph.model.enums import RuleSet
from pag_graph.testing.traces import draw
from tests.support.pictures import SLICED

if TYPE_CHECKING:
    from pathlib import Path

    from pag_graph.api import Pag
    from pag_graph.testing.traces import SmallTrace


def built(trace: SmallTrace, place: Path) -> Pag:
    trace.write(place / "trace")
    api.build(place / "trace", place / "store", rules=trace.rules, engine="local")
    return api.open(place / "store")


@pytest.fixture
def cpa(tmp_path: Path) -> Pag:
    return built(SLICED, tmp_path)


def edges(pag: Pag, start: int, end: int) -> list[tuple[str, int, int, int, int]]:
    """Type, workers and times of all edges of a window that take time."""
    cut = pag.snapshot(between=(start, end)).projection()
    rows = [
        (
            row["type"],
            row["edge_src"] >> 40,
            row["edge_dst"] >> 40,
            row["start_ns"],
            row["start_ns"] + row["duration_ns"],
        )
        for row in cut.iter_rows(named=True)
        if row["duration_ns"]
    ]
    return sorted(rows, key=lambda row: (row[1], row[2], row[3]))


OP, WAIT, MESSAGE = "processing", "waiting", "data_message"


def test_the_example_graph(cpa: Pag) -> None:
    assert cpa.findings()["finding"].to_list() == ["epoch_end_not_logged"]
    assert edges(cpa, 0, 150) == [
        (OP, 0, 0, 0, 30),
        (OP, 0, 0, 30, 60),
        (WAIT, 0, 0, 60, 100),
        (OP, 0, 0, 100, 120),
        (OP, 0, 0, 120, 130),
        (MESSAGE, 0, 1, 30, 50),
        (MESSAGE, 0, 1, 120, 140),
        (MESSAGE, 1, 0, 70, 100),
        (OP, 1, 1, 0, 50),
        (OP, 1, 1, 50, 70),
        (WAIT, 1, 1, 70, 140),
        (OP, 1, 1, 140, 150),
    ]


def test_the_example_sliced_at_85(cpa: Pag) -> None:
    assert edges(cpa, 0, 85) == [
        (OP, 0, 0, 0, 30),
        (OP, 0, 0, 30, 60),
        (WAIT, 0, 0, 60, 85),
        (MESSAGE, 0, 1, 30, 50),
        (MESSAGE, 1, 0, 70, 85),
        (OP, 1, 1, 0, 50),
        (OP, 1, 1, 50, 70),
        (WAIT, 1, 1, 70, 85),
    ]
    assert edges(cpa, 85, 150) == [
        (WAIT, 0, 0, 85, 100),
        (OP, 0, 0, 100, 120),
        (OP, 0, 0, 120, 130),
        (MESSAGE, 0, 1, 120, 140),
        (MESSAGE, 1, 0, 85, 100),
        (WAIT, 1, 1, 85, 140),
        (OP, 1, 1, 140, 150),
    ]


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        # Everybody waits at 85: the path ends with the message under way. At 50 the worker's own activity comes first.
        (0, 85, [(OP, 1, 1, 0, 50), (OP, 1, 1, 50, 70), (MESSAGE, 1, 0, 70, 85)]),
        (85, 150, [(MESSAGE, 1, 0, 85, 100), (OP, 0, 0, 100, 120), (MESSAGE, 0, 1, 120, 140), (OP, 1, 1, 140, 150)]),
    ],
)
def test_the_critical_paths_of_both_parts(
    cpa: Pag, start: int, end: int, expected: list[tuple[str, int, int, int, int]]
) -> None:
    path = cpa.critical_path(between=(start, end))
    steps = [
        (row["type"], row["worker"], row["to_worker"], row["start_ns"], row["start_ns"] + row["duration_ns"])
        for row in path.steps.to_pylist()
        if row["duration_ns"]
    ]
    assert steps == expected
    assert path.length_ns == end - start


# One edge of 20 to 60 on worker 1 and a message of 20 to 60 beside it; the window moves over them.
CASES = {
    "inside": ((10, 70), (20, 60), (False, False)),
    "inside, touching both borders": ((20, 60), (20, 60), (False, False)),
    "crosses the start": ((30, 70), (30, 60), (True, False)),
    "crosses the end": ((10, 50), (20, 50), (False, True)),
    "crosses both": ((30, 50), (30, 50), (True, True)),
    "outside, before": ((61, 70), None, (False, False)),
    "outside, after": ((5, 19), None, (False, False)),
    "touches the start from before": ((60, 70), None, (False, False)),
    "touches the end from behind": ((10, 20), None, (False, False)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_cases_of_the_projection(tmp_path: Path, name: str) -> None:
    pag = built(
        draw(
            "0 start 1 =processing | 20 send 3>1 #0 | 80 stop 1",
            "0 start 1 =io | 20 stop 1 | 20 start 2 =waiting | 60 recv 3<0 #0 | 60 stop 2 | 60 start 1 =io | 80 stop 1",
            rules=RuleSet.STATED,
        ),
        tmp_path,
    )
    window, part, cuts = CASES[name]
    rows = pag.snapshot(between=window).projection().to_dicts()
    wait, message = ([row for row in rows if row["type"] == kind] for kind in (WAIT, MESSAGE))
    if part is None:
        assert not wait
        assert not message
        return
    for row, sender in ((wait[0], 1), (message[0], 0)):
        assert (row["start_ns"], row["start_ns"] + row["duration_ns"]) == part
        assert (row["src"] == -1 - 2 * sender, row["dst"] == -4) == cuts
        assert (row["src"] == row["edge_src"], row["dst"] == row["edge_dst"]) == tuple(not cut for cut in cuts)
    assert len(wait) == len(message) == 1


def test_clocks_that_are_not_aligned_cannot_be_cut(tmp_path: Path) -> None:
    trace = draw("0 start 1 | 4 send 3>1 | 5 stop 1 | 10 end", "7 recv 3<0 | 11 end")
    trace.write(tmp_path / "trace")
    api.build(tmp_path / "trace", tmp_path / "store", rules="st2", engine="local")
    with pytest.raises(UnsupportedPlanError):
        api.open(tmp_path / "store").snapshot(epoch=0).projection()


def test_a_worker_is_born_and_ends(tmp_path: Path) -> None:
    """Before its birth a worker has no edge at all, nor after its exit; the spawn is where its first segment begins."""
    pag = built(
        draw(
            "0 start 1 =processing | 20 spawn 1 | 70 stop 1 | 100 exit",
            "30 start 2 =processing | 60 stop 2 | 60 exit",
            rules=RuleSet.STATED,
        ),
        tmp_path,
    )
    assert edges(pag, 0, 100) == [
        (OP, 0, 0, 0, 20),
        (OP, 0, 0, 20, 70),
        ("unknown", 0, 0, 70, 100),
        ("spawn", 0, 1, 20, 30),
        (OP, 1, 1, 30, 60),
    ]
    path = pag.critical_path(between=(0, 50))
    assert path.length_ns == 50
    assert {row["worker"] for row in pag.critical_path(between=(0, 100)).steps.to_pylist()} == {0}
