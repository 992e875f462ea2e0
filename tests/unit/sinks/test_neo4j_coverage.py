"""Which epochs an answer looked at, which it left out, and what loads those; no server is needed."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from pag_graph.cypher import Over, load_query, queries_for_people
from pag_graph.errors import InvalidParameterError
from pag_graph.sinks.neo4j.coverage import Coverage, coverage
from pag_graph.sinks.neo4j.loaded import LoadedEpoch, LoadedRun, epoch_ranges

STORE = "/data/my runs/skewed.pag"


def known(details: dict[int, str], *, epochs: int = 11, highest: dict[int, int] | None = None) -> LoadedRun:
    """Return a run of epochs of 100 ns, the first of them startup and the last shutdown; `details` are loaded."""
    loaded = {
        number: LoadedEpoch(
            number=number,
            role="startup" if number == 0 else "shutdown" if number == epochs - 1 else "round",
            start_ns=100 * number,
            end_ns=100 * (number + 1),
            after_ns=100 * number or -1,
            detail=detail,
            highest=(highest or {}).get(number, number),
        )
        for number, detail in details.items()
    }
    return LoadedRun(
        run="r",
        store=STORE,
        end_ns=100 * epochs,
        store_epochs=range(epochs),
        store_rounds=range(1, epochs - 1),
        epochs=loaded,
    )


def look(name: str, run: LoadedRun, event_ns: int | None = None, **given: Any) -> Coverage:
    query = load_query(name)
    values = {
        each.name: given.get(each.name, None if each.required else each.default) for each in query.params.values()
    }
    return coverage(query, {**values, "run": "r", **given}, run, event_ns, run)


WAITS = dict.fromkeys(range(11), "waits")
FULL = dict.fromkeys(range(11), "full")


def test_every_query_about_a_run_says_what_it_looks_over() -> None:
    queries = [query for query in queries_for_people() if "run" in query.params]
    assert len(queries) > 50
    assert not [query.name for query in queries if query.over is None]
    assert {query.over for query in queries} == set(Over)
    # What a kind of look reads from the parameters is there.
    reads = {
        Over.EPOCH: {"epoch"},
        Over.ROUNDS_BEFORE: {"epoch", "rounds"},
        Over.AGAINST: {"epoch", "against"},
        Over.INSTANT: {"at_ns"},
        Over.EVENT_BACK: {"event", "back_ns"},
        Over.EVENT_AHEAD: {"event", "ahead_ns"},
        Over.EVENT_ROUNDS: {"event", "rounds"},
    }
    for query in queries:
        assert reads.get(query.over or Over.RUN, set()) <= query.params.keys(), query.name


@pytest.mark.parametrize(
    "query", [query for query in queries_for_people() if "run" in query.params], ids=lambda query: query.name
)
def test_what_is_loaded_whole_is_covered_and_what_is_not_loaded_is_refused(query: Any) -> None:
    given = {"epoch": 5, "at_ns": 550, "event": 7, "worker": 0, "k": 2, "back_ns": 300, "ahead_ns": 300}
    asked = {name: value for name, value in given.items() if name in query.params}
    whole = look(query.name, known(FULL), 550, **asked)
    assert whole.complete
    assert whole.line() is None
    assert whole.covered
    whole.check()
    for nothing in (known({}), LoadedRun(run="r")):
        left = look(query.name, nothing, **asked)
        assert not left.covered
        with pytest.raises(InvalidParameterError, match=r"is (not )?loaded"):
            left.check()
    if query.details:
        less = look(query.name, known(WAITS), **asked)
        assert not less.covered
        with pytest.raises(InvalidParameterError, match="detail") as refused:
            less.check()
        hint = str(refused.value.hint)
        assert f"pag neo4j load '{STORE}'" in hint
        assert f"--detail {query.details[0]}" in hint


def test_the_other_run_has_to_be_loaded_too() -> None:
    query = load_query("runs/run_difference")
    values = {"run": "r", "against": None, "limit": 10}
    with pytest.raises(InvalidParameterError, match="No run that started before run r is loaded"):
        coverage(query, values, known(FULL)).check()
    with pytest.raises(InvalidParameterError, match="Run other is not loaded"):
        coverage(query, values, known(FULL), other=LoadedRun(run="other")).check()
    part = coverage(query, values, known(FULL), other=replace(known({3: "waits"}), run="other"))
    part.check()
    assert not part.complete
    assert str(part.line()).startswith("Of run other: Looked at epoch 3; left out epochs 1 to 2, 4 to 9 (not loaded).")
    both = coverage(query, values, known({4: "waits"}), other=replace(known({3: "waits"}), run="other"))
    assert "Of run r: Looked at epoch 4;" in str(both.line())
    assert coverage(query, values, known(FULL), other=replace(known(WAITS), run="other")).line() is None


def test_an_answer_over_epochs_says_what_it_left_out() -> None:
    """One epoch is loaded with all events: an answer about bursts of the run is one about that epoch."""
    found = look("patterns/message_burst", known({**WAITS, 4: "full", 10: "full"}))
    assert found.covered == (4, 10)
    assert found.skipped == dict.fromkeys([0, 1, 2, 3, 5, 6, 7, 8, 9], "waits")
    assert found.line() == (
        "Looked at epochs 4, 10; left out epochs 0 to 3, 5 to 9 (loaded with waits, needs full). "
        f"Load the rest: `pag neo4j load '{STORE}' --detail full`."
    )
    some = look("patterns/late_sender", known({3: "waits", 4: "full"}), first_epoch=3, last_epoch=5)
    assert (some.covered, dict(some.skipped), some.absent) == ((3, 4), {}, (2, 5))
    assert str(some.line()).endswith(f"`pag neo4j load '{STORE}' --epoch 2 --epoch 5`.")


@pytest.mark.parametrize(
    ("first", "last", "asked"), [(100, None, "100 on"), (100, 200, "100 to 200"), (None, -1, "0 to -1")]
)
def test_epochs_that_the_run_does_not_have_are_named_as_they_were_asked_for(
    first: int | None, last: int | None, asked: str
) -> None:
    found = look("patterns/late_sender", known(FULL), first_epoch=first, last_epoch=last)
    with pytest.raises(InvalidParameterError, match=f"has no epoch from {asked}; it has 0 to 10"):
        found.check()


def test_events_of_an_epoch_may_lie_in_earlier_windows() -> None:
    """A worker that is ahead makes events of epoch 5 while the window of epoch 3 is open."""
    ahead = known({3: "waits", 4: "waits", 5: "waits"}, highest={3: 5, 4: 5})
    assert look("patterns/late_sender", ahead, first_epoch=5, last_epoch=5).absent == (2,)
    apart = known({3: "waits", 4: "waits", 5: "waits"}, highest={3: 4, 4: 5})
    found = look("patterns/late_sender", apart, first_epoch=5, last_epoch=5)
    assert found.complete
    assert found.covered == (4, 5)


def test_a_comparison_with_rounds_before_names_those_that_it_lacks() -> None:
    partly = known({1: "full", 2: "waits", 3: "an earlier release", 5: "full"})
    found = look("root_cause/operator_grew", partly, epoch=5, rounds=3)
    # It compares with the nearest rounds that it can compare with, as the query does.
    assert (found.covered, dict(found.skipped), found.absent) == ((1, 2, 5), {3: "an earlier release"}, (4,))
    assert "epoch 3 (loaded with an earlier release, has to be loaded again)" in str(found.line())
    with pytest.raises(InvalidParameterError, match=r"none of epochs 3 to 4 is loaded with the detail .* this release"):
        look("root_cause/operator_grew", known({3: "an earlier release", 5: "full"}), epoch=5, rounds=2).check()
    with pytest.raises(InvalidParameterError, match=r"Epoch 5 of run r is loaded with an earlier release"):
        look("root_cause/operator_grew", known({5: "an earlier release"}), epoch=5, rounds=2).check()
    # The first round has none before it, and that is all there is to know.
    assert look("root_cause/operator_grew", known(FULL), epoch=1, rounds=2).complete


def test_two_epochs_are_compared_only_if_both_are_there() -> None:
    with pytest.raises(InvalidParameterError, match="Epoch 4 of run r is not loaded; loaded are 5"):
        look("epochs/difference", known({5: "waits"}), epoch=5).check()
    with pytest.raises(InvalidParameterError, match="Epoch 0 is the first"):
        look("epochs/difference", known(WAITS), epoch=0).check()
    assert look("epochs/difference", known({2: "waits", 5: "full"}), epoch=5, against=2).complete


def test_an_instant_belongs_to_an_epoch() -> None:
    assert look("analyses/state_at", known({4: "full"}), at_ns=500).covered == (4,)
    assert look("analyses/state_at", known(FULL), at_ns=0).covered == (0,)
    assert look("provenance/delayed", known(FULL), event_ns=0, event=7, ahead_ns=1).covered == (0,)
    with pytest.raises(InvalidParameterError, match="Epoch 5 of run r is loaded with less detail") as refused:
        look("analyses/state_at", known({4: "full", 5: "waits"}), at_ns=501).check()
    assert "--epoch 5 --detail full" in str(refused.value.hint)
    with pytest.raises(InvalidParameterError, match="it is one of 5 to 6"):
        look("analyses/state_at", known({4: "full", 7: "full"}), at_ns=650).check()
    for outside in (-1, 1101):
        with pytest.raises(InvalidParameterError, match="lies outside run r"):
            look("analyses/state_at", known(FULL), at_ns=outside).check()


def test_a_walk_says_where_it_ended() -> None:
    partly = known({2: "full", 4: "full", 5: "full", 6: "full", 7: "waits"})
    back = look("provenance/led_to", partly, 650, event=1, back_ns=500)
    assert (back.covered, back.absent) == ((4, 5, 6), (3,))
    assert look("provenance/led_to", partly, 650, event=1, back_ns=250).complete
    assert look("provenance/led_to", partly, 650, event=1).covered == (6,)
    ahead = look("provenance/delayed", partly, 450, event=1, ahead_ns=10**9)
    assert (ahead.covered, dict(ahead.skipped)) == ((4, 5, 6), {7: "waits"})
    rounds = look("provenance/input_round", partly, 650, event=1, rounds=3)
    assert (rounds.covered, rounds.absent) == ((4, 5, 6), (3,))
    assert look("provenance/led_to", known(FULL), 650, event=1, back_ns=10**9).complete
    with pytest.raises(InvalidParameterError, match="Event 1 is in no epoch"):
        look("provenance/led_to", partly, None, event=1).check()


def test_what_changes_meanwhile_is_left_out() -> None:
    before = look("epochs/trend", known(WAITS))
    after = look("epochs/trend", known({number: detail for number, detail in WAITS.items() if number != 3}))
    both = before.within(after)
    assert 3 not in both.covered
    assert both.absent == (3,)
    assert before.within(before) == before


@pytest.mark.parametrize(("numbers", "bounds"), [([], []), ([3], [3, 3]), ([0, 1, 2, 5, 7, 8], [0, 2, 5, 5, 7, 8])])
def test_epochs_are_remembered_as_bounds(numbers: list[int], bounds: list[int]) -> None:
    assert epoch_ranges(numbers) == bounds


def test_paths_are_quoted() -> None:
    line = look("epochs/trend", known({1: "waits"})).line()
    assert re.search(r"pag neo4j load '/data/my runs/skewed\.pag'", str(line))
