"""k-hops, waits, traffic and the explanation of a trace drawn by hand."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

from pag_graph import api
from pag_graph.analyses import find_analysis
from pag_graph.analyses.k_hops import KHopsParameters
from pag_graph.analyses.sample import SampleParameters, round_facts
from pag_graph.analyses.view import View
from pag_graph.errors import AnalysisError, InvalidParameterError
from pag_graph.kernels.hops import Steps, count_walks
from pag_graph.model.enums import RuleSet
from pag_graph.model.tables import K_HOPS
from pag_graph.sinks.provenance_walks import touched_by_clock
from pag_graph.testing.traces import draw

if TYPE_CHECKING:
    from pathlib import Path

    from pag_graph.api import Pag

k_hops = find_analysis("k-hops")

# Worker 1 waits for worker 0 from 10 to 40 and reads what it was sent at 50, with something more.
SENDER = "0 start 1 | 20 send 3>1 #0 *7 | 40 send 3>1 #1 *5 | 60 stop 1 | 100 end"
WAITER = "0 start 2 | 10 stop 2 | 30 park | 45 unpark | 50 start 2 | 52 recv 3<0 #1 *5 | 60 stop 2 | 100 end"


@pytest.fixture
def pag(tmp_path: Path) -> Pag:
    return build(
        tmp_path, SENDER.replace("20 send", "31 send"), WAITER.replace("60 stop", "54 recv 3<0 #0 *7 | 60 stop")
    )


def build(place: Path, *logs: str) -> Pag:
    draw(*logs).write(place / "trace")
    api.build(place / "trace", place / "store", engine="local")
    return api.open(place / "store")


def hops(pag: Pag, k: int, **parameters: object) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in pag.k_hops(KHopsParameters(k=k, **parameters), epoch=0).to_pylist()]  # type: ignore[arg-type]


def test_hops_drawn_by_hand(pag: Pag) -> None:
    # Worker 1's wait was ended by the message sent at 31, read at 54; in the segment that follows, the one sent at 40
    # was read at 52. Then: what worker 0 did before its sends; then, again, what it did before those.
    assert hops(pag, 4) == [
        # hop, type, worker, operator, walks, edges, walk_ns, edge_ns
        (1, "data_message", 0, None, 2, 2, 23 + 12, 23 + 12),
        (2, "processing", 0, 1, 2, 2, 31 + 9, 31 + 9),
        (3, "processing", 0, 1, 1, 1, 31, 31),
    ]


def test_messages_weigh_until_they_arrive_if_one_asks_for_that(pag: Pag) -> None:
    # In one process they arrive when they are sent.
    assert hops(pag, 1, weight="transfer") == [(1, "data_message", 0, None, 2, 2, 0, 0)]


def test_walks_through_waits_or_not(tmp_path: Path) -> None:
    # The sender itself waited before, for the receiver.
    pag = build(
        tmp_path,
        "0 start 1 | 2 stop 1 | 5 park | 20 unpark | 25 recv 3<1 | 30 send 4>1 | 99 end",
        "0 start 1 | 15 send 3>0 | 16 stop 1 | 18 park | 40 unpark | 42 recv 4<0 | 99 end",
    )
    through = {(row[0], row[1], row[2]): row[4] for row in hops(pag, 9)}
    causes = {(row[0], row[1], row[2]): row[4] for row in hops(pag, 9, through_waits=False)}
    assert (5, "waiting", 0) in through
    assert not [key for key in causes if key[1] == "waiting"]
    assert {key: n for key, n in through.items() if key[0] == 1} == {
        (1, "data_message", 0): 1,
        (1, "data_message", 1): 1,
    }
    assert set(causes) < set(through)


def test_k_is_a_number_of_hops_that_can_be_counted(pag: Pag) -> None:
    for k in (0, 10_001, 2**40, 2**63 - 1):
        with pytest.raises(InvalidParameterError, match=f"k is {k}, and must be at least 1 and at most 10,000"):
            hops(pag, k)


def ladder(rungs: int) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], ...]:
    """Two edges between each two vertices that follow each other: walks double with every hop."""
    src = np.repeat(np.arange(rungs), 2)
    return src, src + 1, np.ones(2 * rungs, np.int64), np.zeros(2 * rungs, np.int64)


def test_walks_are_counted_and_never_listed() -> None:
    src, dst, weight, group = ladder(50)
    (walks, edges, walk_ns, edge_ns), exact = count_walks(Steps(src, dst, weight, group), np.array([98, 99]), 51, 1, 50)
    assert exact
    assert walks[:, 0].tolist() == walk_ns[:, 0].tolist() == [2 ** (hop + 1) for hop in range(50)]
    assert edges[:, 0].tolist() == edge_ns[:, 0].tolist() == [2] * 50


def test_more_walks_than_64_bits_count_are_an_error_and_no_wrong_number() -> None:
    src, dst, weight, group = ladder(80)
    assert not count_walks(Steps(src, dst, weight, group), np.array([158, 159]), 81, 1, 80)[-1]
    heavy = np.full_like(weight, 2**40)
    assert not count_walks(Steps(src, dst, heavy, group), np.array([158, 159]), 81, 1, 30)[-1]


@pytest.mark.parametrize("seed", range(20))
def test_counts_are_those_of_listing_all_walks(seed: int) -> None:
    chance = random.Random(seed)
    vertices, k = chance.randint(3, 8), chance.randint(1, 5)
    ends = [sorted(chance.sample(range(vertices), 2)) for _ in range(chance.randint(1, 16))]
    weights = [chance.randint(-3, 9) for _ in ends]
    groups = [chance.randrange(3) for _ in ends]
    seeds = sorted(chance.sample(range(len(ends)), chance.randint(0, len(ends))))
    expected: Counter[tuple[int, int]] = Counter()
    walk_ns: Counter[tuple[int, int]] = Counter()
    distinct: set[tuple[int, int]] = set()

    def visit(edge: int, hop: int) -> None:
        expected[hop, groups[edge]] += 1
        walk_ns[hop, groups[edge]] += weights[edge]
        distinct.add((hop, edge))
        if hop + 1 < k:
            for before, (_, dst) in enumerate(ends):
                if dst == ends[edge][0]:
                    visit(before, hop + 1)

    for edge in seeds:
        visit(edge, 0)
    src, dst = np.array(ends, np.int64).T.copy()
    (walks, edges, walked, once), exact = count_walks(
        Steps(src, dst, np.array(weights), np.array(groups)), np.array(seeds, np.int64), vertices, 3, k
    )
    assert exact
    for hop in range(k):
        for group in range(3):
            mine = [edge for h, edge in distinct if h == hop and groups[edge] == group]
            assert walks[hop, group] == expected[hop, group]
            assert walked[hop, group] == walk_ns[hop, group]
            assert (edges[hop, group], once[hop, group]) == (len(mine), sum(weights[edge] for edge in mine))


@pytest.mark.parametrize("sample", ["skewed", "bfs"])
@pytest.mark.parametrize("through_waits", [True, False])
def test_all_windows_at_once_are_the_windows_one_by_one(
    request: pytest.FixtureRequest,
    sample: str,
    through_waits: bool,  # noqa: FBT001
) -> None:
    pag = request.getfixturevalue(sample)
    windows = pag.run.windows()
    parameters = KHopsParameters(through_waits=through_waits)
    table = k_hops.table(View(run=pag.run, windows=windows), parameters)
    frame = pl.DataFrame(pl.from_arrow(table))
    seen = 0
    for number, window in enumerate(windows):
        alone = k_hops(pag.run.snapshot(window), parameters)
        assert frame.filter(window=number).drop("window").select(K_HOPS.names).to_arrow().cast(K_HOPS).equals(alone)
        seen += alone.num_rows
    assert seen == table.num_rows > 0


def test_who_waited_for_whom(pag: Pag) -> None:
    assert pag.waits(epoch=0).to_pylist() == [
        {"worker": 1, "from_worker": 0, "type": "data_message", "channel": 3, "waits": 1, "waiting_ns": 1}
    ]
    assert pag.waits(between=(0, 30)).num_rows == 0


def test_of_several_messages_read_where_a_wait_ends_the_one_sent_last_ended_it(tmp_path: Path) -> None:
    """The one of the lowest sender had been named, though it came before the wait began."""
    senders = [f"0 end | 0 start 1 =io | {sent} send 3>2 #0 *1 | 60 stop 1 | 90 end" for sent in (5, 40)]
    waiter = "0 end | 0 start 1 =io | 20 stop 1 | 20 start 2 =waiting | 45 recv 3<0 #0 | 45 recv 3<1 #0 | 45 stop 2"
    trace = draw(*senders, f"{waiter} | 45 start 1 =io | 95 stop 1 | 95 end", rules=RuleSet.STATED)
    api.build(trace.write(tmp_path / "trace"), tmp_path / "store", engine="local")
    pag = api.open(tmp_path / "store")
    [row] = pag.waits(epoch=1).to_pylist()
    assert (row["worker"], row["from_worker"], row["waits"], row["waiting_ns"]) == (2, 1, 1, 25)
    facts = round_facts(View(run=pag.run, windows=pag.run.windows()), SampleParameters())
    assert facts.filter(by="wait").select("key", "value_ns").rows() == [("worker 2 for worker 1", 25)]
    assert [touched_by_clock(pag.run, worker)["waits"].sum() for worker in range(3)] == [0, 1, 1]


def test_a_message_that_was_sent_after_the_window_may_have_ended_its_wait(tmp_path: Path) -> None:
    """The one that was sent inside the window had been named there, and the other one in the next window."""
    senders = [f"0 start 1 =io | {log} | 60 stop 1 | 60 end" for log in ("5 send 3>2 | 30 end", "30 end | 40 send 3>2")]
    waiter = "0 start 1 =io | 20 stop 1 | 20 start 2 =waiting | 30 end | 45 recv 3<0 | 45 recv 3<1 | 45 stop 2"
    trace = draw(*senders, f"{waiter} | 45 start 1 =io | 60 stop 1 | 60 end", rules=RuleSet.STATED)
    api.build(trace.write(tmp_path / "trace"), tmp_path / "store", engine="local")
    pag = api.open(tmp_path / "store")
    told = [pag.waits(**window).to_pylist() for window in ({"epoch": 0}, {"epoch": 1}, {"between": (0, 60)})]
    assert [[(row["from_worker"], row["waiting_ns"]) for row in rows] for rows in told] == [
        [(1, 10)],
        [(1, 15)],
        [(1, 25)],
    ]


def test_the_part_of_a_wait_inside_the_window_counts(tmp_path: Path) -> None:
    pag = build(tmp_path, SENDER, WAITER)
    # The wait lasts from 30 to 40; the message that ended it was sent at the end of it.
    for between, waited in (((0, 35), 5), ((32, 35), 3), ((39, 100), 1), ((0, 100), 10)):
        [row] = pag.waits(between=between).to_pylist()
        assert (row["waiting_ns"], row["from_worker"], row["waits"]) == (waited, 0, 1)


def test_a_message_counts_where_it_was_sent(tmp_path: Path) -> None:
    pag = build(tmp_path, SENDER.replace("20 send", "0 send"), WAITER)
    for between, messages, records in (((0, 39), 0, 0), ((0, 40), 1, 5), ((39, 100), 1, 5), ((40, 100), 0, 0)):
        table = pag.traffic(between=between).to_pylist()
        assert (sum(row["messages"] for row in table), sum(row["records"] for row in table)) == (messages, records)
    pag = build(tmp_path / "at-once", "0 send 3>1 *4 | 9 end", "0 start 1 | 0 recv 3<0 *4 | 9 end")
    [row] = pag.traffic(epoch=0).to_pylist()
    assert (row["from_worker"], row["to_worker"], row["messages"], row["records"]) == (0, 1, 1, 4)


def test_an_analysis_says_when_it_cannot_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pag = build(tmp_path, SENDER, WAITER)

    def overflow(*_: object) -> tuple[object, ...]:
        return np.zeros(0, np.int64), 0

    monkeypatch.setattr("pag_graph.analyses.k_hops.count_walks_by_window", overflow)
    with pytest.raises(AnalysisError, match="than 64 bits can count"):
        hops(pag, 3)
