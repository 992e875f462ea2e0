"""Which workers are compared: those that run the same operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pag_graph import api
from pag_graph.graph.peers import peers_of, time_in_operators
from pag_graph.model.enums import RuleSet
from pag_graph.testing.traces import draw

if TYPE_CHECKING:
    import random
    from pathlib import Path

SOURCE, MAP, WINDOW, SINK, CHECKPOINT = range(5)

RUNS = {
    "all run the same": ([{SOURCE: 9}, {SOURCE: 1}], [0, 0]),
    "a source and its sink": ([{SOURCE: 9}, {SINK: 9}], [0, 1]),
    "nobody ran an operator": ([{}, {}, {}], [0, 0, 0]),
    "one ran none": ([{MAP: 5}, {}, {MAP: 5}], [0, 1, 0]),
    "one had no task of a stage": ([{MAP: 50, SINK: 20}, {MAP: 30}, {MAP: 40, WINDOW: 5}], [0, 0, 0]),
    "both take checkpoints": ([{SOURCE: 18, CHECKPOINT: 5}, {WINDOW: 75, CHECKPOINT: 35}], [0, 1]),
    "who fetches results does not run stages": ([{SOURCE: 600, MAP: 5}, {MAP: 90}, {MAP: 80}], [0, 1, 1]),
    "half is not more than half": ([{SOURCE: 5, MAP: 5}, {MAP: 5, SINK: 5}], [0, 1]),
    "alike by way of another one": ([{SOURCE: 9, MAP: 5}, {MAP: 9, SINK: 5}, {SOURCE: 9, MAP: 9, SINK: 9}], [0, 0, 0]),
}


@pytest.mark.parametrize("name", RUNS)
def test_groups_of_workers(name: str) -> None:
    ran, groups = RUNS[name]
    assert list(peers_of(range(len(ran)), dict(enumerate(ran))).values()) == groups


@given(
    st.lists(st.dictionaries(st.integers(0, 4), st.integers(1, 100), max_size=4), min_size=1, max_size=6),
    st.randoms(use_true_random=False),
)
def test_groups_depend_on_no_order_and_no_number(ran: list[dict[int, int]], chance: random.Random) -> None:
    groups = peers_of(range(len(ran)), dict(enumerate(ran)))
    assert all(group <= worker and groups[group] == group for worker, group in groups.items())
    order = list(range(len(ran)))
    chance.shuffle(order)
    shuffled = peers_of(range(len(ran)), {place: ran[worker] for place, worker in enumerate(order)})
    same = {frozenset(w for w in groups if groups[w] == g) for g in groups.values()}
    again = {frozenset(order[w] for w in shuffled if shuffled[w] == g) for g in shuffled.values()}
    assert same == again


def test_waiting_and_scheduling_is_not_running(tmp_path: Path) -> None:
    draw(
        "0 start 1 =scheduling | 10 stop 1 | 10 start 2 =processing | 20 stop 2 | 20 end",
        "0 start 2 =idle | 5 stop 2 | 5 start 1 =processing | 15 stop 1 | 15 start 3 =spinning | 20 stop 3 | 20 end",
        rules=RuleSet.STATED,
    ).write(tmp_path / "trace")
    api.build(tmp_path / "trace", tmp_path / "store", engine="local")
    run = api.open(tmp_path / "store").run
    assert time_in_operators(run.info) == {0: {2: 10}, 1: {1: 10}}
    assert (run.peers, run.unlike, run.peer_group(1)) == ({0: 0, 1: 1}, True, [1])


def test_workers_of_one_dataflow_are_alike_whatever_they_ran(tmp_path: Path) -> None:
    draw("0 start 1 | 5 stop 1 | 9 end", "0 start 2 | 5 stop 2 | 9 end").write(tmp_path / "trace")
    api.build(tmp_path / "trace", tmp_path / "store", engine="local")
    run = api.open(tmp_path / "store").run
    assert (run.peers, run.unlike) == ({0: 0, 1: 0}, False)
