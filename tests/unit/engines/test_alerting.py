"""Alerts: each opens once and is resolved once, as the answers of its query say."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import pag_graph
from pag_graph import api
from pag_graph.analyses.standing import Query
from pag_graph.api.standing import standings
from pag_graph.engines.following import Following, Until
from pag_graph.errors import InvalidParameterError, UnsupportedPlanError
from pag_graph.graph.run import Run
from pag_graph.model.enums import RuleSet
from pag_graph.motif.alerts import BUILT_IN, Rule, read_rules
from pag_graph.store.delta import open_store
from pag_graph.testing.traces import draw
from tests.support.compare import committed, differences
from tests.support.growing import GrowingTrace, rounds
from tests.support.skewed_rounds import SLOW, portions, skewed_rounds
from tests.support.standing_sums import check_sums

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pag_graph.testing.traces import SmallTrace

ROOT = Path(__file__).parents[3]
LEARNED = Rule(
    name="learned",
    query="invariants:at-least=3:least-ns=5:tolerance=0.01:deviations=1",
    where="row.learned and row.invariant = 'message_max'",
    subject=("worker", "to_worker"),
)


def grow(parts: Sequence[SmallTrace], place: Path, rules: Sequence[Rule] = ()) -> Path:
    """Append portion after portion; rules are registered with the first."""
    for number, part in enumerate(parts):
        written = part.write(place / f"trace-{number}")
        options: dict[str, Any] = {"alerts": list(rules)} if number == 0 else {}
        api.build(written, place / "store", engine="local", mode="append", **options)
        check_sums(place / "store", tuple(rule.query for rule in rules))
    return place / "store"


def expected(store: Path, rule: Rule) -> list[tuple[str, str, int, int]]:
    """Return the events of a rule, from the full answer: event, subject, first epoch and epoch."""
    run, last = Run(store), (open_store(store).live or {})["answered"]
    query = Query.parse(rule.query)
    rows = rule.matching(_frame(query, run, last), query.schema)
    epochs = [epoch for epoch in run.epochs["epoch"].to_list() if epoch <= last]
    events = []
    for subject in rows["_subject"].unique():
        matched = set(rows.filter(_subject=subject)["epoch"].to_list())
        first, quiet = None, 0
        for epoch in epochs:
            quiet = 0 if epoch in matched else quiet + 1
            if first is None and epoch in matched:
                first = epoch
                events.append(("opened", subject, first, epoch))
            elif first is not None and quiet == rule.resolve_after:
                events.append(("resolved", subject, first, epoch))
                first = None
    return sorted(events)


def _frame(query: Query, run: Run, last: int) -> Any:
    return pl.DataFrame(pl.from_arrow(query.over(run, last)))


def events_of(store: Path, rule: str) -> list[dict[str, Any]]:
    return [row for row in pag_graph.alerts(store).to_pylist() if row["rule"] == rule]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    whole = skewed_rounds(24, {8, 9, 10})
    parts = portions(whole, [4, 10, 11, 16, 21])
    return grow(parts, tmp_path_factory.mktemp("alerts"), [SLOW, LEARNED])


def test_skew_alerts_about_worker_0_alone_and_is_resolved(store: Path) -> None:
    rows = events_of(store, "slow")
    shown = [(row["event"], json.loads(row["subject"]), row["first_epoch"], row["epoch"]) for row in rows]
    assert shown == [("opened", {"to_worker": 0}, 8, 8), ("resolved", {"to_worker": 0}, 8, 13)]
    opened, resolved = rows
    assert opened["id"] == resolved["id"] == SLOW.alert_id(Run(store).info.run["run_id"], '{"to_worker":0}', 8)
    assert (opened["limit"], opened["learned"], opened["severity"]) == (150, False, "warning")
    assert opened["observed"] > 150
    # What is resolved was seen by a later commit.
    assert opened["commit"] < resolved["commit"]
    edge = Run(store).scan("edges").filter(src=opened["src"], dst=opened["dst"]).collect()
    assert edge["type"].to_list() == ["data_message"]
    assert json.loads(opened["row"])["epoch"] == 8


@pytest.mark.parametrize("rule", [SLOW, LEARNED], ids=lambda rule: rule.name)
def test_alerts_are_what_the_answers_say(store: Path, rule: Rule) -> None:
    rows = events_of(store, rule.name)
    found = sorted((row["event"], row["subject"], row["first_epoch"], row["epoch"]) for row in rows)
    assert found == expected(store, rule)
    assert len({(row["id"], row["event"]) for row in rows}) == len(rows) > 0


@pytest.mark.parametrize("rounds_at", [(1, 3), (1, 2, 3)])
@pytest.mark.parametrize("shown", [True, False])
def test_no_alert_is_about_a_startup_that_rounds_may_follow(
    tmp_path: Path, rounds_at: Sequence[int], *, shown: bool
) -> None:
    late = Rule(name="late", query="invariants:epoch-max-ns=5:learn=false", where="row.invariant = 'epoch_max'")
    growing, store = GrowingTrace(rounds(4), tmp_path / "trace"), tmp_path / "store"
    derive, stop = standings((), [late]), Event()
    if not shown:
        stop.set()
    for epoch in rounds_at:
        growing.write_until(epoch)
        if epoch == rounds_at[-1]:
            growing.finish()
        Following(growing.path, store, commit_every_s=0, until=Until(idle_s=0.0), derive=derive, stop=stop).run()
        if (store / "epochs").exists():
            check_sums(store, (late.query,))
    api.build(tmp_path / "trace", tmp_path / "whole", engine="local", alerts=[late])
    events = [[(row["event"], row["epoch"]) for row in events_of(at, "late")] for at in (store, tmp_path / "whole")]
    assert events[0] == events[1] == [("opened", 1)]


def test_a_startup_that_is_alone_is_looked_at_in_the_end(tmp_path: Path) -> None:
    late = Rule(name="late", query="invariants:epoch-max-ns=5:learn=false", where="row.invariant = 'epoch_max'")
    log = "0 park | 6 unpark | 9 end | 12 start 1 | 14 stop 1 | 16 park | 20 unpark | 21 start 1 | 22 stop 1"
    growing, store = GrowingTrace(draw(log, log), tmp_path / "trace"), tmp_path / "store"
    for rows in (7, 9):
        for worker in (0, 1):
            growing.write(worker, rows)
        if rows == 9:
            growing.finish()
        Following(growing.path, store, until=Until(idle_s=0.0), derive=standings((), [late])).run()
        check_sums(store, (late.query,))
        assert open_store(store).closed_epochs == 1
        violations = api.open(store).invariants(epoch_max_ns=5, learn=False).to_pylist()
        found = [(row["event"], row["epoch"]) for row in events_of(store, "late")]
        # What comes after it is a shutdown, and no round.
        epochs = [row["epoch"] for row in violations if row["invariant"] == "epoch_max"]
        assert (epochs, found) == (([0, 1], [("opened", 0)]) if rows == 9 else ([], []))


def test_a_rule_that_comes_later_looks_back(store: Path, tmp_path: Path) -> None:
    whole = skewed_rounds(24, {8, 9, 10})
    place = grow(portions(whole, [4, 16]), tmp_path, [LEARNED])
    before = open_store(place)
    api.build(tmp_path / "trace-2", place, engine="local", mode="append", alerts=[SLOW])
    now = [(row["event"], row["id"], row["epoch"]) for row in events_of(place, "slow")]
    assert now == [(row["event"], row["id"], row["epoch"]) for row in events_of(store, "slow")]
    # The graph is the same, down to the files; and once more there is nothing to do.
    after = open_store(place)
    assert after.versions["epochs"] == before.versions["epochs"] + 1
    assert {name: after.table(name).files for name in ("edges", "epochs")} == {
        name: before.table(name).files for name in ("edges", "epochs")
    }
    assert not api.build(tmp_path / "trace-2", place, engine="local", mode="append", alerts=[SLOW]).committed


def test_what_a_rule_left_alone_is_replaced_by_the_next_append(tmp_path: Path) -> None:
    # Each from a store that was opened anew, as another process would: the rule's commit adds no row of the graph.
    parts = portions(skewed_rounds(16, {6, 7}), [9])
    place = grow(parts[:1], tmp_path, [LEARNED])
    api.build(tmp_path / "trace-0", place, engine="local", mode="append", alerts=[SLOW])
    grown = api.build(parts[1].write(tmp_path / "1"), place, engine="local", mode="append").store
    once = api.build(tmp_path / "1", tmp_path / "once", engine="local").store
    assert differences(committed(grown.path), committed(once.path)) == ""
    assert grown.scan("epochs").collect()["epoch"].is_unique().all()


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        (Rule(name="a", query="metrics", where="row.nothing > 1"), "no column 'nothing'"),
        (Rule(name="a", query="metrics", where="row.epoch"), "is a number"),
        (Rule(name="a", query="metrics", subject=("nobody",)), "no column of metrics"),
        (Rule(name="a", query="nonsense"), "There is no analysis"),
    ],
)
def test_rules_that_do_not_fit_are_refused(rule: Rule, problem: str, tmp_path: Path) -> None:
    trace = skewed_rounds(1, ()).write(tmp_path / "trace")
    with pytest.raises(InvalidParameterError, match=problem):
        api.build(trace, tmp_path / "store", engine="local", alerts=[rule])
    assert not (tmp_path / "store").exists()


def test_what_cannot_stand_is_refused(tmp_path: Path) -> None:
    trace = skewed_rounds(1, ()).write(tmp_path / "trace")
    with pytest.raises(UnsupportedPlanError, match="cannot be a standing query"):
        api.build(trace, tmp_path / "store", engine="local", queries=["why"])


def test_built_in_rules_are_for_runs_whose_source_states_what_workers_do_as_well(tmp_path: Path) -> None:
    """One of them asks for skew, which no standing query of such a run says: event logs of Spark were refused."""
    logs = [f"0 start 1 =processing | {9 + worker} stop 1 | {9 + worker} end" for worker in (0, 1)]
    draw(*logs, rules=RuleSet.STATED).write(tmp_path / "trace")
    api.build(tmp_path / "trace", tmp_path / "store", engine="local", alerts=BUILT_IN)
    live = open_store(tmp_path / "store").live
    assert live is not None
    left_out = {rule.name for rule in BUILT_IN} - {entry["name"] for entry in live["rules"]}
    assert left_out == {"records_to_one_worker"}
    assert {query.partition(":")[0] for query in live["queries"]} == {"invariants", "rounds"}
    # Whoever asks for it is told.
    rule = Rule(name="mine", query="skew", where="row.share = 1")
    with pytest.raises(UnsupportedPlanError, match="skew cannot be a standing query of this run"):
        api.build(tmp_path / "trace", tmp_path / "other", engine="local", alerts=[rule])


def test_the_example_of_the_page_is_a_file_of_rules() -> None:
    page = (ROOT / "docs" / "standing.md").read_text(encoding="utf-8")
    file = ROOT / "docs" / "examples" / "alerts.toml"
    assert f"```toml\n{file.read_text(encoding='utf-8')}```" in page
    rules = read_rules(file)
    assert [rule.name for rule in rules[-3:]] == ["slow_data", "long_round", "held_up"]
    assert rules[-2].resolve_after == 2
    # All of them fit their queries.
    assert len(standings(alerts=file).rules) == len(BUILT_IN) + 3


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("nonsense", "cannot be read"),
        ("[[rule]]", "has an entry 'rule'"),
        ("alert = 3", "written as tables"),
        ("[[alert]]\nname = 'a'", "must have texts"),
        ("[[alert]]\nname = 'a'\nquery = 'metrics'\nwhen = 'x'", "an entry 'when'"),
        ("[[alert]]\nname = 'a'\nquery = 'metrics'\nsubject = 'worker'", "list of names"),
        ("[[alert]]\nname = 'a'\nquery = 'metrics'\nresolve_after = 0", "at least 1"),
        ("[[alert]]\nname = 'a'\nquery = 'metrics'\nseverity = 'bad'", "severity 'bad'"),
        ("[[alert]]\nname = 'a'\nquery = 'metrics'\n" * 2, "two rules 'a'"),
    ],
)
def test_files_of_rules_that_make_no_sense_are_refused(text: str, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(text)
    with pytest.raises(InvalidParameterError, match=problem):
        read_rules(file)
