"""Reports in plain words: the data-skew study end to end, causes drawn by hand, budgets, and hostile names."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import polars as pl
import pytest

from pag_graph import api
from pag_graph.analyses import find_analysis
from pag_graph.analyses.evidence import Cause, Evidence
from pag_graph.analyses.why import Why, WhyParameters
from pag_graph.cli.demo import SAMPLES
from pag_graph.errors import InvalidParameterError
from pag_graph.model.units import duration, printable
from pag_graph.sinks.report import page
from pag_graph.testing.traces import draw

if TYPE_CHECKING:
    from pathlib import Path

    from pag_graph.api import Pag

MS = 1_000_000


def drawn(place: Path, *workers: str) -> Pag:
    draw(*workers).write(place / "trace")
    api.build(place / "trace", place / "store", engine="local")
    return api.open(place / "store")


def balanced(other: int) -> str:
    """Draw a worker that works as much as the other in every round, and reads what that sent in the round before."""
    events = []
    for number in range(8):
        t = number * 1_000
        events.append(f"{t} start 1")
        if number:
            events.append(f"{t + 1} recv 3<{other} #{number - 1} *5")
        events += [f"{t + 900} send 3>{other} #{number} *5", f"{t + 901} stop 1", f"{t + 902} psend 9 #{number}"]
        events += [f"{t + 908} precv 9<{other} #{number}", f"{t + 910} end"]
    return " | ".join(events)


def test_a_wait_with_two_alternatives_is_one_doubtful_wait(tmp_path: Path) -> None:
    waiting = "0 end | 101 park | 700 unpark | 702 recv 3<1 | 703 recv 3<2 | 704 recv 3<3 | 1095 end"
    senders = (f"0 end | {600 + number} send 3>0 | 1100 end" for number in range(3))
    trace = draw(waiting, *senders, processes=[0, 1, 1, 1], uncertainty_ns=[50] * 4)
    trace.write(tmp_path / "trace")
    api.build(tmp_path / "trace", tmp_path / "store", engine="local")
    pag = api.open(tmp_path / "store")
    assert pag.critical_path(epoch=1).alternatives == 2
    doubts = pag.why(epoch=1).table["statement"].to_pylist()
    assert "; 1 wait on it may have been ended by another message" in " ".join(doubts)


def test_workers_that_have_ended_have_no_time_of_which_waiting_is_a_share(tmp_path: Path) -> None:
    waiting = "0 start 1 | 90 stop 1 | 95 end | 301 park | 700 unpark | 702 recv 3<0 *5 | 1095 end"
    ended = "0 start 1 | 90 stop 1 | 95 end | 95 exit"
    pag = drawn(tmp_path, "0 start 1 | 90 stop 1 | 95 end | 700 send 3>1 *5 | 1095 end", waiting, ended, ended)
    statements = pl.DataFrame(pl.from_arrow(pag.why(epoch=1).table)).filter(pl.col("topic") == "waiting")
    # Two workers were there for 1,000 ns each.
    assert statements.row(0, named=True)["share"] == 399 / 2000
    assert "20% of all workers' time" in statements.row(0, named=True)["statement"]


def test_workers_that_have_ended_make_nobody_slow(tmp_path: Path) -> None:
    waiting = "0 start 1 | 90 stop 1 | 95 end | 301 park | 700 unpark | 702 recv 3<0 *5 | 1095 end"
    ended = "0 start 1 | 90 stop 1 | 95 end | 95 exit"
    pag = drawn(tmp_path, "0 start 1 | 90 stop 1 | 95 end | 700 send 3>1 *5 | 1095 end", waiting, ended, ended)
    # The others worked 1,000 and 601 ns: less than 1.5 x their median.
    assert [row["work_ratio"] for row in pag.stragglers(epoch=1).to_pylist()] == [1000 / 800.5, 601 / 800.5]
    assert pag.why(epoch=1, notable=0.15).cause is Cause.UNEVEN_WORK


def test_nothing_helps_an_epoch_that_takes_no_time(tmp_path: Path) -> None:
    """It was said that waking workers at once made it 0 ns long instead of 1 ns."""
    pag = drawn(tmp_path, "0 start 1 | 50 stop 1 | 60 end | 60 end | 90 start 1 | 95 stop 1 | 99 end")
    assert pag.run.window(epoch=1).span_ns == 0
    rows = pag.why(epoch=1).table.to_pylist()
    helps = [row["statement"] for row in rows if row["topic"] == "help"]
    assert helps == ["nothing that a replay can show: no single change saves 1 %"]


def test_the_data_skew_study_end_to_end(skewed: Pag) -> None:
    """ST2 5.2.2, on a trace of our own: all records are exchanged to worker 0."""
    for window in skewed.rounds():
        told = skewed.why(epoch=window.epoch)
        assert isinstance(told, Why)
        assert told.alarm
        assert told.cause is Cause.DATA_SKEW
        assert (told.named["worker"], told.named["operator_name"]) == (0, "FlatMap (0.4)")
        text = " ".join(told.text(top=100).split())
        assert "workers 1, 2 and 3 waited" in text
        assert "records went to worker 0 only" in text
        assert all(f"{sender} -> 0 (" in text for sender in (1, 2, 3))
    told = skewed.why()
    assert told.window.epoch == 4
    best = next(row for row in told.table.to_pylist() if row["topic"] == "help")
    assert best["statement"].startswith("records of FlatMap (0.4) spread evenly over the 4 workers")
    assert best["share"] > 0.5
    limits = [row["statement"] for row in told.table.to_pylist() if row["topic"] == "limits"]
    assert re.search(r"messages from workers .* to worker 0 took longer than", limits[0])


def test_the_numbers_behind_the_study(skewed: Pag) -> None:
    # Invariants fire on messages to worker 0, and on no others.
    fired = pl.DataFrame(pl.from_arrow(skewed.invariants(message_max_ns=MS, learn=False, some_progress=False)))
    assert fired.height > 0
    assert fired["to_worker"].unique().to_list() == [0]
    assert set(fired["worker"]) == {1, 2, 3}
    # Records flow 1, 2, 3 -> 0 only.
    for window in skewed.rounds():
        matrix = pl.DataFrame(pl.from_arrow(skewed.matrix(epoch=window.epoch)))
        flows = matrix.filter(pl.col("records") > 0)
        assert sorted(flows.select("from_worker", "to_worker").rows()) == [(1, 0), (2, 0), (3, 0)]
    # Ten hops are dominated by processing on worker 0 and by data messages 1, 2, 3 -> 0.
    hops = pl.concat([pl.DataFrame(pl.from_arrow(skewed.k_hops(k=10, epoch=w.epoch))) for w in skewed.rounds()])
    summed = hops.group_by("type", "worker").agg(pl.col("walk_ns").sum() / hops["walk_ns"].sum())
    named = {(kind, worker): share for kind, worker, share in summed.iter_rows()}
    on_zero = named["processing", 0]
    to_zero = sum(named.get(("data_message", sender), 0) for sender in (1, 2, 3))
    assert on_zero > 0.3
    assert to_zero > 0.2
    assert on_zero + to_zero > 0.9
    assert ("data_message", 0) not in named
    # Workers 1 to 3 wait, and are blamed for nothing to speak of.
    waits = pl.concat([pl.DataFrame(pl.from_arrow(skewed.waits(epoch=w.epoch))) for w in skewed.rounds()])
    waited = dict(waits.group_by("worker").agg(pl.col("waiting_ns").sum()).iter_rows())
    assert min(waited[worker] for worker in (1, 2, 3)) > 10 * waited.get(0, 0)


def test_messages_to_who_reads_all_records_are_skew_as_well(tmp_path: Path) -> None:
    sender = " | ".join(
        f"{t} start 1 | {t + 10} send 3>0 #{t} *20 | {t + 11} stop 1 | {t + 99} end" for t in (0, 100, 200)
    )
    reader = " | ".join(
        f"{t} park | {t + 90} unpark | {t + 91} start 1 | {t + 92} recv 3<1 #{t} *20 | {t + 97} stop 1 | {t + 98} end"
        for t in (0, 100, 200)
    )
    draw(reader, sender, processes=[0, 1]).write(tmp_path / "trace")
    api.build(tmp_path / "trace", tmp_path / "store", engine="local")
    told = api.open(tmp_path / "store").why(epoch=1)
    assert told.cause is Cause.TRANSFER
    _, row = [row for row in told.table.to_pylist() if row["topic"] == "cause"]
    said = "The data is skewed: worker 0 read all 20 records of operator 1"
    assert row["statement"] == f"{said}, and 80% of the time was messages to or from it."
    assert (row["worker"], row["operator"], row["time_ns"], row["share"]) == (0, 1, 80, 0.8)


@pytest.mark.parametrize(("between", "noted"), [(40, True), (4, False)])
def test_time_between_activations_is_not_instrumented(tmp_path: Path, *, between: int, noted: bool) -> None:
    log = " | ".join(f"{t} start 1 | {t + 100 - between} stop 1 | {t + 100} end" for t in (0, 100, 200))
    told = drawn(tmp_path, log.replace("start 1 |", "start 1 | 1 send 3>0 #0 |", 1)).why(epoch=1)
    rows = [row for row in told.table.to_pylist() if "is not instrumented" in row["statement"]]
    said = [(row["topic"], row["time_ns"], row["share"]) for row in rows]
    assert said == ([("doubt", 40, 0.4)] if noted else [])
    assert not noted or rows[0]["statement"].startswith("40% of the path lies between activations")


def test_what_lies_between_marked_steps_is_the_programs(tmp_path: Path) -> None:
    step = "{0} start 1 | {1} stop 1 | {2} stepped | {3} program | {4} end"
    log = " | ".join(step.format(t, t + 50, t + 60, t + 99, t + 100) for t in (0, 100, 200))
    told = drawn(tmp_path, log.replace("start 1 |", "start 1 | 1 send 3>0 #0 |", 1)).why(epoch=1)
    assert "not instrumented" not in " ".join(row["statement"] for row in told.table.to_pylist())


def test_a_balanced_run_raises_no_alarm(tmp_path: Path) -> None:
    told = drawn(tmp_path, balanced(1), balanced(0)).why()
    assert told.cause is Cause.WORK
    assert not told.alarm
    text = " ".join(told.text(top=50).split())
    assert "No cause stands out" in text
    assert "Cause:" not in text


@pytest.mark.parametrize("name", ["triangles", "ground_truth"])
def test_real_runs_that_are_balanced_raise_none(name: str, tmp_path: Path) -> None:
    api.build(SAMPLES / name, tmp_path / name, engine="local")
    told = api.open(tmp_path / name).why()
    assert (told.cause, told.alarm) == (Cause.WORK, False)


def test_every_statement_is_ranked_and_the_budget_holds(skewed: Pag) -> None:
    told = skewed.why()
    rows = told.table.to_pylist()
    assert sorted(row["rank"] for row in rows) == list(range(1, len(rows) + 1))
    topics = list(dict.fromkeys(row["topic"] for row in rows))
    assert topics == ["summary", "cause", "path", "waiting", "records", "limits", "typical", "help", "doubt"]
    for lines in (1, 2, 5, 9, 17, 30, 200):
        text = skewed.why(lines=lines).text(top=100)
        assert len(text.splitlines()) <= max(lines, 2), lines
        assert text.startswith("Epoch 4 took 3.89 ms")
        assert max(map(len, text.splitlines())) <= 118
        left_out = int(found[1]) if (found := re.search(r"\((\d+) more;", text)) else 0
        assert (left_out > 0) == (lines < 200)
    assert "Cause: the data is skewed" in skewed.why(lines=5).text()
    assert "What would help" in skewed.why(lines=9).text()
    few = skewed.why(words=60).text()
    assert len(re.sub(r"\(\d+ more;.*", "", few).split()) <= 60 + 3
    assert skewed.why(lines=1000).text(top=1000).count("\n") > len(rows)


def test_shares_and_times_are_those_of_the_analyses(skewed: Pag) -> None:
    rows = skewed.why().table.to_pylist()
    path = skewed.critical_path()
    assert sum(row["time_ns"] for row in rows if row["topic"] == "path") == path.window.span_ns
    waited = sum(skewed.waits()["waiting_ns"].to_pylist())
    first, *more = [row for row in rows if row["topic"] == "waiting"]
    assert first["time_ns"] == waited
    charged = [row["time_ns"] for row in more if row["statement"].split("% ")[0].isdigit()]
    assert sum(charged) == waited
    typical = [row["time_ns"] for row in rows if row["topic"] == "typical"]
    assert sum(typical[1:]) == typical[0]
    balance = next(row for row in rows if row["topic"] == "help")
    change = skewed.what_if(operator=(7,), worker=(0,), factor=0.25)
    assert balance["time_ns"] == change.saved_ns


@pytest.mark.parametrize("counted", [" *4", ""])
def test_that_a_slow_worker_had_no_more_records_is_said_only_where_they_are_counted(
    tmp_path: Path, counted: str
) -> None:
    slow = f"0 end | 1 start 1 | 90 send 3>1 #0{counted} | 110 stop 1 | 120 end"
    others = (
        f"0 end | 1 park | 95 unpark | 96 start 2 | 97 recv 3<0 #0{counted} | 110 stop 2 | 120 end",
        "0 end | 3 start 1 | 50 stop 1 | 120 end",
    )
    told = drawn(tmp_path, slow, *others).why(epoch=1)
    assert told.cause is Cause.SLOW_WORKER
    assert ("for no more records" in told.text()) == bool(counted)


@pytest.mark.parametrize(("baseline", "limit"), [(0, None), (5, None), (20, None), (35, 12_498), (10**12, 12_498)])
def test_all_rounds_that_are_asked_for_say_what_is_usual(tmp_path: Path, baseline: int, limit: int | None) -> None:
    """More than 20 were read, and the latest 20 of them looked at. The median of 35 is 9,999 ns."""
    ends, events = 0, ["0 end"]
    for length in [10_000] * 20 + [30_000] * 15 + [35_000]:
        begins, ends = ends, ends + length
        events.append(f"{begins + 1} start 1 | {ends - 1} stop 1 | {ends} end")
    pag = drawn(tmp_path, " | ".join(events))
    evidence = Evidence(snapshot=pag.snapshot(epoch=36), above=1.5, notable=0.25, message_share=0.1, baseline=baseline)
    learned = [row for row in evidence.violations if row["learned"] and row["invariant"] == "epoch_max"]
    assert [row["limit"] for row in learned] == ([] if limit is None else [limit])


def test_a_wait_without_rounds_to_compare_with(tmp_path: Path) -> None:
    sender = "0 start 1 | 70 send 3>1 #0 *8 | 80 stop 1 | 120 end"
    waiter = "0 start 2 | 5 stop 2 | 6 park | 75 unpark | 76 start 2 | 77 recv 3<0 #0 *8 | 110 stop 2 | 120 end"
    pag = drawn(tmp_path, sender, waiter)
    told = pag.why(epoch=0)
    text = told.text(top=50)
    assert told.cause is Cause.UNEVEN_WORK
    assert told.alarm
    assert "Worker 0 had most to do" in text
    assert "Compared with" not in text
    assert "records 0 -> 1 (8)" in text


def test_names_of_a_trace_are_data(tmp_path: Path) -> None:
    trace = draw("0 start 1 | 70 send 3>1 #0 *8 | 80 stop 1 | 120 end", "0 start 2 | 5 stop 2 | 120 end")
    trace.write(tmp_path / "trace")
    evil = "<script>alert('x')</script>|\x1b[31m`*"
    table = pl.read_parquet(tmp_path / "trace" / "operators.parquet")
    schema = dict.fromkeys(table.columns, None)
    rows = [{**schema, "operator": n, "address": str(n), "name": evil} for n in (1, 2)]
    pl.DataFrame(rows, schema=table.schema).write_parquet(tmp_path / "trace" / "operators.parquet")
    api.build(tmp_path / "trace", tmp_path / "store", engine="local")
    pag = api.open(tmp_path / "store")
    told = pag.why(epoch=0)
    assert "\x1b" not in told.text(top=50)
    assert "\\<script\\>" in told.markdown(top=50)
    assert "<script>" not in told.markdown(top=50)
    html = page(find_analysis("why"), told, run=pag.run, snapshot=pag.snapshot(epoch=0), top=50)
    seen = Page()
    seen.feed(html)
    assert "script" not in seen.tags
    assert not seen.outside
    assert "&lt;script&gt;" in html
    assert "\x1b" not in html


class Page(HTMLParser):
    """Collect the tags of a document, and what it would load."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.outside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.outside += [f"{tag} {name}" for name, _ in attrs if name in {"src", "href", "xlink:href", "onload"}]


def test_the_file_with_the_report_has_everything_in_it(skewed: Pag) -> None:
    told = skewed.why()
    html = page(find_analysis("why"), told, run=skewed.run, snapshot=skewed.snapshot())
    seen = Page()
    seen.feed(html)
    assert not seen.outside
    assert not {"script", "link", "img", "iframe"} & set(seen.tags)
    assert seen.tags.count("svg") == 1
    assert seen.tags.count("polyline") == 1
    assert seen.tags.count("title") > 100
    assert 'class="cause alarm"' in html
    assert "url(" not in html
    assert "@import" not in html


@pytest.mark.parametrize(
    "wrong",
    [
        {"lines": 0},
        {"words": 0},
        {"above": 0.5},
        {"notable": 0.0},
        {"notable": 1.5},
        {"message_share": 0.0},
        {"baseline": -1},
        # Nothing was learned from so few.
        {"baseline": 1},
        {"baseline": 4},
    ],
)
def test_parameters_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidParameterError, match=next(iter(wrong))):
        WhyParameters(**wrong)  # type: ignore[arg-type]


def test_durations_and_names_are_readable() -> None:
    assert [duration(ns) for ns in (0, 999, 1_000, 12_345_678, 3 * 10**9)] == [
        "0 ns",
        "999 ns",
        "1.0 us",
        "12.35 ms",
        "3.000 s",
    ]
    assert printable("a\tb\u202e") == "a?b?"
