"""What `pag rescale` says of small runs of which everything is known."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from pag_graph import api
from pag_graph.analyses.critical_path import critical_path
from pag_graph.analyses.rescaling.answers import payback, work_in
from pag_graph.analyses.rescaling.data import records_of
from pag_graph.analyses.rescaling.latencies import Course, Epochs, Period, epochs_of
from pag_graph.analyses.rescaling.operations import Mark, Operation, births_of, marks_of, operations
from pag_graph.analyses.rescaling.routing import routing
from pag_graph.diagnosis.spark.causes import diagnose
from pag_graph.diagnosis.spark.cores import predict_cores
from pag_graph.diagnosis.spark.work_plan import plan_work
from pag_graph.errors import InvalidParameterError, UnsupportedPlanError
from pag_graph.model.enums import EventKind, RuleSet
from pag_graph.model.rescaling_tables import RESCALE_OVERHEAD, RESCALE_TABLES
from pag_graph.sinks.rescaling import rescaling_picture
from pag_graph.sources.spark.convert import map_log
from pag_graph.sources.spark.logfiles import find_logs
from pag_graph.sources.spark.reader import read_log
from pag_graph.store import commit
from pag_graph.testing.queue_runs import QueueRun, simulate
from pag_graph.testing.traces import draw
from tests.support.rescaled import SHOWN

if TYPE_CHECKING:
    from collections.abc import Callable

    from pag_graph.analyses.rescaling.report import Rescaling
    from pag_graph.api import Pag
    from pag_graph.testing.queue_runs import Truth
    from pag_graph.testing.traces import SmallTrace

DOCS = Path(__file__).parents[3] / "docs"
SPARK_LOGS = Path(__file__).parents[2] / "data" / "spark"
OVERLOADED = SHOWN
PERIOD = OVERLOADED.period_ns


def built(trace: SmallTrace, place: Path) -> Pag:
    trace.write(place / "trace", replace=True)
    api.build(place / "trace", place / "store", engine="local", mode="replace")
    return api.open(place / "store")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rescaled")


@pytest.fixture(scope="module")
def truth() -> Truth:
    return simulate(OVERLOADED)[1]


@pytest.fixture(scope="module")
def pag(place: Path) -> Pag:
    """Return a run of an overloaded queue that a worker joins."""
    return built(simulate(OVERLOADED)[0], place)


@pytest.fixture(scope="module")
def answer(pag: Pag) -> Rescaling:
    return api.rescale(pag, period_ns=PERIOD, first_ns=0, cores=4)


def rows(answer: Rescaling, table: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = answer.named(table).to_pylist()
    return found


def test_every_table_is_as_declared(answer: Rescaling) -> None:
    for name, schema in RESCALE_TABLES.items():
        table = answer.named(name)
        assert table.schema.equals(schema)
        assert table.num_rows
    assert answer.named("operations").to_pylist() == answer.table.to_pylist()
    assert json.dumps(answer.summary())
    assert answer.warnings == []
    with pytest.raises(InvalidParameterError, match="held_up"):
        answer.named("nothing")


def test_phases_tile_the_run_from_the_third_round_on_and_hold_its_epochs(answer: Rescaling, pag: Pag) -> None:
    phases = rows(answer, "phases")
    assert [row["phase"] for row in phases] == ["before", "bootstrap", "settling", "after"]
    for row, following in pairwise(phases):
        assert row["end_ns"] == following["start_ns"]
    latency = rows(answer, "latency")
    counted = {row["phase"]: sum(one["phase"] == row["phase"] for one in latency) for row in phases}
    assert counted == {row["phase"]: row["epochs"] for row in phases}
    assert sum(one["phase"] == "start" for one in latency) == 3
    assert phases[-1]["end_ns"] == pag.epochs.filter(pl.col("role") == "round")["end_ns"].max()


def test_overload_is_relieved_and_pays(answer: Rescaling) -> None:
    [row] = rows(answer, "operations")
    assert (row["kind"], row["saturated"], row["verdict"]) == ("join", "yes", "relieved")
    assert (row["workers"], row["new_workers"], row["payback_status"]) == (3, 1, "paid")
    assert "relieved; saturated before: yes" in answer.headline()


def test_what_due_times_hide_is_said(answer: Rescaling, pag: Pag) -> None:
    hidden = api.rescale(pag)
    assert hidden.summary()["latency_kind"] == "service"
    assert any("--period" in warning for warning in hidden.warnings)
    assert any("--cores" in warning for warning in hidden.warnings)
    [with_due], [without] = rows(answer, "operations"), rows(hidden, "operations")
    assert with_due["before_ns"] > 2 * without["before_ns"]  # type: ignore[operator]


def test_tables_by_hand_say_when_input_was_due(tmp_path: Path) -> None:
    """One worker takes 1.2 ms for what is due every millisecond; after 20 epochs a second one takes half of it."""
    activities, epochs, free = ["feed,0,1,scheduling,feed,0"], [], 1
    for epoch in range(100):
        start = max(free, 1_000 * epoch)
        workers, work = (("first", "second"), 600) if epoch >= 20 else (("first",), 1_200)
        activities += [f"{worker},{start},{start + work},processing,work,{epoch}" for worker in workers]
        free = start + work
        epochs.append(f"{epoch},{free},{1_000 * epoch}")
    log = tmp_path / "log"
    log.mkdir()
    for name, header, lines in (
        ("activities", "worker,start_us,end_us,activity,operator,epoch", activities),
        ("messages", "from,to,sent_us,type", ["feed,second,23990,spawn"]),
        ("epochs", "epoch,end_us,due_us", epochs),
    ):
        (log / f"{name}.csv").write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    api.convert(log, tmp_path / "trace")
    api.build(tmp_path / "trace", tmp_path / "store", engine="local")
    told = api.rescale(tmp_path / "store", inputs=tmp_path / "trace")
    [row] = rows(told, "operations")
    assert (row["kind"], row["saturated"], row["verdict"], row["payback_status"]) == ("join", "yes", "relieved", "paid")
    assert told.summary()["latency_kind"] == "response"
    assert told.table == api.rescale(tmp_path / "store", period_ns=1_000_000, first_ns=0).table
    # Epoch 19, due at 19 ms, is complete after 20 of 1.2 ms and the feed's microsecond.
    assert api.rescale(tmp_path / "store").table["worst_ns"][0].as_py() < row["worst_ns"] == 5_001_000


def test_steps_and_gaps_tile_a_clients_time(answer: Rescaling, truth: Truth) -> None:
    steps = rows(answer, "steps")
    client = [row for row in steps if row["side"] == "client"]
    assert [row["step"] for row in client] == ["gap", "state"]
    assert client[0]["start_ns"] == truth.birth_ns
    ends = [row["start_ns"] + row["duration_ns"] for row in client]  # type: ignore[operator]
    assert ends == [client[1]["start_ns"], truth.ready_ns]
    # Everybody waits for the new worker.
    assert client[1]["path_ns"] == client[1]["duration_ns"] == OVERLOADED.bootstrap_ns
    # The state is sent where the server's step ends, and read where the client's begins.
    records = {(row["side"], row["step"]): row["records"] for row in steps}
    assert records == {("server", "send_state"): 64, ("client", "gap"): None, ("client", "state"): 64}


def test_a_message_belongs_to_one_of_the_steps_that_follow_each_other(tmp_path: Path) -> None:
    """A client reads a message where its first step ends and the second begins, and one where that ends, its last."""
    first = (
        "0 start 1 | 5 send 3>0 | 50 stop 1 | 100 spawn 1 | 100 start 9 | 150 send 7>1 *3 | 150 stop 9 | 150 start 9"
    )
    first += " | 200 send 7>1 #1 *5 | 200 stop 9 | 300 start 1 | 400 stop 1 | 400 end"
    client = "110 start 5 | 160 recv 7<0 *3 | 160 stop 5 | 160 start 6 | 210 recv 7<0 #1 *5 | 210 stop 6"
    other = "0 start 1 | 400 stop 1 | 400 end"
    trace = draw(first, f"{client} | 300 start 1 | 400 stop 1 | 400 end", other, rules=RuleSet.STATED)
    names = ((9, "rescale:server:send"), (5, "rescale:client:connect"), (6, "rescale:client:apply"))
    pag = built(replace(trace, operators=names, channels=((7, "rescale:bootstrap"),)), tmp_path)
    steps = [(row["start_ns"], row["step"], row["records"]) for row in rows(api.rescale(pag), "steps")]
    of_server, of_client = [(100, "send", None), (150, "send", 8)], [(110, "connect", None), (160, "apply", 8)]
    assert sorted(steps, key=str) == sorted([*of_server, *of_client, (100, "gap", None)], key=str)


def test_a_short_life_fills_no_phase(tmp_path: Path) -> None:
    """Worker 1 works in the first 5 ns of the stretch, and ends; worker 0 works for a tenth of it."""
    stays = "0 start 1 | 200 stop 1 | 200 start 2 =idle | 1100 stop 2 | 1100 end"
    run = built(draw(stays, "0 start 1 | 105 stop 1 | 105 exit", rules=RuleSet.STATED), tmp_path).run
    [work] = work_in(run, [(100, 1_100)], [{0, 1}])
    assert work.busy_max == 0.1
    assert work.waiting_share == 900 / 1_005


def test_blame_adds_up_to_the_waiting(answer: Rescaling, pag: Pag) -> None:
    [operation] = rows(answer, "operations")
    window = pag.run.stretch(operation["request_ns"], operation["settled_ns"])  # type: ignore[arg-type]
    local = pag.snapshot(between=(window.start_ns, window.end_ns)).local.filter(pl.col("type") == "waiting")
    inside = pl.min_horizontal("end_ns", pl.lit(window.end_ns)) - pl.max_horizontal("start_ns", window.start_ns)
    charged = rows(answer, "held_up")
    assert sum(row["blamed_ns"] for row in charged) == local.select(inside.sum()).item()  # type: ignore[misc]
    step = [row for row in charged if row["step"] == "client:state"]
    assert {row["worker"]: row["blamed_ns"] for row in step} == dict.fromkeys((0, 1, 2), OVERLOADED.bootstrap_ns)


def test_a_path_through_a_birth_is_as_long_as_its_window(pag: Pag, truth: Truth) -> None:
    window = pag.run.stretch(truth.request_ns - 1_000, truth.ready_ns + 1_000_000)
    steps = critical_path(pag.run.snapshot(window)).steps.to_pylist()
    assert sum(step["duration_ns"] for step in steps) == window.span_ns
    assert "rescale:client:state" in {
        dict(pag.run.operators.select("operator", "name").iter_rows()).get(step["operator"]) for step in steps
    }


def test_shares_are_the_programs_own_counters(answer: Rescaling, truth: Truth, place: Path) -> None:
    phases = {row["phase"]: set() for row in rows(answer, "phases")}
    for row in rows(answer, "latency"):
        if row["phase"] in phases:
            phases[row["phase"]].add(row["epoch"])
    found = rows(answer, "routing")
    for row in found:
        for name in ("before", "after"):
            read = sum(truth.records[epoch].get(row["worker"], 0) for epoch in phases[name])  # type: ignore[call-overload]
            assert row[f"{name}_records"] == read
    # Half and half, then thirds: a third of the records is read by another worker, at least.
    assert [round(row["moved_low"], 9) for row in found] == [round(1 / 3, 9)] * 3  # type: ignore[call-overload]
    assert {row["moved"] for row in found} == {None}
    # By remainders two thirds of the keys get another owner.
    lines = [f"0,{key},,{1 + key % 2}" for key in range(6)]
    lines += [f"{truth.birth_ns},{key},{1 + key % 2},{1 + key % 3}" for key in range(6)]
    (place / "moves.csv").write_text("\n".join(["t,bin,from,to", *lines]) + "\n", encoding="utf-8")
    told = api.rescale(place / "store", routing=place / "moves.csv")
    assert {round(row["moved"], 9) for row in rows(told, "routing")} == {round(2 / 3, 9)}  # type: ignore[call-overload]


def test_the_state_that_was_measured_is_listed(answer: Rescaling) -> None:
    assert rows(answer, "state") == [{"epoch": OVERLOADED.before, "worker": 0, "updates": 64, "bytes": None}]


def test_the_page_shows_this_run(answer: Rescaling) -> None:
    page = (DOCS / "rescaling.md").read_text(encoding="utf-8")
    assert answer.headline() in " ".join(page.split("```text\n")[1].split("```")[0].split())
    written = (DOCS / "pictures" / "rescaling.svg").read_text(encoding="utf-8")
    assert written == rescaling_picture(answer), "run: python -m tests.support.rescaled docs/pictures/rescaling.svg"


def test_workers_that_leave_are_an_operation(tmp_path: Path) -> None:
    run = QueueRun(workers=3, added=-1, work_ns=1_500_000)
    trace, truth = simulate(run)
    answer = api.rescale(built(trace, tmp_path), period_ns=run.period_ns, first_ns=0)
    [row] = rows(answer, "operations")
    assert (row["kind"], row["new_workers"], row["request_ns"]) == ("leave", -1, truth.request_ns)
    assert (row["verdict"], row["payback_status"]) == ("not_saturated_slower", "never")


def test_requests_before_latencies_settled_are_one_operation(tmp_path: Path) -> None:
    run = QueueRun(added=2, work_ns=800_000, bootstrap_ns=150_000_000, after=260)
    answer = api.rescale(built(simulate(run)[0], tmp_path), period_ns=run.period_ns, first_ns=0)
    [row] = rows(answer, "operations")
    assert (row["kind"], row["new_workers"]) == ("several", 2)


@pytest.mark.parametrize(
    ("run", "status"), [(QueueRun(after=30), "too_few"), (QueueRun(work_ns=4_000_000), "not_settled")]
)
def test_what_never_settles_is_compared_with_nothing(tmp_path: Path, run: QueueRun, status: str) -> None:
    answer = api.rescale(built(simulate(run)[0], tmp_path), period_ns=run.period_ns, first_ns=0)
    [row] = rows(answer, "operations")
    assert (row["settled"], row["settled_ns"], row["verdict"], row["payback_status"]) == (
        status,
        None,
        "cannot_tell",
        "unknown",
    )
    assert any("not settled" in warning for warning in answer.warnings)
    assert rows(answer, "routing") == []


def test_activations_without_a_birth_are_operations(tmp_path: Path) -> None:
    trace, _ = simulate(QueueRun(added=0, work_ns=800_000))
    log = list(trace.events[0])
    # The source activates somebody in the middle of a stretch in which it waits for input.
    place = next(n for n, event in enumerate(log) if event.epoch == 20 and event.kind is EventKind.STOP)
    at = replace(log[place], operator=7, kind=EventKind.START, activity="application")
    log[place + 1 : place + 1] = [at, replace(at, kind=EventKind.STOP, activity=None)]
    log = [replace(event, seq=seq) for seq, event in enumerate(log)]
    changed = replace(
        trace, events=(tuple(log), *trace.events[1:]), operators=(*trace.operators, (7, "rescale:activate"))
    )
    [row] = rows(api.rescale(built(changed, tmp_path)), "operations")
    assert (row["kind"], row["new_workers"], row["request_ns"]) == ("activate", 0, at.t_ns)
    assert row["verdict"] == "not_saturated_same"


def test_cost_is_paid_back_by_what_is_gained_later() -> None:
    def course(after: int) -> tuple[int | None, str]:
        latency = np.array([10] * 10 + [30] * 5 + [8] * after)
        end = np.arange(1, len(latency) + 1) * 100
        epochs = Epochs(epoch=np.arange(len(end)), begin_ns=end - latency, end_ns=end, due_ns=None, run_end_ns=9_999)
        operation = Operation(kind="join", request_ns=1_000, birth_ns=1_000, ready_ns=1_001)
        known = Course(operation=operation, before_ns=300, until_ns=int(end[-1]), status="settled", settled_ns=1_600)
        return payback(known, epochs)

    # Ten epochs, five that cost 20 each, and fifty that win 2 each.
    assert course(60) == (64, "paid")
    assert course(20) == (64, "not_yet")


def test_an_epoch_takes_until_the_last_worker_has_completed_it(tmp_path: Path) -> None:
    logs = ("0 start 1 | 5 stop 1 | 6 end | 9 start 1 | 15 end | 16 stop 1", "7 end | 19 end | 20 start 1 | 21 stop 1")
    epochs = epochs_of(built(draw(*logs), tmp_path).run, Period(period_ns=8, first_ns=0))
    assert (epochs.epoch.tolist(), epochs.begin_ns.tolist(), epochs.end_ns.tolist()) == ([1], [9], [19])
    assert epochs.latency_ns.tolist() == [11]


def course_between(request_ns: int, ready_ns: int, until_ns: int) -> Course:
    """Return an operation after which latencies settled at once."""
    operation = Operation(kind="join", request_ns=request_ns, birth_ns=request_ns, ready_ns=ready_ns)
    return Course(operation=operation, before_ns=100, until_ns=until_ns, status="settled", settled_ns=ready_ns)


def test_a_channel_that_carries_nothing_before_or_after_is_not_compared(tmp_path: Path) -> None:
    sends = (
        "0 start 1 | 100 end | 110 send 3>1 *5 | 110 send 4>1 *5 | 200 end | 250 end"
        " | 310 send 4>1 #1 *5 | 310 send 5>1 *5 | 400 end"
    )
    reads = (
        "0 start 1 | 100 end | 120 recv 3<0 *5 | 120 recv 4<0 *5 | 200 end | 250 end"
        " | 320 recv 4<0 #1 *5 | 320 recv 5<0 *5 | 400 end"
    )
    run = built(draw(sends, reads), tmp_path).run
    found = routing(run, 0, course_between(210, 240, 400), epochs_of(run, None), None)
    assert [(row["channel"], row["worker"], row["before_share"], row["after_share"]) for row in found] == [(4, 1, 1, 1)]
    assert [row["moved_low"] for row in found] == [0]


def test_records_of_epochs_without_a_row_are_those_of_the_row_that_stands_for_them(tmp_path: Path) -> None:
    # Nobody ends epoch 1.
    log = (
        "0 start 1 | 100 end | 110 send 0>0 *8 | 150 recv 0<0 *8 | 200 end ~2"
        " | 210 send 0>0 #1 *3 | 215 recv 0<0 #1 *3 | 220 end"
    )
    run = built(draw(log), tmp_path).run
    assert run.epochs["epoch"].to_list()[:3] == [0, 2, 3]
    assert records_of(run, [0, 2, 3]) == [0, 8, 3]


@pytest.mark.parametrize(
    ("processes", "found"), [((0, 1, 2, 0), [[1], [2]]), ((0, 0, 0, 0), [[1], [2]]), ((0, 1, 1, 0), [[1, 2]])]
)
def test_births_far_apart_are_one_operation_only_in_a_process_that_comes_with_them(
    tmp_path: Path, processes: tuple[int, ...], found: list[list[int]]
) -> None:
    second = 10**9
    first = (
        f"0 start 1 | 6 recv 3<3 | 10 stop 1 | {second} spawn 1 | {2 * second} spawn 2"
        f" | {3 * second} start 1 | {4 * second} stop 1 | {4 * second} end"
    )
    born = [f"{n * second + 5} start 1 | {n * second + 9} stop 1 | {4 * second} end" for n in (1, 2)]
    worked = f"0 start 1 | 5 send 3>0 | {4 * second} stop 1 | {4 * second} end"
    run = built(replace(draw(first, *born, worked), processes=processes), tmp_path).run
    joins = operations(run, marks_of(run), births_of(run))
    assert [[birth.worker for birth in operation.births] for operation in joins] == found


@pytest.mark.parametrize(("processes", "found"), [((0, 0, 0), [[1], [2]]), ((0, 1, 1), [[1, 2]])])
def test_exits_far_apart_are_one_operation_only_of_a_process_that_ends_with_them(
    tmp_path: Path, processes: tuple[int, ...], found: list[list[int]]
) -> None:
    second = 10**9
    stays = (
        f"0 start 1 | 5 send 3>0 | {second} stop 1 | {3 * second} start 1 | {3 * second + 5} send 3>0 #1"
        f" | {4 * second} stop 1 | {4 * second} end"
    )
    leave = [f"0 start 1 | 5 stop 1 | {n * second} end | {n * second} exit" for n in (1, 2)]
    run = built(replace(draw(stays, *leave), processes=processes), tmp_path).run
    leaves = operations(run, marks_of(run), births_of(run))
    assert [[exit_.worker for exit_ in operation.exits] for operation in leaves] == found


@pytest.mark.parametrize(("cores", "shared"), [(3, False), (2, True)])
def test_workers_that_replace_others_do_not_share_their_cores(tmp_path: Path, cores: int, *, shared: bool) -> None:
    first = "0 start 1 | 5 send 3>0 | 10 stop 1 | 500 spawn 3 | 600 start 1 | 605 send 3>0 #1 | 900 stop 1 | 900 end"
    other, leaves = "0 start 1 | 5 stop 1 | 900 end", "0 start 1 | 5 send 3>1 | 10 stop 1 | 400 exit"
    born = "505 start 1 | 506 send 3>1 | 510 stop 1 | 900 end"
    pag = built(draw(first, other, leaves, born), tmp_path)
    warnings = api.rescale(pag, cores=cores).warnings
    assert any("There were more workers than" in warning for warning in warnings) == shared


def test_without_an_operation_there_is_no_answer(tmp_path: Path) -> None:
    pag = built(simulate(QueueRun(added=0, before=5, after=5))[0], tmp_path)
    with pytest.raises(UnsupportedPlanError, match="no rescaling"):
        api.rescale(pag)


def test_a_bootstrap_without_a_spawn_is_refused(tmp_path: Path) -> None:
    trace, _ = simulate(QueueRun())
    source = tuple(event for event in trace.events[0] if event.kind is not EventKind.SPAWN)
    pag = built(replace(trace, events=(source, *trace.events[1:])), tmp_path)
    with pytest.raises(UnsupportedPlanError, match="worker 3 was bootstrapped"):
        api.rescale(pag)


def test_numbers_that_make_no_sense_are_refused(pag: Pag, tmp_path: Path) -> None:
    with pytest.raises(InvalidParameterError, match="need both"):
        api.rescale(pag, period_ns=5)
    with pytest.raises(InvalidParameterError, match="period"):
        api.rescale(pag, period_ns=0, first_ns=0)
    with pytest.raises(InvalidParameterError, match=r"Epoch 1 was complete .* before its input is said to be due"):
        api.rescale(pag, period_ns=PERIOD, first_ns=100 * PERIOD)
    for period_ns, first_ns in ((1, -(2**63)), (1, -(2**70)), (2**62, -(2**62)), (2**64, 0)):
        with pytest.raises(InvalidParameterError, match="would be due"):
            api.rescale(pag, period_ns=period_ns, first_ns=first_ns)
    with pytest.raises(InvalidParameterError, match="cores"):
        api.rescale(pag, cores=0)
    with pytest.raises(InvalidParameterError, match="weight"):
        api.rescale(pag, weight="bytes")  # type: ignore[arg-type]
    header = "t,bin,from,to\n"
    for text in (
        "t,bin\n",
        f"{header}soon,1,,2\n",
        f"{header}\N{SUPERSCRIPT TWO},1,,2\n",
        f"{header}{'9' * 5_000},1,,2\n",
    ):
        (tmp_path / "moves.csv").write_text(text, encoding="utf-8")
        with pytest.raises(InvalidParameterError, match=r"moves\.csv"):
            api.rescale(pag, routing=tmp_path / "moves.csv").named("routing")


def test_records_weigh_epochs(pag: Pag) -> None:
    weighed = api.rescale(pag, weight="records")
    # All epochs have the same.
    assert rows(weighed, "phases") == rows(api.rescale(pag), "phases")


def test_a_store_without_traffic_answers_all_but_what_needs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(commit, "STORE_FORMAT_VERSION", 1)
        pag = built(simulate(QueueRun())[0], tmp_path)
    answer = api.rescale(pag)
    assert rows(answer, "phases")[0]["messages_per_record"] is None
    assert rows(answer, "latency")[0]["records"] is None
    assert "<svg" in rescaling_picture(answer)
    with pytest.raises(UnsupportedPlanError, match="how many records"):
        api.rescale(pag, weight="records")
    for table in ("routing", "state"):
        with pytest.raises(UnsupportedPlanError, match="before stores had the table traffic"):
            answer.named(table)


def test_what_a_worker_ran_before_its_first_event_is_a_step(tmp_path: Path) -> None:
    trace, truth = simulate(QueueRun())
    written = trace.write(tmp_path / "trace")
    import pyarrow.parquet as pq

    workers = pq.read_table(written / "workers.parquet")
    startup = pa.array([None, None, None, 700], pa.int64())
    place = workers.schema.get_field_index("startup_ns")
    pq.write_table(workers.set_column(place, workers.schema.field(place), startup), written / "workers.parquet")
    api.build(written, tmp_path / "store", engine="local")
    first = rows(api.rescale(tmp_path / "store"), "steps")[0]
    assert (first["worker"], first["step"], first["duration_ns"]) == (3, "startup", 700)
    assert first["start_ns"] == truth.birth_ns + 200 - 700


def test_the_command_prints_every_table(run_pag: Callable[..., tuple[int, str, str]], pag: Pag, place: Path) -> None:
    store, due = place / "store", ("--period", "1ms", "--first", "0")
    assert pag.run.info.path == store
    code, text, error = run_pag("rescale", store, *due, "--picture", place / "drawn.svg")
    assert code == 0, error
    assert "relieved" in text
    assert (place / "drawn.svg").read_text(encoding="utf-8").count("<rect") > 10
    for name, schema in RESCALE_TABLES.items():
        code, text, _ = run_pag("rescale", store, *due, "--table", name, "--format", "csv")
        assert code == 0
        assert text.splitlines()[0] == ",".join(schema.names)
    code, text, _ = run_pag("rescale", store, *due, "--format", "json")
    assert json.loads(text)["rows"][0]["verdict"] == "relieved"
    assert run_pag("rescale", store, "--period", "1ms")[0] == 2


def test_overhead_is_an_interval_over_runs(run_pag: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    stores = []
    for number, work in enumerate((800_000, 802_000, 804_000, 803_000, 960_000, 962_000, 964_000, 963_000)):
        run = QueueRun(added=0, before=8, after=0, work_ns=work, noise=0)
        place = tmp_path / str(number)
        place.mkdir()
        built(simulate(run)[0], place)
        stores.append(place / "store")
    same = api.rescale_overhead(stores[:1], stores[1:2])
    assert same.table.schema.equals(RESCALE_OVERHEAD)
    assert {row["decision"] for row in same.table.to_pylist()} == {"undecided"}
    assert "nothing is decided" in same.headline()
    slower = api.rescale_overhead(stores[:4], stores[4:])
    work = next(row for row in slower.table.to_pylist() if row["what"] == "processing per record")
    assert work["decision"] == "slower"
    assert work["ratio_low"] < 1.2 < work["ratio_high"]
    forks = [word for store in stores[4:] for word in ("--fork", store)]
    code, text, error = run_pag("rescale-overhead", *stores[:4], *forks, "--format", "csv")
    assert code == 0, error
    assert text.splitlines()[0] == ",".join(RESCALE_OVERHEAD.names)
    with pytest.raises(InvalidParameterError, match="no run"):
        api.rescale_overhead([], stores[:1])


def test_a_run_without_rounds_has_no_latencies(tmp_path: Path) -> None:
    trace, truth = simulate(QueueRun(before=2, after=1))
    logs = (tuple(event for event in log if event.kind is not EventKind.EPOCH_END) for log in trace.events)
    logs = (tuple(replace(event, epoch=0) for event in log) for log in logs)
    answer = api.rescale(built(replace(trace, events=tuple(logs)), tmp_path))
    [row] = rows(answer, "operations")
    assert (row["request_ns"], row["ready_ns"], row["before_ns"]) == (truth.request_ns, truth.ready_ns, None)
    assert row["verdict"] == "cannot_tell"
    assert answer.warnings[0].startswith("The run has no rounds")
    assert rows(answer, "latency") == []
    assert "<svg" in rescaling_picture(answer)


@pytest.mark.parametrize(
    ("log", "kinds"),
    # The lost executor had nothing to do just then; Spark knows why it is gone.
    [("dynamic-allocation", ["leave", "leave", "join", "join"]), ("lost-executor", ["loss", "join"])],
)
def test_executors_that_come_and_go_are_operations(tmp_path: Path, log: str, kinds: list[str]) -> None:
    api.convert(SPARK_LOGS / f"{log}.zstd", tmp_path / "trace")
    api.build(tmp_path / "trace", tmp_path / "store", engine="local")
    answer = api.rescale(tmp_path / "store")
    found = rows(answer, "operations")
    assert [row["kind"] for row in found] == kinds
    joins = [row["operation"] for row in found if row["kind"] == "join"]
    steps = ["request_to_added", "added_to_first_launch"]
    assert [(row["operation"], row["step"]) for row in rows(answer, "steps")] == [
        (number, step) for number in joins for step in steps
    ]
    # Between the request and the first launch there is nothing else.
    for number in joins:
        lasted = sum(row["duration_ns"] for row in rows(answer, "steps") if row["operation"] == number)  # type: ignore[misc]
        assert lasted == found[number]["work_ns"] - found[number]["request_ns"]  # type: ignore[operator]


STREAMS = {
    # A file comes every four seconds, and takes 4.6 s on one core; a second one comes.
    "stream-joined-busy": ("join", "yes", "relieved"),
    # The same, but Spark keeps both tasks of a batch for the core that read its file.
    "stream-joined-near": ("join", "yes", "cannot_tell"),
    # 1.4 s on one core.
    "stream-joined-idle": ("join", "no", "not_saturated_faster"),
    # 0.9 s on two cores, one of which is lost.
    "stream-lost": ("loss", "no", "not_saturated_slower"),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", STREAMS)
def test_recorded_streams_whose_workers_come_and_go(tmp_path: Path, name: str) -> None:
    [log] = find_logs(SPARK_LOGS / "rescaled" / f"{name}.zstd")
    spark_log = read_log(log)
    schedule = map_log(spark_log).schedule
    # Batch 0 is late: the program begins.
    started = dict(spark_log.progress.select("batch", "started_ms").iter_rows())
    first_ms = (started[0] if STREAMS[name][1] == "yes" else started[10] - 40_000) - schedule.origin_ms
    api.convert(SPARK_LOGS / "rescaled" / f"{name}.zstd", tmp_path / "trace", epochs="batch")
    api.build(tmp_path / "trace", tmp_path / "store", engine="local")
    answer = api.rescale(tmp_path / "store", period_ns=4_000_000_000, first_ns=first_ms * 1_000_000, cores=1)
    [operation] = rows(answer, "operations")
    assert (operation["kind"], operation["saturated"], operation["verdict"]) == STREAMS[name]
    kept = [cause for cause in diagnose(schedule).causes if cause.cause == "locality_wait"]
    if name == "stream-joined-near":
        [cause] = kept
        # 97 batches have two tasks of 2.3 s, of which one waits for the other.
        assert cause.signal["kept_near"] == 97
        assert cause.saved_ns == pytest.approx(97 * 2_300_000_000, rel=0.02)
    else:
        assert kept == []


def test_what_a_joined_executor_brought_is_predicted() -> None:
    """An executor joins one that works alone; without it the program takes as long as a run that has only the one."""
    active, alone = {}, {}
    for name in ("ramp-up-joined", "cores-ramp-up-1"):
        [log] = find_logs(SPARK_LOGS / "cores" / f"{name}.zstd")
        schedule = map_log(read_log(log)).schedule
        first = min(job.start_ns for job in schedule.jobs)
        active[name] = schedule.end_ns - first
        [one] = [row for row in predict_cores(schedule, plan_work(schedule), [1]) if row.cores == 1]
        alone[name] = one.predicted_ns - first
    assert alone["cores-ramp-up-1"] == active["cores-ramp-up-1"]
    assert alone["ramp-up-joined"] == pytest.approx(active["cores-ramp-up-1"], rel=0.2)
    # Saying that the join brought nothing is farther off.
    assert active["ramp-up-joined"] < 0.7 * active["cores-ramp-up-1"]


def test_programs_mark_steps_under_timely_as_well(tmp_path: Path) -> None:
    log = "0 start 1 | 5 stop 1 | 6 app 2 | 7 app 3 | 9 endapp 3 | 12 endapp 2 | 13 app 2 | 20 end | 21 end"
    names = ((2, "rescale:server:listen"), (3, "rescale:request"))
    run = built(replace(draw(log), operators=names), tmp_path).run
    marks = [Mark(0, "server:listen", 6, 12), Mark(0, "request", 7, 9)]
    assert marks_of(run) == marks
    assert [(mark.side, mark.step, mark.is_step) for mark in marks] == [
        ("server", "listen", True),
        ("request", "request", False),
    ]


def test_who_ends_in_the_middle_of_its_work_is_lost(tmp_path: Path) -> None:
    run = QueueRun(workers=3, added=-1, work_ns=900_000)
    trace, _ = simulate(run)
    # Nobody logged that the last activity of the worker was over.
    gone = trace.events[3]
    lost = tuple(replace(event, seq=seq) for seq, event in enumerate([*gone[:-2], gone[-1]]))
    [row] = rows(api.rescale(built(replace(trace, events=(*trace.events[:3], lost)), tmp_path)), "operations")
    assert (row["kind"], row["request_ns"]) == ("loss", gone[-1].t_ns)
