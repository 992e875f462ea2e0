"""Advice on where to insert threads: by hand, by formula, and by sampling, on traces that are really built."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pag_graph import api
from pag_graph.analyses.advising import ports
from pag_graph.analyses.advising.completions import completions
from pag_graph.analyses.advising.handed_over import Moved
from pag_graph.analyses.advising.pipelines import Traffic
from pag_graph.analyses.advising.port_replay import Transfer, port_replay
from pag_graph.analyses.advising.ports import read_ports
from pag_graph.analyses.constraints import ConstraintGraph, constraint_graph
from pag_graph.cli.demo import SAMPLES
from pag_graph.errors import InvalidParameterError, PagGraphError, UnsupportedPlanError
from pag_graph.model.enums import RuleSet
from pag_graph.sinks.advice import utilisation_picture
from pag_graph.testing.strategies import small_traces
from pag_graph.testing.traces import SmallTrace, draw
from tests.support.named_operators import built
from tests.support.nested_threads import EXAMPLE, nested

if TYPE_CHECKING:
    from pag_graph.api import Pag
    from tests.support.nested_threads import Activity
DOCS = Path(__file__).parents[3] / "docs"


def stated(place: Path, *logs: str) -> Pag:
    return built(draw(*logs, rules=RuleSet.STATED), place, operators=range(12))


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Pag:
    return stated(tmp_path_factory.mktemp("example"), *EXAMPLE)


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Pag:
    """Operators 0 to 7, one inside the other, each of 1 us; ten batches."""
    batch: Activity = (7, 1_000, [])
    for operator in range(6, -1, -1):
        batch = (operator, 1_000, [batch])
    return stated(tmp_path_factory.mktemp("chain"), nested(*[batch] * 10, until=80_000))


def rows(pag: Pag, **parameters: Any) -> list[dict[str, Any]]:
    return list(pag.advise(**parameters).table.to_pylist())


def test_a_trace_gives_the_matrix_of_the_example(example: Pag) -> None:
    table = example.advise_ports()
    shares = {(row["operator"], row["worker"]): row["mu"] for row in table.table.to_pylist() if row["operator"] != 99}
    expected = {
        (0, 0): 0.9,
        (1, 0): 0.15,
        (3, 0): 0.5,
        (4, 0): 0.2,
        (2, 1): 1.0,
        (3, 1): 0.5,
        (4, 1): 0.2,
        (5, 2): 0.9,
        (4, 2): 0.15,
        (6, 2): 0.3,
        (10, 2): 0.05,
        (7, 3): 0.95,
        (8, 3): 0.6,
        (9, 3): 0.3,
        (10, 3): 0.2,
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


def test_the_page_shows_what_threads_do_before_and_after(example: Pag) -> None:
    written = (DOCS / "pictures" / "advice-utilisation.svg").read_text(encoding="utf-8")
    drawn = utilisation_picture(example.advise())
    assert written == drawn, "run: python -m tests.support.nested_threads docs/pictures/advice-utilisation.svg"
    assert "new thread 1" in drawn


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
    # At most, a hand-over takes 1 us, and both threads lose as much; that all is done comes back as late.
    first = rows(chain, transfer="0:1us")[0]
    assert (first["operator"], first["utility"], first["verdict"]) == (4, 0.5, "insert")
    assert first["high_ns"] == 1_000 * (4 + 1 + 10 * 5 + 1)
    assert chain.advise(transfer="0:1us").halt is None


def test_one_batch_gains_nothing_whatever_utility_says(tmp_path: Path) -> None:
    batch: Activity = (0, 4, [(1, 4, [])])
    [row] = rows(stated(tmp_path, nested(batch, until=8)), transfer="0:0")
    assert (row["utility"], row["predicted_ns"], row["verdict"], row["reason"]) == (0.5, 8, "cannot_tell", "one_batch")


def test_ports_in_steps_reach_one_operator_per_thread(chain: Pag) -> None:
    sets: dict[int, list[dict[str, Any]]] = {}
    for row in rows(chain, ports=4, transfer="0:0"):
        if row["group"] is not None:
            sets.setdefault(row["new_threads"], []).append(row)
    # Steps after the third find nothing to divide.
    assert sorted(sets) == [1, 3, 7]
    assert [{row["operator"] for row in found} for _, found in sorted(sets.items())] == [
        {4},
        {2, 4, 6},
        set(range(1, 8)),
    ]
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
    pag = stated(
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
    return built(draw(log), tmp_path_factory.mktemp("diamond"), links=DIAMOND)


DIAMOND = {21: (1, 2), 22: (1, 3), 23: (2, 4), 24: (3, 4)}


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


def in_flight(steps: int, *, marked: bool) -> str:
    """A step feeds Op2, and Op3 with what Op2 did a step ago; the epoch before that one is complete after it."""
    log = []
    for step in range(steps):
        t = 21 * step
        log.append(f"{t} start 1 | {t} send 21>0 #{step} *5 | {t} stop 1 | {t} start 2 | {t} recv 21<0 #{step} *5")
        log.append(f"{t + 10} send 22>0 #{step} *5 | {t + 10} stop 2")
        if step:
            log.append(f"{t + 10} start 3 | {t + 10} recv 22<0 #{step - 1} *5 | {t + 20} stop 3")
        log += [f"{t + 20} stepped | {t + 21} program"] if marked else []
        log += [f"{t + 21} end"] if step > 1 else []
    return " | ".join(log)


def test_records_with_memory_of_their_own_may_cost_more(tmp_path: Path) -> None:
    found = {}
    for kind in (
        "alloc::vec::Vec<(u64, u8)>",
        "alloc::vec::Vec<(u64, alloc::vec::Vec<u8>)>",
        "Vec<alloc::string::String>",
    ):
        links, types = {21: (1, 2), 22: (2, 3)}, dict.fromkeys((21, 22), kind)
        pag = built(draw(in_flight(12, marked=True)), tmp_path, name=str(len(found)), links=links, types=types)
        last = pag.run.windows()[-1].epoch
        advice = {}
        for told in (None, "0:0"):
            given = {"transfer": told} if told else {}
            [advice[told]] = [row for row in rows(pag, epoch=0, until=last, beta=0.0, **given) if row["operator"] == 3]
        found[kind] = advice
    plain, *owning = found.values()
    for each in owning:
        # Messages of five records, a microsecond for each on the new thread; unless the user says what it costs.
        assert each[None]["high_ns"] - plain[None]["high_ns"] >= 5 * 5 * 1_000
        assert each[None]["predicted_ns"] == plain[None]["predicted_ns"]
        assert each["0:0"] == plain["0:0"]


@pytest.mark.parametrize("marked", [True, False])
def test_an_epoch_that_is_complete_did_not_wait_for_the_step_that_just_ended(tmp_path: Path, *, marked: bool) -> None:
    pag = built(draw(in_flight(12, marked=marked)), tmp_path, links={21: (1, 2), 22: (2, 3)})
    last = pag.run.windows()[-1]
    [row] = [row for row in rows(pag, epoch=0, until=last.epoch, beta=0.0, transfer="0:0") if row["operator"] == 3]
    # Op3 takes 10 of the 21 ns of all steps but the first. Its thread keeps up a step behind, unless every epoch waits
    # for the step before it: then only what is between two steps happens at the same time.
    whole = 12 * 21
    assert row["low_ns"] == whole - 11 * 10
    assert row["predicted_ns"] == (whole - 11 * 10 if marked else whole - 10 - 10)


def test_what_another_worker_did_counts_once_its_step_is_over(tmp_path: Path) -> None:
    # Worker 1 looks between the first and the second step of worker 0, and again after both.
    first = (
        "0 start 1 | 10 stop 1 | 10 stepped | 11 program | 11 start 1 | 30 stop 1 | 30 stepped | 40 program | 40 end"
    )
    second = "0 start 1 | 5 stop 1 | 5 stepped | 25 program | 25 end | 25 start 1 | 35 stop 1 | 35 stepped"
    pag = built(draw(first, second + " | 40 program | 40 end"), tmp_path, operators=[1])
    snapshot = pag.run.snapshot(pag.run.stretch(0, 40, end_vertex=pag.run.windows()[-1].end_vertex, follows=None))
    found = completions(snapshot, constraint_graph(snapshot, loop="closed", arrival="shortest"))
    seen = sorted(zip(*(getattr(found, name).tolist() for name in ("worker", "t_ns", "own_ns")), strict=True))
    # Worker 1 ends its first step with nothing known of it, and its second one with the first.
    assert seen == [(0, 40, 10), (1, 25, 0), (1, 40, 5)]
    assert found.told(np.array([0, 0, 1, 1]), np.array([0, 11, 5, 25])).tolist() == [10, 30, 5, 35]


@pytest.mark.parametrize(
    "costs", [{"transfer": "0:9000000000s"}, {"transfer": "0:4000000000s"}, {"record_transfer": "0:9000000000s"}]
)
def test_costs_that_no_hand_over_has_do_not_wrap_around(diamond: Pag, chain: Pag, costs: dict[str, str]) -> None:
    for pag in (diamond, chain):
        found = [row for row in rows(pag, **costs) if row["kind"] == "port" and row["high_ns"] is not None]
        assert found
        assert all(row["low_ns"] <= row["predicted_ns"] <= row["high_ns"] for row in found)
        # Nobody counts records of the chain, so none of them costs anything.
        assert pag is chain or not any(row["verdict"] == "insert" for row in found)


def test_records_without_number_do_not_wrap_around(tmp_path: Path) -> None:
    many = 2**53 - 1
    log = " | ".join(
        f"{t} start 1 | {t + 1} send 21>0 #{t} *{many} | {t + 2} stop 1"
        f" | {t + 3} start 2 | {t + 4} recv 21<0 #{t} *{many} | {t + 60} stop 2"
        for t in range(0, 6_000, 60)
    )
    pag = built(draw(f"{log} | 6000 end"), tmp_path, links={21: (1, 2)}, types={21: "Vec<(String, Vec<u8>)>"})
    [row] = [row for row in rows(pag, epoch=0) if row["operator"] == 2]
    assert row["low_ns"] <= row["predicted_ns"] < 2**59 < row["high_ns"]


def test_new_threads_have_numbers_of_their_own_where_workers_have_left(tmp_path: Path) -> None:
    """Worker 0 is gone in the window, and worker 2 has all the work."""
    first = "0 start 1 | 10 stop 1 | 100 end"
    steps = "100 start 1 | 101 send 0>2 *1 | 140 stop 1 | 140 start 2 | 141 recv 0<2 *1 | 200 stop 2 | 200 end"
    pag = built(draw(f"{first} | 100 exit", f"{first} | 200 end", f"{first} | {steps}"), tmp_path, links={0: (1, 2)})
    report = pag.advise(epoch=1, until=1)
    mu = {row["thread"]: (row["mu"], row["mu_after"]) for row in report.summary()["threads"]}
    assert mu[2][0] == 1
    assert mu.keys() == {1, 2, 3}
    assert mu[3] == (None, pytest.approx(0.6))
    assert mu[2][1] == pytest.approx(0.4)


def test_a_thread_that_was_there_for_a_while_fills_a_new_one_for_that_while(tmp_path: Path) -> None:
    """Worker 1 works a tenth of the window, and has ended: all of its own life, but a tenth of that of a new thread."""
    whole = "0 start 1 | 500 start 2 | 1000 stop 2 | 1000 stop 1 | 1000 end"
    part = "0 start 1 | 0 start 2 | 100 stop 2 | 100 stop 1 | 100 exit"
    pag = stated(tmp_path, whole, part)
    [row] = [row for row in rows(pag, epoch=0) if row["operator"] == 2]
    assert (row["utility"], row["utility_before"]) == (pytest.approx(0.6), 1)
    assert row["reason"] != "utility"


def test_more_workers_divide_what_there_was_to_do(tmp_path: Path) -> None:
    """Two workers work all of their lives, but one of them was there for a tenth of the window."""
    logs = ("0 start 1 | 5 send 0>0 | 1000 stop 1 | 1000 end", "0 start 1 | 5 send 0>1 | 100 stop 1 | 100 exit")
    pag = built(draw(*logs), tmp_path, links={0: (1, 2)})
    [wider] = [row for row in rows(pag, epoch=0) if row["kind"] == "widen"]
    assert wider["utility"] == pytest.approx(1.1 / 2.1)
    # At best worker 1 works for all of its life, and two others share the rest.
    assert (wider["low_ns"], wider["predicted_ns"], wider["high_ns"]) == (500, 524, 1000)
    assert wider["moved_ns"] == round(1100 / 2.1)


def test_a_worker_that_is_born_late_leaves_more_to_a_new_one(tmp_path: Path) -> None:
    """Worker 1 is spawned after three quarters of the window, and begins 10 ns later."""
    first = "0 start 1 | 5 send 0>1 | 750 spawn 1 | 1000 stop 1 | 1000 end"
    pag = built(draw(first, "760 start 1 | 765 send 0>0 | 1000 stop 1 | 1000 end"), tmp_path, links={0: (1, 2)})
    [wider] = [row for row in rows(pag, epoch=0) if row["kind"] == "widen"]
    assert wider["utility"] == pytest.approx(1.24 / 2.24)
    # The round ends on worker 0: worker 1 works for all of its life at best, so that 1000 ns are left to two.
    assert wider["low_ns"] == pytest.approx(500, abs=1)
    assert wider["predicted_ns"] == pytest.approx(1000 * 1.24 / 2.24, abs=1)
    assert wider["high_ns"] == 1000


def test_who_is_not_recorded_in_a_window_is_no_worker_that_shares_the_work(tmp_path: Path) -> None:
    """Nobody knows whether worker 2 did something, or was there to do it."""
    known = [f"0 start 1 | 5 send 0>{number} | 1000 stop 1 | 1000 end | 1010 end" for number in range(2)]
    two = built(draw(*known), tmp_path / "two", links={0: (1, 2)})
    three = built(
        draw(*known, "1000 end | 1005 start 1 | 1010 stop 1 | 1010 end"), tmp_path / "three", links={0: (1, 2)}
    )
    [expected], [wider] = ([row for row in rows(pag, epoch=0) if row["kind"] == "widen"] for pag in (two, three))
    assert wider["utility"] == pytest.approx(2 / 3)
    for name in ("threads", "utility", "moved_ns", "low_ns", "predicted_ns", "high_ns"):
        assert wider[name] == expected[name], name
    # It may have worked all the time.
    assert (expected["reason"], wider["reason"]) == ("skew", "coverage")


@pytest.mark.parametrize(
    ("spawn", "begin", "predicted", "assumed"),
    [("300 stop 2 | 350 spawn 1", 400, 654, True), ("200 spawn 1 | 300 stop 2", 250, 782, False)],
)
def test_who_was_alone_when_it_ran_an_operator_does_not_say_that_others_would_not(
    tmp_path: Path, *, spawn: str, begin: int, predicted: int, assumed: bool
) -> None:
    """Operator 2 runs on worker 0 until 300, operator 1 on both workers; worker 1 comes before or after 300."""
    first = f"0 start 2 | 5 send 0>0 | {spawn} | 400 start 1 | 405 send 0>1 | 1000 stop 1 | 1000 end"
    second = f"{begin} start 1 | 450 send 0>0 | 1000 stop 1 | 1000 end"
    pag = built(draw(first, second), tmp_path, links={0: (2, 1)})
    [wider] = [row for row in rows(pag, epoch=0) if row["kind"] == "widen"]
    # Of 1000 ns worker 0 spends 100 between operators; 1600/2600 or 1750/2750 of divided work stay.
    share = 16 / 26 if assumed else 175 / 275
    assert predicted == round(100 + share * 600 + (share * 300 if assumed else 300))
    assert wider["predicted_ns"] == predicted
    assert ("division_assumed" in pag.advise(epoch=0).flags) == assumed
    assert "division_assumed" not in pag.advise(epoch=0, serial=[2]).flags


def test_records_of_epochs_without_a_row_count_in_the_row_that_stands_for_them(tmp_path: Path) -> None:
    log = (
        "0 start 1 | 10 stop 1 | 100 end | 110 start 1 | 120 send 0>0 *8 | 130 stop 1 | 140 start 2 | 150 recv 0<0 *8"
        " | 190 stop 2 | 200 end ~2"
    )
    pag = built(draw(log), tmp_path, links={0: (1, 2)})
    assert 1 not in pag.run.epochs["epoch"].to_list()
    assert ports.read_traffic(pag.run, pag.run.window(epoch=2)).records == {(0, 0): 8}


def test_without_counts_the_interval_holds_the_share(diamond: Pag, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = {(row["operator"], row["worker"]): row["mu"] for row in diamond.advise_ports().table.to_pylist()}
    # As in a store of a version that has no table of what stayed on its worker.
    monkeypatch.setattr(ports, "read_traffic", lambda *_: Traffic(exchanged=frozenset(), records={}, known=False))
    table = diamond.advise_ports()
    for row in table.table.to_pylist():
        assert row["mu_low"] <= exact[row["operator"], row["worker"]] <= row["mu_high"], row
        assert (row["mu_low"] < row["mu_high"]) == (row["operator"] in {2, 3})
        assert row["operator"] is None or "no_traffic" in row["flags"]
    assert "pag build TRACE STORE --replace" in table.headline()


def test_a_cycle_downstream_is_solved_and_never_cut(tmp_path: Path) -> None:
    # Op3 reads 10 records of Op2 and 30 of Op4, which reads what Op3 made: all of it came by Op2.
    log = (
        "0 start 1 | 10 send 21>0 #0 *10 | 10 stop 1"
        " | 10 start 2 | 10 recv 21<0 #0 *10 | 20 send 22>0 #0 *10 | 20 stop 2"
        " | 20 start 3 | 20 recv 22<0 #0 *10 | 40 send 23>0 #0 *30 | 40 stop 3"
        " | 40 start 4 | 40 recv 23<0 #0 *30 | 50 send 24>0 #0 *30 | 50 stop 4"
        " | 50 start 3 | 50 recv 24<0 #0 *30 | 70 stop 3 | 70 end"
    )
    links = {21: (1, 2), 22: (2, 3), 23: (3, 4), 24: (4, 3)}
    table = built(draw(log), tmp_path, links=links).advise_ports()
    shares = {row["operator"]: row for row in table.table.to_pylist()}
    assert shares[2]["mu"] == pytest.approx(60 / 70)
    assert {one: shares[one]["status"] for one in (1, 2, 3, 4)} == {
        1: "source",
        2: "candidate",
        3: "never_cut",
        4: "never_cut",
    }


def test_what_cannot_leave_its_thread_is_never_cut(diamond: Pag, tmp_path: Path) -> None:
    log = (
        "0 start 1 | 10 send 21>0 #0 *5 | 10 stop 1 | 10 start 2 | 10 recv 21<0 #0 *5 | 30 send 22>0 #0 *5 | 30 stop 2"
        " | 30 start 3 | 30 recv 22<0 #0 *5 | 60 stop 3 | 60 end"
    )
    arranged = built(draw(log), tmp_path, links={21: (1, 2), 22: (2, 3)}, types={22: "Vec<alloc::rc::Rc<Batch>>"})
    status = {row["operator"]: row["status"] for row in arranged.advise_ports().table.to_pylist()}
    assert (status[2], status[3]) == ("candidate", "never_cut")
    found = {row["operator"]: row["status"] for row in diamond.advise_ports(keep=["Op2"]).table.to_pylist()}
    assert (found[2], found[3]) == ("never_cut", "candidate")
    found = {row["operator"]: row["status"] for row in diamond.advise_ports(pact=["21=exchange"]).table.to_pylist()}
    assert (found[2], found[3]) == ("source", "candidate")
    with pytest.raises(InvalidParameterError, match="no channel 77"):
        diamond.advise_ports(pact=["77=exchange"])
    with pytest.raises(InvalidParameterError, match="cannot be read"):
        diamond.advise_ports(pact=["21=somehow"])


def test_more_workers_are_offered_unless_an_operator_must_stay_alone(diamond: Pag) -> None:
    kinds = [row["kind"] for row in rows(diamond, new_threads=2)]
    assert kinds.count("widen") == 2
    assert kinds[0] == "widen"
    widen = next(row for row in rows(diamond, new_threads=2) if row["new_threads"] == 1)
    assert widen["utility"] == 0.5
    # All 70 ns are work, which two workers would halve; or one of them gets all keys.
    assert (widen["low_ns"], widen["predicted_ns"], widen["high_ns"]) == (35, 35, 70)
    assert (widen["verdict"], widen["reason"]) == ("cannot_tell", "skew")
    assert "widen" not in [row["kind"] for row in rows(diamond, serial=["Op4"])]


def test_doubts_and_limits_are_said(diamond: Pag, example: Pag) -> None:
    assert diamond.advise(cores=1).halt == "cores"
    shared = example.advise(cores=3)
    assert {row["verdict"] for row in shared.table.to_pylist()} <= {"cannot_tell", "no_gain"}
    assert "cores_shared" in shared.flags
    assert example.advise(beta=1.0, keep=["Op3", "Op4"]).halt == "candidate"
    assert "search_limit" in example.advise(nodes=1).flags
    assert "not_replayed" in diamond.advise(between=(0, 50)).flags
    with pytest.raises(InvalidParameterError, match="beta is 2"):
        example.advise(beta=2.0)
    with pytest.raises(InvalidParameterError, match="new_threads is 1001, and must be at most 1,000"):
        example.advise(new_threads=1001)
    with pytest.raises(InvalidParameterError, match="no interval"):
        example.advise(transfer="5us:1us")
    with pytest.raises(InvalidParameterError, match="of dataflows"):
        example.advise(level=1)


def test_nobody_who_may_have_rested_is_called_a_bottleneck(tmp_path: Path) -> None:
    log = nested((0, 30, [(1, 30, [])]), until=100, rest="unknown")
    report = stated(tmp_path, log).advise(beta=0.8)
    assert report.ports.work.busy[0] == (0.6, 0.6, 1.0)
    assert report.flags[0] == "coverage"
    assert report.halt == "rows"


def test_rules_without_one_clock_are_refused(tmp_path: Path) -> None:
    trace = draw("0 start 1 | 5 stop 1 | 9 end", rules=RuleSet.ST2)
    with pytest.raises(UnsupportedPlanError):
        built(trace, tmp_path).advise()


def chosen_at_random(graph: ConstraintGraph, chance: random.Random) -> Moved:
    """Take parts of some activations of a window to one of two new threads."""
    base = graph.base
    activation = np.where(base.is_local, base.number("activation"), -1)
    names = [int(name) for name in np.unique(activation[activation >= 0]) if chance.random() < 0.6]
    chosen = {name: (chance.choice([0.25, 0.5, 1.0]), chance.randrange(2)) for name in names}
    share, thread = np.array([chosen.get(int(one), (0.0, 0)) for one in activation]).reshape(-1, 2).T
    nothing = np.full(len(activation), -1)
    return Moved(share, np.where(share > 0, activation, nothing), thread.astype(np.int64), nothing, share > 0)


@given(trace=small_traces(), seed=st.integers(0, 1_000), slowest=st.integers(0, 50))
def test_bounds_are_in_order_and_nothing_moved_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, trace: SmallTrace, seed: int, slowest: int
) -> None:
    pag = built(trace, tmp_path_factory.mktemp("drawn"))
    for window in pag.run.windows():
        if not window.span_ns:
            continue
        snapshot = pag.run.snapshot(window)
        try:
            graph = constraint_graph(snapshot, loop="closed", arrival="shortest")
        except PagGraphError:
            # What contradicts itself cannot be replayed.
            continue
        replay = port_replay(snapshot, graph, read_ports(snapshot).work, None)
        moved = chosen_at_random(graph, random.Random(seed))
        nothing = moved._replace(share=np.zeros_like(moved.share))
        still = replay.with_ports(nothing, Transfer(0, 0))
        assert (still.low_ns, still.predicted_ns, still.instant_ns) == (window.span_ns,) * 3
        bound = replay.with_ports(moved, Transfer(0, slowest))
        assert bound.low_ns <= bound.instant_ns <= bound.predicted_ns <= bound.high_ns
        # Threads that worked side by side may have given one new thread more than fits into the window.
        taken = np.rint(graph.duration * np.where(replay.counted, moved.share, 0.0))
        assert bound.low_ns <= max(window.span_ns, np.bincount(moved.thread, taken).max())
        wider = replay.with_workers(1)
        assert wider.low_ns <= wider.predicted_ns <= wider.high_ns == window.span_ns


def test_threads_that_are_not_alike_get_a_port_each(tmp_path: Path) -> None:
    # Worker 0 runs Op1 and Op2, and sends to worker 1, which runs Op3 and Op4; each half of the time.
    first, second = [], ["0 start 3 | 0 stop 3"]
    for batch in range(10):
        t = 20 * batch
        first.append(
            f"{t} start 1 | {t + 10} send 21>0 #{batch} *5 | {t + 10} stop 1 | {t + 10} start 2"
            f" | {t + 10} recv 21<0 #{batch} *5 | {t + 20} send 22>1 #{batch} *5 | {t + 20} stop 2"
        )
        second.append(
            f"{t + 20} park | {t + 20} unpark" * (batch == 0) + f" | {t + 20} start 3 | {t + 20} recv 22<0 #{batch} *5"
            f" | {t + 30} send 23>1 #{batch} *5 | {t + 30} stop 3 | {t + 30} start 4 | {t + 30} recv 23<1 #{batch} *5"
            f" | {t + 40} stop 4"
        )
    logs = (" | ".join([*first, "220 end"]), " | ".join([*second, "220 end"]))
    pag = built(draw(*logs), tmp_path, links={20: (9, 1), 21: (1, 2), 22: (2, 3), 23: (3, 4)})
    together = [row for row in rows(pag, epoch=0, transfer="0:0") if row["group"] is not None]
    assert {row["operator"] for row in together} == {2, 4}
    assert {(row["new_threads"], row["rank"]) for row in together} == {(2, 1)}


def test_spark_gets_utilisations_and_no_ports(tmp_path: Path) -> None:
    log = nested((0, 10, [(1, 40, [])]), until=60)
    trace = draw(log, rules=RuleSet.STATED)
    pag = built(trace, tmp_path, operators=range(2))
    pag.run.info.run["source"]["system"] = "spark"
    report = pag.advise()
    assert (report.halt, report.table.num_rows) == ("stage_barrier", 0)
    assert {"--cores", "--independent"} <= set(report.headline().split())
    assert pag.advise_ports().table.num_rows == 3


@pytest.fixture(scope="module")
def triangles(tmp_path_factory: pytest.TempPathFactory) -> Pag:
    place = tmp_path_factory.mktemp("triangles") / "store"
    api.build(SAMPLES / "triangles", place, engine="local")
    return api.open(place)


def test_arrangements_are_never_cut(triangles: Pag) -> None:
    channels = triangles.run.channels
    bound = channels.filter(channels["type"].str.contains("Rc<", literal=True))["target_operator"].to_list()
    status = {row["operator"]: row["status"] for row in triangles.advise_ports().table.to_pylist()}
    assert bound
    assert {status[one] for one in bound if one in status} == {"never_cut"}
    assert not {row["operator"] for row in rows(triangles, beta=0.0)}.intersection(bound)


def test_own_times_of_a_dataflow_add_up(triangles: Pag) -> None:
    table = triangles.advise_ports()
    sums: dict[int, int] = {}
    for row in table.table.to_pylist():
        sums[row["worker"]] = sums.get(row["worker"], 0) + row["own_ns"]
    assert sums == table.ports.work.counted
