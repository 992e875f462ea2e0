"""Standing queries: at every commit, changes add up to the answer made anew."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import pag_graph
from pag_graph import api
from pag_graph.analyses.standing import ANSWERS, Delta, difference, summed
from pag_graph.api.standing import standings
from pag_graph.builder.build import build
from pag_graph.engines.following import Following
from pag_graph.engines.local import LocalEngine
from pag_graph.errors import InvalidParameterError, UnsupportedPlanError
from pag_graph.model.enums import RuleSet
from pag_graph.model.live_tables import LIVE_TABLES
from pag_graph.sinks.delivery.lines import JsonLines
from pag_graph.sinks.delivery.targets import Delivery
from pag_graph.store import check
from pag_graph.store import commit as store_commit
from pag_graph.store.delta import open_store
from pag_graph.store.leftovers import vacuum
from pag_graph.testing.strategies import slice_sizes, small_traces
from pag_graph.testing.traces import draw
from tests.support.growing import GrowingTrace, rounds
from tests.support.skewed_rounds import portions as portions_of
from tests.support.skewed_rounds import skewed_rounds
from tests.support.standing_sums import check_sums
from tests.support.steps import Steps, late_read, portions_of_log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pag_graph.graph.following import Committed
    from pag_graph.testing.traces import SmallTrace

PROVE = os.environ.get("PAG_PROVE") == "1"
OF_EPOCHS = ("critical-path", "k-hops:k=2", "slack", "blame", "skew", "stragglers", "imbalance", "participation")
OTHERS = ("profile", "matrix", "traffic", "waits", "rounds", "metrics", "totals", "degrees:last=2")
LIMITS = "invariants:at-least=1:over=2:least-ns=0:tolerance=0:deviations=0.5:progress-max-ns=8:message-max-ns=5"
MOTIFS = (
    "motif:pattern=late_sender:last=3",
    "motif:pattern=(a)-[e]->(b)-[f]->(c):where=e.duration_ns >= f.duration_ns and f.type != 'waiting':last=2",
    "motif:pattern=(a)-[e]->(b); !(b)-[]->():distinct=true:last=2",
)
QUERIES = (*OF_EPOCHS, *OTHERS, *MOTIFS, "invariants", LIMITS)


# Each example is several builds: to look for a smaller one takes minutes.
@settings(max_examples=1000 if PROVE else 5, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    st.one_of(
        small_traces(max_workers=3),
        small_traces(max_workers=3, skewed=True),
        small_traces(max_workers=3, skewed=True, damaged=True),
    ),
    st.data(),
    slice_sizes(),
)
def test_changes_of_random_logs_add_up(
    tmp_path_factory: pytest.TempPathFactory, trace: SmallTrace, data: st.DataObject, slice_events: int
) -> None:
    parts = data.draw(portions_of_log(replace(trace, complete=True)))
    late = data.draw(st.sets(st.sampled_from(QUERIES), max_size=3))
    place = tmp_path_factory.mktemp("portions")
    asked = tuple(query for query in QUERIES if query not in late)
    for number, part in enumerate(parts):
        # Some are asked for when all is there.
        queries = (*(asked if number == 0 else ()), *(sorted(late) if part.complete else ()))
        written = part.write(place / f"trace-{number}")
        api.build(written, place / "store", engine="local", mode="append", slice_events=slice_events, queries=queries)
        check_sums(place / "store", QUERIES if part.complete else asked)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abc"), st.integers(1, 2)), unique_by=lambda row: row[:2]),
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from("abcdefgh"))),
)
def test_a_difference_is_a_sum(before: list[tuple[int, str, int]], now: list[tuple[int, str]]) -> None:
    gone = pl.DataFrame(before, schema={"epoch": pl.Int64, "row": pl.String, "diff": pl.Int64}, orient="row")
    came = pl.DataFrame(now, schema=ANSWERS, orient="row")
    signed = [gone.with_columns(diff=-pl.col("diff")), came.with_columns(diff=pl.lit(1, pl.Int64))]
    assert difference(gone, came).equals(summed(pl.concat(signed)))


def test_changes_add_up_to_the_answer_at_every_commit(tmp_path: Path) -> None:
    whole = rounds(8)
    answered = []
    for epochs in (1, 3, 5, 8):
        part = whole.until_epoch(epochs - 1)
        grown = part if epochs == 8 else replace(part, complete=False)
        trace = grown.write(tmp_path / f"{epochs}")
        # They are registered once.
        queries = QUERIES if epochs == 1 else ()
        info = api.build(trace, tmp_path / "store", mode="append", engine="local", queries=queries).store
        assert info.live is not None
        answered.append(info.live["answered"])
        check_sums(tmp_path / "store", QUERIES)
    assert answered == [-1, 1, 3, 8]
    path = pag_graph.changes(tmp_path / "store", "critical-path")
    assert set(path["commit"].to_pylist()) == {1, 2, 3}
    assert path.num_rows == sum(path["diff"].to_pylist())


def test_records_that_are_not_told_once_are_unknown_in_the_totals(tmp_path: Path) -> None:
    told = " *2", " *3", ""
    sends = " | ".join(f"{100 * n + 10} send 3>1 #{n}{records} | {100 * n + 90} end" for n, records in enumerate(told))
    reads = " | ".join(
        f"{100 * n + 20} start 1 | {100 * n + 30} recv 3<0 #{n}{records} | {100 * n + 40} stop 1 | {100 * n + 90} end"
        for n, records in enumerate(told)
    )
    whole = draw(sends, reads)
    for epochs in (2, 3):
        part = replace(whole.until_epoch(epochs - 1), complete=False) if epochs < 3 else whole
        trace = part.write(tmp_path / f"{epochs}")
        api.build(trace, tmp_path / "store", mode="append", engine="local", queries=("metrics", "totals"))
        check_sums(tmp_path / "store", ("metrics", "totals"))

    def changes(query: str, kind: str) -> list[tuple[int, int | None]]:
        rows = pl.DataFrame(pl.from_arrow(pag_graph.changes(tmp_path / "store", query)))
        return rows.filter(pl.col("to_worker") == 1, pl.col("type") == kind).select("diff", "records").rows()

    assert changes("metrics", "data_message") == [(1, 2), (1, 3), (1, None)]
    assert changes("metrics", "processing") == [(1, 2), (1, 3), (1, None)]
    # One message does not say how many it holds; of activities those count that do.
    assert changes("totals", "data_message") == [(1, 2), (-1, 2), (1, None)]
    assert changes("totals", "processing") == [(1, 2), (-1, 2), (1, 5)]


def test_a_delayed_read_takes_an_answer_back(tmp_path: Path) -> None:
    # A second after an epoch has ended its answer is given, though a message is still to be read.
    whole = late_read(8)
    for epochs in (5, 8):
        part = whole.until_epoch(epochs - 1) if epochs < 8 else whole
        trace = replace(part, complete=epochs == 8).write(tmp_path / f"{epochs}")
        queries = ("traffic", "metrics", "matrix")
        api.build(trace, tmp_path / "store", mode="append", engine="local", queries=queries)
        check_sums(tmp_path / "store", queries)
    rows = pl.DataFrame(pl.from_arrow(pag_graph.changes(tmp_path / "store", "traffic", since=0)))
    back = rows.filter(pl.col("epoch") == 1, pl.col("channel") == 5)
    assert back.select("diff", "messages").rows() == [(-1, 1), (1, 2)]
    # The epoch that the message carries is that of its reader.
    assert 1 not in pag_graph.changes(tmp_path / "store", "metrics", since=0)["epoch"].to_pylist()


def test_a_follower_keeps_queries_from_start_to_start(tmp_path: Path) -> None:
    growing = GrowingTrace(skewed_rounds(12, {4, 5}), tmp_path / "trace")
    store, file = tmp_path / "store", tmp_path / "out.jsonl"

    def follow(queries: tuple[str, ...], *steps: Callable[[], object]) -> list[Committed]:
        run = Following(
            growing.path,
            store,
            commit_every_s=0,
            stop=Steps(*steps),
            derive=standings(queries),
            observers=[Delivery([JsonLines(store, file)])],
        )
        commits = []
        for commit in run.commits():
            check_sums(store, (open_store(store).live or {})["queries"])
            commits.append(commit)
        return commits

    steps = [partial(growing.write_until, epoch) for epoch in (2, 5, 8)]
    assert len(follow(("metrics", "invariants", "degrees:last=3"), *steps)) > 1
    # Who asks for more gets it at once; what was asked for before goes on.
    assert [(commit.closed, commit.answered) for commit in follow(("critical-path", "traffic"))] == [((), ())]
    check_sums(store, ("metrics", "invariants", "degrees:last=3", "critical-path", "traffic"))
    assert len(file.read_bytes().splitlines()) == open_store(store).scan("changes").collect().height
    assert follow((), growing.finish)[-1].complete
    info = open_store(store)
    assert info.live is not None
    assert info.live["queries"] == ["metrics", "invariants", "degrees:last=3", "critical-path", "traffic"]
    rows = info.scan("changes").collect().height
    assert len(file.read_bytes().splitlines()) == rows > 0


def test_a_commit_that_fails_leaves_nothing_and_the_next_one_says_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, queries = tmp_path / "store", ("metrics", "traffic", "invariants", "totals")
    parts = portions_of(skewed_rounds(12, {4, 5}), [3, 8])
    for number, part in enumerate(parts):
        trace = part.write(tmp_path / f"trace-{number}")
        append = partial(api.build, trace, store, engine="local", mode="append", queries=queries)
        if number:
            # Killed when the tables are there, and before the last one pins them.
            with monkeypatch.context() as patched:
                patched.setattr(store_commit, "_publish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
                before = pag_graph.changes(store, "metrics").num_rows
                with pytest.raises(KeyboardInterrupt):
                    append()
            assert pag_graph.changes(store, "metrics").num_rows == before
        append()
        check_sums(store, queries)
    vacuum(store)
    check_sums(store, queries)
    assert not check.check_store(open_store(store)).damaged
    rows = open_store(store).scan("changes").select("commit", "ordinal").collect()
    assert rows.unique().height == rows.height > 0


def test_who_does_not_know_of_queries_does_not_leave_them_behind(tmp_path: Path) -> None:
    first, second, _ = portions_of(skewed_rounds(6, ()), [3, 5])
    api.build(first.write(tmp_path / "1"), tmp_path / "store", engine="local", queries=["metrics"])
    trace = second.write(tmp_path / "2")
    with pytest.raises(UnsupportedPlanError, match="has standing queries"):
        build(trace, tmp_path / "store", engine=LocalEngine(), mode="append")
    build(trace, tmp_path / "store", engine=LocalEngine(), mode="replace")
    # A store without them is as it was before there were any.
    info = open_store(tmp_path / "store")
    assert info.live is None
    assert not set(info.versions) & set(LIVE_TABLES)
    with pytest.raises(InvalidParameterError, match="it has none"):
        pag_graph.changes(tmp_path / "store", "metrics")


def test_runs_whose_workers_may_be_anything_refuse_comparisons(tmp_path: Path) -> None:
    trace = replace(skewed_rounds(2, ()), rules=RuleSet.STATED).write(tmp_path / "trace")
    with pytest.raises(UnsupportedPlanError, match="only the whole run shows"):
        api.build(trace, tmp_path / "store", engine="local", queries=["skew"])
    assert not (tmp_path / "store").exists()


def test_a_follower_reads_no_epochs_of_long_ago(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    growing, store = GrowingTrace(rounds(60), tmp_path / "trace"), tmp_path / "store"
    deltas: list[Delta] = []
    between = Delta.between

    def noted(*arguments: Any) -> Delta:
        deltas.append(between(*arguments))
        return deltas[-1]

    monkeypatch.setattr(Delta, "between", noted)
    queries = ("metrics", "critical-path", "totals", "degrees:last=3")
    steps = Steps(*(partial(growing.write_until, epoch) for epoch in range(4, 60, 5)), growing.finish)
    run = Following(growing.path, store, commit_every_s=0, stop=steps, derive=standings(queries))
    for _ in run.commits():
        check_sums(store, queries)
    assert len(deltas) > 10
    # The whole table, which grows with the run, was read by none of the later commits.
    late = [delta.state for delta in deltas[5:]]
    assert all(state.whole is not state and "epochs" not in vars(state.whole) for state in late)
