"""Advice on where to insert threads: by hand, by formula, and by sampling, on traces that are really built."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pag_graph import api
from pag_graph.analyses.advise import AdviseParameters, advise
from pag_graph.analyses.constraints import constraint_graph
from pag_graph.analyses.port_replay import Transfer, port_replay
from pag_graph.analyses.ports import Moved, read_ports
from pag_graph.errors import InvalidParameterError, UnsupportedPlanError
from pag_graph.model.enums import RuleSet
from pag_graph.model.tables import TRACE_CHANNELS, TRACE_OPERATORS
from pag_graph.testing.traces import draw

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pag_graph.api import Pag

Activity = tuple[int, int, list[Any]]
"""An operator, the time before what nests in it, and that."""


def nested(*activities: Activity, until: int, rest: str = "idle") -> str:
    """Draw the log of a thread that does one activity after the other, and then nothing."""
    events, now = [], 0

    def write(operator: int, own: int, inner: Sequence[Activity]) -> None:
        nonlocal now
        events.append(f"{now} start {operator}")
        now += own
        for each in inner:
            write(*each)
        events.append(f"{now} stop {operator}")

    for activity in activities:
        write(*activity)
    if now < until:
        events += [f"{now} start 99 ={rest}", f"{until} stop 99"]
    return " | ".join([*events, f"{until} end"])


def built(place: Path, *logs: str, rules: RuleSet = RuleSet.STATED, name: str = "drawn") -> Pag:
    draw(*logs, rules=rules).write(place / f"{name}.trace", trace_id=name)
    api.build(place / f"{name}.trace", place / f"{name}.pag", engine="local")
    return api.open(place / f"{name}.pag")


EXAMPLE = (
    nested((0, 25, [(1, 15, []), (3, 30, [(4, 20, [])])]), until=100),
    nested((2, 50, [(3, 30, [(4, 20, [])])]), until=100),
    nested((5, 60, [(6, 10, [(4, 15, []), (10, 5, [])])]), until=100),
    nested((7, 5, [(8, 40, [(10, 20, [])]), (9, 30, [])]), until=100),
)
"""The threads of Tang and Gedik's figure 4, in percent."""


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Pag:
    return built(tmp_path_factory.mktemp("example"), *EXAMPLE)


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Pag:
    """Operators 0 to 7, one inside the other, each of 1 us; ten batches."""
    batch: Activity = (7, 1_000, [])
    for operator in range(6, -1, -1):
        batch = (operator, 1_000, [batch])
    return built(tmp_path_factory.mktemp("chain"), nested(*[batch] * 10, until=80_000))


def rows(pag: Pag, **parameters: Any) -> list[dict[str, Any]]:
    return list(pag.advise(**parameters).table.to_pylist())


def test_a_trace_gives_the_matrix_of_the_example(example: Pag) -> None:
    table = example.advise_ports()
    shares = {(row["operator"], row["worker"]): row["mu"] for row in table.table.to_pylist() if row["operator"] != 99}
    expected = {
        **{(0, 0): 0.9, (1, 0): 0.15, (3, 0): 0.5, (4, 0): 0.2, (2, 1): 1.0, (3, 1): 0.5, (4, 1): 0.2, (5, 2): 0.9},
        **{(4, 2): 0.15, (6, 2): 0.3, (10, 2): 0.05, (7, 3): 0.95, (8, 3): 0.6, (9, 3): 0.3, (10, 3): 0.2},
    }
    assert shares == pytest.approx(expected, abs=1e-9)
    status = {row["operator"]: row["status"] for row in table.table.to_pylist()}
    assert {one for one, said in status.items() if said == "source"} == {0, 2, 5, 7, 99}


def test_a_trace_gives_the_ports_of_the_example(example: Pag) -> None:
    report = example.advise()
    chosen = {row["operator"]: row for row in report.table.to_pylist() if row["group"] is not None}
    assert set(chosen) == {4, 8}
    assert chosen[4]["utility"] == pytest.approx(0.8)
    assert chosen[4]["utility_before"] == 1.0
    assert (report.plan.nodes, report.plan.rows) == (3, (0, 1, 2, 3))
    by_itself = {row["operator"]: row["utility"] for row in report.table.to_pylist() if row["group"] is None}
    assert by_itself == pytest.approx({1: 0.75, 3: 1.0, 4: 0.8, 6: 0.6, 8: 0.6, 9: 0.65, 10: 0.85})


def test_own_times_add_up_to_the_work_of_threads(example: Pag) -> None:
    table = example.advise_ports()
    sums: dict[int, int] = {}
    for row in table.table.to_pylist():
        sums[row["worker"]] = sums.get(row["worker"], 0) + row["own_ns"]
    work = table.ports.work
    assert sums == work.counted
    assert {worker: mu.likely for worker, mu in work.busy.items()} == {0: 0.9, 1: 1.0, 2: 0.9, 3: 0.95}
    assert work.life == dict.fromkeys(range(4), 100)


def test_a_sampler_sees_the_same(example: Pag) -> None:
    # PIPE 6: N / (p_o / p_s), of what is on the stacks at random instants.
    stacks = example.advise_ports().ports.stacks
    assert stacks is not None
    chance, samples = random.Random(1), 4_000
    edges = [
        (row["src"], row["start_ns"], row["start_ns"] + row["duration_ns"], row["type"])
        for row in example.snapshot().local.to_dicts()
    ]
    shares = stacks.threads().below
    for worker in range(4):
        own = [edge for edge in edges if edge[0] >> 40 == worker]
        seen: dict[int, int] = {}
        for _ in range(samples):
            instant = chance.uniform(0, 100)
            src = next(src for src, start, end, _ in own if start <= instant < end)
            on_stack, start = set(), int(stacks.openings.at(np.array([src]))[0])
            while start >= 0:
                on_stack.add(int(stacks.openings.operator[start]))
                start = int(stacks.openings.parent[start])
            for operator in on_stack - {99}:
                seen[operator] = seen.get(operator, 0) + 1
        for operator, count in seen.items():
            share = shares[operator][worker]
            error = (share * (1 - share) / samples) ** 0.5
            assert abs(count / samples - share) <= 4 * error, (operator, worker)


@pytest.mark.parametrize("cut", range(1, 8))
def test_a_cut_chain_takes_what_the_formula_says(chain: Pag, cut: int) -> None:
    # max(a, b) (B - 1) + a + b, of ten batches.
    found = {row["operator"]: row for row in rows(chain, transfer="0:0")}
    predicted = max(cut, 8 - cut) * 9 + 8
    assert found[cut]["predicted_ns"] == found[cut]["high_ns"] == 1_000 * predicted
    assert found[cut]["low_ns"] == 1_000 * max(cut * 10, (8 - cut) * 10)


def test_the_middle_of_a_chain_comes_first(chain: Pag) -> None:
    first = rows(chain)[0]
    assert (first["operator"], first["utility"], first["verdict"]) == (4, 0.5, "cannot_tell")
    first = rows(chain, transfer="0:1us")[0]
    assert (first["operator"], first["verdict"], first["high_ns"]) == (4, "insert", 45_000)
    assert chain.advise(transfer="0:1us").halt is None


def test_one_batch_gains_nothing_whatever_utility_says(tmp_path: Path) -> None:
    batch: Activity = (0, 4, [(1, 4, [])])
    [row] = rows(built(tmp_path, nested(batch, until=8)), transfer="0:0")
    assert (row["utility"], row["predicted_ns"], row["verdict"], row["reason"]) == (0.5, 8, "no_gain", "one_batch")


def test_ports_in_steps_reach_one_operator_per_thread(chain: Pag) -> None:
    sets: dict[int, list[dict[str, Any]]] = {}
    for row in rows(chain, ports=4, transfer="0:0"):
        if row["group"] is not None:
            sets.setdefault(row["new_threads"], []).append(row)
    # Steps after the third find nothing to divide.
    assert sorted(sets) == [1, 3, 7]
    assert [{row["operator"] for row in found} for _, found in sorted(sets.items())] == [{4}, {2, 4, 6}, set(range(1, 8))]
    assert [found[0]["utility"] for _, found in sorted(sets.items())] == pytest.approx([0.5, 0.25, 0.125])
    assert [found[0]["predicted_ns"] for _, found in sorted(sets.items())] == [44_000, 26_000, 17_000]


def test_help_for_one_of_two_threads_helps_nobody(tmp_path: Path) -> None:
    # PIPE 3.2: two threads of two operators each, 100 batches; the second reads what the first sends.
    batches = range(0, 200, 2)
    first = [
        f"{t} start 0 | {t + 1} start 1 | {t + 2} send 9>1 #{t} | {t + 2} stop 1 | {t + 2} stop 0" for t in batches
    ]
    wait = "0 start 98 =waiting | 2 recv 9<0 #0 | 2 stop 98 | 2 start 2"
    second = [f"{t + 3} start 3 | {t + 4} stop 3 | {t + 4} stop 2" for t in batches]
    reads = [wait, *(f"{t + 2} recv 9<0 #{t} | {t + 2} start 2" for t in batches[1:])]
    pag = built(
        tmp_path,
        " | ".join([*first, "200 start 99 =idle | 203 stop 99 | 203 end"]),
        " | ".join([*(f"{read} | {work}" for read, work in zip(reads, second, strict=True)), "202 end"]),
    )
    options = pag.advise(transfer="0:0", epoch=0).plan.options
    spans = {tuple(option.operators): option.bound.predicted_ns for option in options if option.bound}
    assert spans == {(1, 3): 103, (1,): 202, (3,): 202}


@pytest.fixture(scope="module")
def diamond(tmp_path_factory: pytest.TempPathFactory) -> Pag:
    """A source, two branches and what joins them, which reads 30 records of one branch and 10 of the other."""
    log = (
        "0 start 1 | 10 send 21>0 #0 *30 | 10 send 22>0 #0 *10 | 10 stop 1"
        " | 10 start 2 | 10 recv 21<0 #0 *30 | 20 send 23>0 #0 *30 | 20 stop 2"
        " | 20 start 3 | 20 recv 22<0 #0 *10 | 30 send 24>0 #0 *10 | 30 stop 3"
        " | 30 start 4 | 30 recv 23<0 #0 *30 | 30 recv 24<0 #0 *10 | 70 stop 4 | 70 end"
    )
    return dataflow(tmp_path_factory.mktemp("diamond"), log, links=DIAMOND)


DIAMOND = {21: (1, 2), 22: (1, 3), 23: (2, 4), 24: (3, 4)}


def dataflow(place: Path, *logs: str, links: dict[int, tuple[int, int]], types: dict[int, str] | None = None) -> Pag:
    """Build a drawn trace whose channels are known."""
    trace = draw(*logs, rules=RuleSet.TIMELY)
    trace.write(place / "flow.trace", trace_id="flow")
    numbers = sorted({number for ends in links.values() for number in ends})
    operators = [{"operator": 1000, "address": "0", "name": "Dataflow"}]
    operators += [{"operator": number, "address": f"0.{number}", "name": f"Op{number}"} for number in numbers]
    channels = [
        {"channel": channel, "scope": "0", "source_operator": source, "source_port": 0, "target_operator": target}
        | {"target_port": 0, "type": (types or {}).get(channel, "alloc::vec::Vec<u64>")}
        for channel, (source, target) in links.items()
    ]
    pq.write_table(pa.Table.from_pylist(operators, TRACE_OPERATORS), place / "flow.trace" / "operators.parquet")
    pq.write_table(pa.Table.from_pylist(channels, TRACE_CHANNELS), place / "flow.trace" / "channels.parquet")
    api.build(place / "flow.trace", place / "flow.pag", engine="local")
    return api.open(place / "flow.pag")


def test_records_say_what_is_downstream_in_a_dataflow(diamond: Pag) -> None:
    table = diamond.advise_ports()
    shares = {row["operator"]: row for row in table.table.to_pylist() if row["operator"] is not None}
    # Three of four records of the join came over Op2.
    assert shares[2]["mu"] == pytest.approx((10 + 0.75 * 40) / 70)
    assert shares[3]["mu"] == pytest.approx((10 + 0.25 * 40) / 70)
    assert shares[4]["mu"] == pytest.approx(40 / 70)
    assert [shares[one]["status"] for one in (1, 2, 3, 4)] == ["source", "candidate", "candidate", "candidate"]
    assert [shares[one]["flags"] for one in (2, 4)] == ["pipeline_assumed,inferred", "pipeline_assumed"]
    assert shares[1]["mu"] == pytest.approx(1.0)
