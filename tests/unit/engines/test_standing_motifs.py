"""Motifs as standing queries: at every commit their changes add up to what a program that tries all pairs finds."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import pag_graph
from pag_graph import api
from pag_graph.analyses.standing import Query
from pag_graph.api.standing import standings
from pag_graph.engines.following import Following
from pag_graph.engines.standing import _Commit
from pag_graph.errors import InvalidParameterError, UnsupportedPlanError
from pag_graph.graph.run import Run
from pag_graph.motif import last_edges
from pag_graph.motif.alerts import Rule
from pag_graph.store.delta import open_store
from pag_graph.store.retention import Keep
from pag_graph.testing.strategies import small_traces
from tests.support.growing import GrowingTrace
from tests.support.skewed_rounds import portions, skewed_rounds
from tests.support.standing_sums import check_sums
from tests.support.steps import Steps, late_read, portions_of_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pag_graph.testing.traces import SmallTrace

PROVE = os.environ.get("PAG_PROVE") == "1"

Edge = dict[str, Any]
Pairs = tuple[str, int, "Callable[[list[Edge], Edge, Edge], bool]"]
"""A query, its number of epochs, and which pairs of edges match."""

SAME_TARGET: Pairs = (
    "motif:pattern=(a)-[e]->(z); (s)-[f]->(z):where=e.duration_ns >= f.duration_ns:distinct=true:last=2",
    2,
    lambda _, e, f: e["dst"] == f["dst"] and e["duration_ns"] >= f["duration_ns"] and e != f,
)
SOON = "e.type = 'data_message' and f.type = e.type and f.start_ns - e.start_ns between 0 and us(1)"
FAR_APART: Pairs = (
    f"motif:last=3:pattern=(a)-[e]->(b); (c)-[f]->(d):where={SOON}",
    3,
    lambda _, e, f: e["type"] == f["type"] == "data_message" and 0 <= f["start_ns"] - e["start_ns"] <= 1000,
)
NO_WAY_BACK: Pairs = (
    "motif:pattern=(a)-[e]->(b); (b)-[f]->(c); !(c)-[]->():last=2",
    2,
    lambda all_edges, e, f: e["dst"] == f["src"] and all(edge["src"] != f["dst"] for edge in all_edges),
)
PAIRS = (SAME_TARGET, FAR_APART, NO_WAY_BACK)
QUERIES = tuple(query for query, _, _ in PAIRS)
COLUMNS = ":columns=e.src,e.dst,e.type,f.src,f.dst,f.type"


def check_pairs(store: Path, pairs: Pairs) -> None:
    """Compare the sum of the changes with all pairs of edges of the last answered epochs."""
    text, count, matches = pairs
    info = open_store(store)
    assert info.live is not None
    answered, run = info.live["answered"], Run.of(info)
    last = [epoch for epoch in run.epochs["epoch"].to_list() if epoch <= answered][-count:]
    edges = run.scan("edges").filter(pl.col("epoch").is_in(last)).collect().to_dicts()
    keys = ("src", "dst", "type")
    expected: Counter[str] = Counter()
    for e in edges:
        for f in edges:
            if matches(edges, e, f):
                named = {f"{name}.{key}": edge[key] for name, edge in (("e", e), ("f", f)) for key in keys}
                expected[str(named | {"epoch": max(e["epoch"], f["epoch"])})] += 1
    rows = pag_graph.changes(store, text + COLUMNS).to_pylist()
    summed: Counter[str] = Counter()
    for row in rows:
        diff = row.pop("diff")
        summed[str({name: row[name] for name in (*named_columns(), "epoch")})] += diff
    assert {row: count for row, count in summed.items() if count} == expected


def named_columns() -> list[str]:
    return [f"{name}.{key}" for name in "ef" for key in ("src", "dst", "type")]


@settings(max_examples=300 if PROVE else 2, phases=[Phase.explicit, Phase.reuse, Phase.generate], deadline=None)
@given(st.one_of(small_traces(max_workers=3), small_traces(max_workers=3, skewed=True, damaged=True)), st.data())
def test_changes_are_all_pairs_at_every_commit(
    tmp_path_factory: pytest.TempPathFactory, trace: SmallTrace, data: st.DataObject
) -> None:
    parts = data.draw(portions_of_log(replace(trace, complete=True)))
    place = tmp_path_factory.mktemp("pairs")
    for number, part in enumerate(parts):
        queries = [text + COLUMNS for text in QUERIES] if number == 0 else []
        written = part.write(place / f"trace-{number}")
        api.build(written, place / "store", engine="local", mode="append", slice_events=7, queries=queries)
        for pairs in PAIRS:
            check_pairs(place / "store", pairs)


def test_a_message_that_is_read_late_brings_its_matches_then(tmp_path: Path) -> None:
    # It was sent in epoch 1 and is read in epoch 5, when four others have been answered.
    query = "motif:pattern=(s)-[m]->(r); (p)-[e]->(r):where=m.channel = 5 and e.type != m.type:columns=s.epoch:last=4"
    store = tmp_path / "store"
    for epochs in (5, 8):
        part = replace(late_read(8).until_epoch(epochs - 1), complete=epochs == 8)
        queries = [query, *(text + COLUMNS for text in QUERIES)] if epochs == 5 else []
        written = part.write(tmp_path / f"{epochs}")
        api.build(written, store, engine="local", mode="append", queries=queries)
        check_sums(store, [query])
        for pairs in PAIRS:
            check_pairs(store, pairs)
    rows = pag_graph.changes(store, query).select(["commit", "diff", "s.epoch", "epoch"]).to_pylist()
    # The one that was read in time went meanwhile.
    assert [tuple(row.values()) for row in rows] == [(0, 1, 1, 1), (1, -1, 1, 1), (1, 1, 1, 5)]


def followed(growing: GrowingTrace, store: Path, *steps: Callable[[], object], **options: Any) -> Iterator[None]:
    """Follow step by step, and yield after each commit."""
    run = Following(growing.path, store, commit_every_s=0, stop=Steps(*steps), **{"derive": standings(), **options})
    for _ in run.commits():
        yield


def test_a_follower_goes_on_from_the_last_epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    growing, store = GrowingTrace(skewed_rounds(12, {4, 5}), tmp_path / "trace"), tmp_path / "store"
    queries = [text + COLUMNS for text in QUERIES]
    read: list[list[int]] = []
    monkeypatch.setattr(last_edges, "edges_of", noting(last_edges.edges_of, read))
    # Nothing that was answered is answered again.
    monkeypatch.delattr(_Commit, "_joined_anew")
    for ends, new_queries in (((2, 3, 4), queries), ((6, 8), ()), ((9,), ())):
        steps = [partial(growing.write_until, epoch) for epoch in ends]
        commits = 0
        for _ in followed(growing, store, *steps, derive=standings(new_queries)):
            commits += 1
            for pairs in PAIRS:
                check_pairs(store, pairs)
        assert commits == len(ends)
        # Whoever begins reads the edges of the last epochs, and no others; then each epoch is read once.
        assert max(len(epochs) for epochs in read) <= 3
        read.clear()
    for _ in followed(growing, store, growing.finish):
        check_sums(store, queries)


def noting(function: Callable[..., Any], read: list[list[int]]) -> Callable[..., Any]:
    def noted(run: Run, epochs: list[int]) -> Any:
        read.append(list(epochs))
        return function(run, epochs)

    return noted


def test_a_follower_reads_each_epoch_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    growing, store = GrowingTrace(skewed_rounds(10, ()), tmp_path / "trace"), tmp_path / "store"
    read: list[list[int]] = []
    monkeypatch.setattr(last_edges, "edges_of", noting(last_edges.edges_of, read))
    steps = [partial(growing.write_until, epoch) for epoch in range(1, 10)]
    for _ in followed(growing, store, *steps, growing.finish, derive=standings([SAME_TARGET[0]])):
        pass
    epochs = list(chain.from_iterable(read))
    assert epochs == sorted(set(epochs))


def test_an_edge_that_comes_takes_a_match_back(tmp_path: Path) -> None:
    # At the end of an epoch nothing leaves a worker's last vertex yet.
    query = "motif:pattern=(a)-[e]->(b); !(b)-[]->():last=3"
    whole = skewed_rounds(6, ())
    for number, part in enumerate(portions(whole, [4, 5])):
        queries = [query] if number == 0 else []
        api.build(
            part.write(tmp_path / f"{number}"), tmp_path / "store", engine="local", mode="append", queries=queries
        )
        check_sums(tmp_path / "store", [query])
    rows = pl.DataFrame(pl.from_arrow(pag_graph.changes(tmp_path / "store", query, since=0)))
    back = rows.filter(pl.col("diff") == -1).group_by("commit", "epoch").len().sort("commit")
    # The second commit answers epoch 2: those of epoch 1 are still among the last three, and lose their matches. The
    # third one answers all six.
    assert back.rows() == [(1, 1, 3), (2, 2, 3)]


def test_epochs_that_are_written_anew_are_answered_anew(tmp_path: Path) -> None:
    # A log that said it was complete went on: its last epochs are others now.
    queries = [text + COLUMNS for text in QUERIES]
    for number, part in enumerate(portions(skewed_rounds(9, {4, 5}), [3, 5])):
        written = replace(part, complete=True).write(tmp_path / f"{number}")
        asked = queries if number == 0 else []
        api.build(written, tmp_path / "store", engine="local", mode="append", queries=asked)
        for pairs in PAIRS:
            check_pairs(tmp_path / "store", pairs)


def test_a_motif_of_one_edge_needs_no_last_epochs(tmp_path: Path) -> None:
    query = "motif:pattern=(s)-[m]->(r):where=m.type = 'data_message' and m.duration_ns > ns(60)"
    growing, store = GrowingTrace(skewed_rounds(9, {4, 5}), tmp_path / "trace"), tmp_path / "store"
    steps = [partial(growing.write_until, epoch) for epoch in (2, 5, 7)]
    for _ in followed(growing, store, *steps, growing.finish, derive=standings([query])):
        check_sums(store, [query])
    assert set(pag_graph.changes(store, query)["diff"].to_pylist()) == {1}


def test_what_motifs_look_back_to_is_kept(tmp_path: Path) -> None:
    growing, store = GrowingTrace(skewed_rounds(14, {4, 5}), tmp_path / "trace"), tmp_path / "store"
    steps = [partial(growing.write_until, epoch) for epoch in (2, 5, 7, 9, 11)]
    query = FAR_APART[0] + COLUMNS
    derive = standings([query], forgets=True)
    for _ in followed(growing, store, *steps, derive=derive, keep=Keep(epochs=1)):
        check_pairs(store, FAR_APART)
    kept = Run(store).epochs["epoch"].to_list()
    assert kept[0] > 0
    answered = [epoch for epoch in kept if epoch <= (open_store(store).live or {})["answered"]]
    assert len(answered) == 3
    # The next one begins with what is left.
    for _ in followed(growing, store, growing.finish, derive=standings(forgets=True), keep=Keep(epochs=1)):
        check_pairs(store, FAR_APART)


def test_a_motif_that_looks_back_to_what_is_gone_is_refused(tmp_path: Path) -> None:
    """Its matches with removed edges would be missing, and nobody would say so."""
    growing, store = GrowingTrace(skewed_rounds(14, {4, 5}), tmp_path / "trace"), tmp_path / "store"
    for _ in followed(growing, store, partial(growing.write_until, 9), keep=Keep(epochs=2)):
        pass
    before = open_store(store)
    assert before.removed is not None
    with pytest.raises(UnsupportedPlanError, match="looks at 3 epochs, and 2 are left"):
        for _ in followed(growing, store, growing.finish, derive=standings([FAR_APART[0]]), keep=Keep(epochs=2)):
            pass
    assert open_store(store).versions == before.versions
    query = SAME_TARGET[0] + COLUMNS
    for _ in followed(growing, store, growing.finish, derive=standings([query]), keep=Keep(epochs=2)):
        check_pairs(store, SAME_TARGET)


TWO_ROUNDS = (
    "motif:last=2:pattern=(a)-[e]->(b); (c)-[f]->(d):where=e.type = 'data_message' and f.type = e.type"
    " and c.worker = 0 and d.worker = 1 and f.start_ns - e.start_ns between 400 and 900"
)
"""Rounds take 400 ns: of some pairs a round lies between, so that they are never both among the last two."""
SHOWN = ("rule", "event", "subject", "first_epoch", "epoch")
SLOW = Rule(
    name="slow",
    query="motif:pattern=(s)-[m]->(r); (t)-[n]->(r2):last=2:where=m.type = 'data_message' and n.type = 'data_message'"
    " and s.worker < t.worker and r.worker = r2.worker and m.duration_ns > ns(60) and n.duration_ns > ns(60)",
    where="m.duration_ns > ns(150) and n.duration_ns > ns(150) and row.epoch > 1",
    subject=("r.worker",),
)
LAST = Rule(
    name="last",
    query="motif:pattern=(a)-[e]->(b); !(b)-[]->():last=3",
    where="b.worker = 1 and row.epoch = 3",
    subject=("b.worker",),
)


NAMELESS = Rule(
    name="nameless",
    query="motif:pattern=(s)-[m]->(r); (t)-[]->(r):last=3:where=m.type = 'data_message'",
    where="m.duration_ns > ns(150)",
    subject=("r.worker",),
)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("ends", [[4, 10, 11, 16, 21], []], ids=str)
def test_alerts_do_not_depend_on_when_a_commit_comes(tmp_path: Path, ends: list[int]) -> None:
    store = tmp_path / "store"
    for number, part in enumerate(portions(skewed_rounds(24, {8, 9, 10}), ends)):
        rules = [SLOW, LAST, NAMELESS] if number == 0 else []
        written = part.write(tmp_path / f"trace-{number}")
        api.build(written, store, engine="local", mode="append", alerts=rules)
        check_sums(store, [SLOW.query, LAST.query, NAMELESS.query])
    rows = pag_graph.alerts(store).to_pylist()
    shown = [(row["rule"], row["event"], json.loads(row["subject"]), row["first_epoch"], row["epoch"]) for row in rows]
    assert sorted(shown) == [
        # The edge that leaves the vertex comes with the next epoch.
        ("last", "opened", {"b.worker": 1}, 3, 3),
        ("last", "resolved", {"b.worker": 1}, 3, 3),
        ("nameless", "opened", {"r.worker": 0}, 8, 8),
        ("nameless", "resolved", {"r.worker": 0}, 8, 13),
        ("slow", "opened", {"r.worker": 0}, 8, 8),
        ("slow", "resolved", {"r.worker": 0}, 8, 13),
    ]


def test_a_whole_run_opens_the_alerts_that_its_epochs_open_one_by_one(tmp_path: Path) -> None:
    wheres = ("e.src % 3 = 0", "f.duration_ns > ns(90)", "true", "e.dst % 3 = 0")
    rules = [
        Rule(
            name=str(place),
            query=f"{text}{COLUMNS},f.duration_ns",
            where=where,
            subject=("e.dst", "f.type"),
            resolve_after=1,
        )
        for place, (text, where) in enumerate(zip((*QUERIES, TWO_ROUNDS), wheres, strict=True))
    ]
    growing, store = GrowingTrace(skewed_rounds(9, {4, 5}), tmp_path / "trace"), tmp_path / "store"
    steps = [partial(growing.write_until, epoch) for epoch in range(1, 9)]
    for _ in followed(growing, store, *steps, growing.finish, derive=standings(alerts=rules)):
        pass
    api.build(growing.path, tmp_path / "whole", engine="local", alerts=rules)
    shown = [
        Counter(tuple(row[name] for name in SHOWN) for row in pag_graph.alerts(path).to_pylist())
        for path in (store, tmp_path / "whole")
    ]
    assert shown[0] == shown[1]
    assert {rule for rule, *_ in shown[0]} == {"0", "1", "2", "3"}


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("motif:pattern=late_sender:last=20", {"pattern": "late_sender", "last": "20"}),
        (
            "motif:pattern=(a)-[e*2]->(b);!(b)-[]->(a):last=3:where=a.kind != 'x:last=9' and b.kind = 'it''s: a'",
            {
                "pattern": "(a)-[e*2]->(b);!(b)-[]->(a)",
                "last": "3",
                "where": "a.kind != 'x:last=9' and b.kind = 'it''s: a'",
            },
        ),
        ("motif:pattern=wait_chain:last=2:gap-ns=0", {"pattern": "wait_chain", "last": "2", "gap_ns": "0"}),
    ],
)
def test_a_query_is_read_as_it_is_written(text: str, values: dict[str, str]) -> None:
    query = Query.parse(text)
    assert dict(query.values) == values
    assert Query.parse(query.id) == query


@pytest.mark.parametrize(
    ("text", "error", "problem"),
    [
        ("motif:pattern=late_sender", UnsupportedPlanError, "needs last"),
        ("motif:pattern=(a)-[e]->(b); !(b)-[]->(c):last=2", UnsupportedPlanError, "(c) can be any vertex"),
        ("motif:pattern=(a):last=2", UnsupportedPlanError, "(a) can be any vertex"),
        ("motif:pattern=late_sender:last=0", InvalidParameterError, "must be at least 1"),
        ("motif:last=2", InvalidParameterError, "needs the parameter 'pattern'"),
        ("motif:pattern=late_sendr:last=2", InvalidParameterError, "There is no pattern 'late_sendr'"),
        ("motif:pattern=late_sender:lats=2", InvalidParameterError, "has no parameter 'lats'; it has pattern, where"),
        ("motif:pattern=late_sender:last=2:last=3", InvalidParameterError, "more than one value of 'last'"),
        (
            "motif:pattern=late_sender:min-ns=1:last=2:min_ns=2",
            InvalidParameterError,
            "more than one value of 'min_ns'",
        ),
        ("motif:pattern=late_sender:last=2:min-ns=x", InvalidParameterError, "must be a whole number"),
        ("motif:pattern=(a)-[e->(b):last=2", InvalidParameterError, "^"),
        ("motif:pattern=(a)-[e]->(b):columns=a.x", InvalidParameterError, "no column 'a.x'"),
        ("motif:pattern=(a)-[e]->(b):where=e.type = 3", InvalidParameterError, "compared"),
    ],
)
def test_what_cannot_be_kept_up_to_date_is_refused(text: str, error: type[Exception], problem: str) -> None:
    with pytest.raises(error) as caught:
        Query.parse(text)
    assert problem in str(caught.value)


def test_filters_of_rules_speak_of_elements() -> None:
    schema = Query.parse(SLOW.query).schema
    assert {"r.worker", "m.duration_ns", "epoch"} <= set(schema.names)
    with pytest.raises(InvalidParameterError, match="no column 'nothing'"):
        Rule(name="a", query=SLOW.query, where="m.nothing > 1").condition(schema)
    with pytest.raises(InvalidParameterError, match="no column of motif"):
        Rule(name="a", query=SLOW.query, subject=("worker",)).condition(schema)
