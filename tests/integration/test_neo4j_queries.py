"""The Cypher library on a real server: it agrees with the engine, shows what its headers show, starts at indexes."""

from __future__ import annotations

import json
import math
import random
import shutil
import statistics
from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pag_graph import api
from pag_graph.analyses import find_analysis
from pag_graph.analyses.critical_path import critical_path
from pag_graph.analyses.expressions import inside_ns, local_inside, worker_of
from pag_graph.analyses.k_hops import KHopsParameters
from pag_graph.cli.demo import SAMPLES
from pag_graph.cypher import Over, load_query, queries_for_people
from pag_graph.errors import InvalidParameterError
from pag_graph.model.enums import LOCAL_TYPES
from pag_graph.model.ids import POSITION_BITS
from pag_graph.sinks.neo4j import loader
from pag_graph.sinks.neo4j.detail import Detail
from pag_graph.sinks.neo4j.query import PartialAnswerWarning, answer_query, complete, run_query
from pag_graph.testing.traces import draw
from tests.integration.conftest import LAST_EPOCHS, PROVE, keep_epochs
from tests.support.query_examples import check_example
from tests.support.sampling import draw_some

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import neo4j

    from pag_graph.graph.run import Run
    from pag_graph.graph.snapshot import Snapshot

imbalance = find_analysis("imbalance")
k_hops = find_analysis("k-hops")
metrics = find_analysis("metrics")
stragglers = find_analysis("stragglers")
traffic = find_analysis("traffic")
waits = find_analysis("waits")

pytestmark = pytest.mark.neo4j

BUNDLED = ("skewed", "bfs", "triangles", "ground_truth")
LOCAL = [str(kind) for kind in LOCAL_TYPES]
NO_WORK = ["waiting", "idle", "spinning", "input_wait", "unknown"]
QUERIES = {query.name: query for query in queries_for_people()}
# The Cypher twins of named motifs: what they find is compared with the motifs' own answers elsewhere.
TWINS = {
    f"patterns/{name}"
    for name in (
        "wait_ended_by_data",
        "wait_chain",
        "fan_in",
        "ping_pong",
        "late_sender",
        "late_receiver",
        "message_burst",
        "idle_beside_backlog",
    )
}
DRAWN = {name for name in QUERIES if name.startswith("browser/")}
# They ask about all runs, and are watched elsewhere.
ACROSS = {name for name, query in QUERIES.items() if "run" not in query.params and name.startswith("runs/")}
# Its example is of a trace that is not loaded with the others; test_neo4j_answers.py looks at it.
RESCALINGS = "analyses/rescalings"
# Their examples count epochs of whole traces, or ask about a late one, and not all of each is loaded.
OF_WHOLE_RUNS = (
    set()
    if PROVE
    else ACROSS
    | {
        name
        for name, query in QUERIES.items()
        if query.example
        and query.example.sample in LAST_EPOCHS
        and int(query.example.parameters.get("epoch", 10**9)) > LAST_EPOCHS[query.example.sample]
    }
)
# A trace of many epochs that are all loaded.
LONG = "bfs" if PROVE else "triangles"
ROOT_CAUSES = sorted(name for name in QUERIES if name.startswith("root_cause/"))


def load(run: Run, driver: neo4j.Driver, **options: Any) -> None:
    loader.load_run(run, driver, options=loader.LoadOptions(detail=Detail.FULL), **options)


@pytest.fixture
def runs(bundled_runs: dict[str, Run]) -> dict[str, Run]:
    return bundled_runs


@pytest.fixture
def driver(bundled_driver: neo4j.Driver) -> neo4j.Driver:
    return bundled_driver


@pytest.fixture
def alone(neo4j_driver: neo4j.Driver) -> neo4j.Driver:
    """Give a test an empty database; tests that read the bundled traces come before."""
    return neo4j_driver


def ids(run: Run) -> str:
    return str(run.info.run["run_id"])


def ask(driver: neo4j.Driver, run: Run, name: str, **values: Any) -> list[dict[str, Any]]:
    query = QUERIES[name]
    return answer_query(driver, query, complete(driver, query, {"run": ids(run), **values})).rows


def snapshots(run: Run) -> Iterator[tuple[int, Snapshot]]:
    for epoch in run.epochs["epoch"].to_list():
        yield epoch, run.snapshot(run.window(epoch=epoch))


def rounds_of(run: Run) -> list[int]:
    return run.epochs.filter(pl.col("role") == "round").sort("epoch")["epoch"].to_list()


def columns(rows: list[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    return [{name: row[name] for name in names} for row in rows]


def names_of(run: Run) -> dict[int | None, str]:
    return dict(run.operators.select("operator", "name").iter_rows())


def path_steps(snapshot: Snapshot) -> pl.DataFrame:
    return pl.DataFrame(pl.from_arrow(critical_path(snapshot).steps))


def activities(snapshot: Snapshot) -> pl.DataFrame:
    """Return local edges with the worker and the time inside the window."""
    return local_inside(snapshot).filter(pl.col("inside_ns") > 0)


def waited(snapshot: Snapshot) -> pl.DataFrame:
    """Return the window's waits with the message that ended each, longest first."""
    window = snapshot.window
    in_turn = snapshot.enders.sort("start_ns", "src", descending=[True, False])
    enders = in_turn.unique("dst", keep="first", maintain_order=True).select(
        "dst", "channel", "src", sent_ns="start_ns", from_worker=worker_of("src"), message="type"
    )
    return (
        snapshot.local.filter(pl.col("type") == "waiting", pl.col("start_ns") < window.end_ns)
        .select("start_ns", "end_ns", "duration_ns", "dst", worker=worker_of("dst"), waited_ns=inside_ns(window))
        .join(enders, on="dst", how="left")
    )


# ------------------------------------------------------------------ the same answers as the engine


@pytest.mark.sampled(2)
@pytest.mark.parametrize("sample", BUNDLED)
def test_engine_and_cypher_agree_in_every_window(driver: neo4j.Driver, runs: dict[str, Run], sample: str) -> None:
    run = runs[sample]
    for epoch, snapshot in snapshots(run):
        steps = critical_path(snapshot).steps.to_pylist()
        same = ("step", "type", "worker", "start_ns", "duration_ns", "operator")
        expected = [{"src": row["edge_src"], "dst": row["edge_dst"], **{n: row[n] for n in same}} for row in steps]
        assert ask(driver, run, "analyses/critical_path", epoch=epoch) == expected
        k = 2 + epoch % 4
        hops = k_hops(snapshot, KHopsParameters(k=k)).to_pylist()
        assert hop_rows(ask(driver, run, "analyses/k_hops", epoch=epoch, k=k)) == hop_rows(hops)
        found = ask(driver, run, "analyses/metrics", epoch=epoch)
        assert all(row.pop("missing") == 0 for row in found)
        assert found == metrics(snapshot).to_pylist()


def hop_rows(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted(tuple(-1 if value is None else value for value in row.values()) for row in rows)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("sample", BUNDLED)
def test_waits_messages_and_paths_agree_with_the_engine(
    driver: neo4j.Driver, runs: dict[str, Run], sample: str
) -> None:
    run = runs[sample]
    for epoch, snapshot in snapshots(run):
        names = ("worker", "from_worker", "type", "channel", "waits", "waiting_ns")
        expected = columns(waits(snapshot).to_pylist(), *names)
        assert ask(driver, run, "patterns/who_waits_for_whom", epoch=epoch) == expected
        sent = [row for row in traffic(snapshot).to_pylist() if row["type"] == "data_message"]
        names = ("from_worker", "to_worker", "channel", "messages", "records")
        assert columns(ask(driver, run, "patterns/data_messages", epoch=epoch), *names) == columns(sent, *names)
        for by in ("type", "operator", "worker", "pair"):
            parts = ask(driver, run, "analyses/path_profile", epoch=epoch, by=by)
            assert sum(row["path_ns"] for row in parts) == snapshot.window.span_ns
        by_type = {
            row["key"]: row["path_ns"] for row in ask(driver, run, "analyses/path_profile", epoch=epoch, by="type")
        }
        assert {key: ns for key, ns in by_type.items() if ns} == {
            key: ns for key, ns in critical_path(snapshot).by_type.items() if ns
        }
        types = {row["type"]: row for row in ask(driver, run, "analyses/critical_participation", epoch=epoch)}
        for row in imbalance(snapshot).to_pylist():
            if row["path_ns"] or row["mean_ns"]:
                assert types[row["type"]]["path_ns"] == row["path_ns"]
                assert types[row["type"]]["imbalance_ns"] == pytest.approx(row["imbalance_ns"], abs=0.06)
        assert sum(row["imbalance_ns"] for row in types.values()) == pytest.approx(0, abs=0.06 * len(types))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("sample", BUNDLED)
def test_states_are_those_of_the_store(driver: neo4j.Driver, runs: dict[str, Run], sample: str) -> None:
    run = runs[sample]
    local = run.scan("edges").filter(pl.col("type").is_in(LOCAL)).collect()
    local = local.with_columns(worker=worker_of("src"), end_ns=pl.col("start_ns") + pl.col("duration_ns"))
    choose = random.Random(sample)
    names = names_of(run)
    for at_ns in [0, run.end_ns - 1, *(choose.randrange(run.end_ns) for _ in range(500 if PROVE else 25))]:
        found = ask(driver, run, "analyses/state_at", at_ns=at_ns)
        now = local.filter(pl.col("start_ns") <= at_ns, pl.col("end_ns") > at_ns).sort("worker")
        assert columns(found, "worker", "type", "operator", "since_ns", "until_ns", "event") == [
            {
                "worker": row["worker"],
                "type": row["type"],
                "operator": names.get(row["operator"]),
                "since_ns": row["start_ns"],
                "until_ns": row["end_ns"],
                "event": row["src"],
            }
            for row in now.iter_rows(named=True)
        ]


# ------------------------------------------------------------------ root causes, computed once more


@pytest.mark.sampled(2)
@pytest.mark.parametrize("sample", BUNDLED)
def test_who_held_everyone_up_and_why(driver: neo4j.Driver, runs: dict[str, Run], sample: str) -> None:
    held_up_as_stragglers_say(driver, runs[sample])


def held_up_as_stragglers_say(driver: neo4j.Driver, run: Run) -> None:
    for epoch, snapshot in snapshots(run):
        held = {row["worker"]: row for row in ask(driver, run, "root_cause/held_up_by", epoch=epoch)}
        local = path_steps(snapshot).filter(pl.col("type").is_in(LOCAL))
        on_path = dict(local.group_by("worker").agg(pl.col("duration_ns").sum()).iter_rows())
        assert {w: row["path_ns"] for w, row in held.items() if row["path_ns"]} == {
            w: n for w, n in on_path.items() if n
        }
        ended: Counter[int] = Counter()
        for row in waits(snapshot).to_pylist():
            if row["from_worker"] is not None:
                ended[row["from_worker"]] += row["waiting_ns"]
        assert {w: row["others_waited_ns"] for w, row in held.items() if row["others_waited_ns"]} == +ended
        known = {row["worker"]: row for row in stragglers(snapshot).to_pylist()}
        judged = {row["worker"]: row for row in ask(driver, run, "root_cause/skew_or_slow", epoch=epoch)}
        assert judged.keys() == known.keys() == held.keys()
        for worker, row in judged.items():
            assert columns([row], "work_ns", "waiting_ns", "records") == columns(
                [known[worker]], "work_ns", "waiting_ns", "records"
            )
            assert held[worker]["work_ns"] == row["work_ns"]
            ratio, expected = row["work_ratio"], known[worker]["work_ratio"]
            assert (ratio is None) == (expected is None)
            assert ratio is None or ratio == pytest.approx(expected, abs=0.001)
            # The engine also wants waiting to be charged to the worker; here a message of it has to have ended a wait.
            if row["verdict"] and known[worker]["cause"]:
                assert row["verdict"] == known[worker]["cause"]
            if not row["verdict"]:
                assert not known[worker]["straggler"] or not row["others_waited_ns"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("sample", BUNDLED)
def test_what_took_longer_than_before(driver: neo4j.Driver, runs: dict[str, Run], sample: str) -> None:
    run = runs[sample]
    work = ["processing", "serialization", "deserialization", "buffer", "io", "gc", "application"]
    times: dict[int, dict[int, int]] = {}
    paths: dict[int, Counter[tuple[Any, ...]]] = {}
    for epoch, snapshot in snapshots(run):
        busy = activities(snapshot).filter(pl.col("type").is_in(work), pl.col("operator").is_not_null())
        times[epoch] = dict(busy.group_by("operator").agg(pl.col("inside_ns").sum()).iter_rows())
        paths[epoch] = Counter()
        for row in path_steps(snapshot).iter_rows(named=True):
            paths[epoch][row["type"], row["operator"], row["worker"], row["to_worker"]] += row["duration_ns"]
    rounds = rounds_of(run)
    for n, epoch in enumerate(rounds):
        before = rounds[max(0, n - 3) : n]
        grew = ask(driver, run, "root_cause/operator_grew", epoch=epoch, rounds=3, limit=1000)
        operators = {operator for each in [epoch, *before] for operator, ns in times[each].items() if ns}
        assert {row["operator"] for row in grew if row["now_ns"] or row["before_ns"]} == operators
        for row in grew:
            assert row["now_ns"] == times[epoch].get(row["operator"], 0)
            assert row["rounds"] == len(before)
            if before:
                mean = sum(times[each].get(row["operator"], 0) for each in before) / len(before)
                assert row["before_ns"] == pytest.approx(mean, abs=0.51)
        new = ask(driver, run, "epochs/new_on_path", epoch=epoch, rounds=3)
        old = {key for each in before for key in paths[each]}
        assert {(r["type"], r["operator"], r["worker"], r["to_worker"]): r["path_ns"] for r in new} == {
            key: ns for key, ns in paths[epoch].items() if key not in old
        }
        if n:
            changed = ask(driver, run, "epochs/difference", epoch=epoch)
            spans = [run.window(epoch=each).span_ns for each in (rounds[n - 1], epoch)]
            assert sum(row["difference_ns"] for row in changed) == spans[1] - spans[0]
            assert sum(row["after_ns"] for row in changed) == spans[1]
            assert changed == ask(driver, run, "epochs/difference", epoch=epoch, against=rounds[n - 1])
    on_all = ask(driver, run, "patterns/on_every_path", share=0.5)
    seen: dict[int, dict[int, int]] = defaultdict(dict)
    for epoch in rounds:
        for (_, operator, *_), ns in paths[epoch].items():
            if operator is not None:
                seen[operator][epoch] = seen[operator].get(epoch, 0) + ns
    expected = {operator: by for operator, by in seen.items() if len(by) >= 0.5 * len(rounds)}
    assert {row["operator"]: row["path_ns"] for row in on_all} == {o: sum(by.values()) for o, by in expected.items()}
    for row in on_all:
        by = expected[row["operator"]]
        assert (row["rounds"], row["least_ns"], row["most_ns"]) == (len(by), min(by.values()), max(by.values()))
        assert row["most_epoch"] == min(epoch for epoch, ns in by.items() if ns == row["most_ns"])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("sample", BUNDLED)
def test_rounds_are_judged_by_those_before(driver: neo4j.Driver, runs: dict[str, Run], sample: str) -> None:
    run = runs[sample]
    spans = {epoch: run.window(epoch=epoch).span_ns for epoch in rounds_of(run)}
    order = list(spans)
    trend = ask(driver, run, "epochs/trend")
    assert [(row["epoch"], row["span_ns"]) for row in trend] == list(spans.items())
    listed = ask(driver, run, "analyses/epochs")
    assert [row["epoch"] for row in listed] == run.epochs["epoch"].to_list()
    for factor in (1.05, 1.2, 1.5):
        bad = []
        for n, epoch in enumerate(order):
            if n >= 3:
                median = sorted(spans[each] for each in order[:n])[math.ceil(n / 2) - 1]
                if spans[epoch] > factor * median:
                    bad.append((epoch, median))
        found = ask(driver, run, "root_cause/first_bad_epoch", factor=factor)
        assert [(row["epoch"], row["median_ns"]) for row in found] == bad[:1]
        worse = ask(driver, run, "epochs/regressions", factor=factor, rounds=3, limit=1000)
        assert {row["epoch"] for row in worse} == {
            epoch
            for n, epoch in enumerate(order)
            if n and spans[epoch] > factor * statistics.mean(spans[each] for each in order[max(0, n - 3) : n])
        }


@pytest.mark.sampled(2)
@pytest.mark.parametrize("sample", BUNDLED)
def test_waits_have_their_causes(driver: neo4j.Driver, runs: dict[str, Run], sample: str) -> None:
    run = runs[sample]
    names = names_of(run)
    for epoch, snapshot in snapshots(run):
        window = snapshot.window
        sleeping = waited(snapshot)
        slow = ask(driver, run, "root_cause/slowest_messages", epoch=epoch, limit=100_000)
        known = sleeping.filter(pl.col("from_worker").is_not_null())
        keys = ("from_worker", "to_worker", "type", "channel", "sent_ns", "waited_ns")
        assert Counter(tuple(row[key] for key in keys) for row in slow) == Counter(
            known.select("from_worker", "worker", "message", "channel", "sent_ns", "waited_ns").iter_rows()
        )
        assert [row["waited_ns"] for row in slow] == sorted((row["waited_ns"] for row in slow), reverse=True)
        fan_in = ask(driver, run, "patterns/fan_in_waits", epoch=epoch)
        for row in fan_in:
            mine = sleeping.filter(pl.col("worker") == row["worker"])
            assert row["waits"] == mine.height
            assert row["waiting_ns"] == mine["waited_ns"].sum()
            assert row["longest_ns"] == mine["waited_ns"].max()
            assert set(row["from_workers"]) == set(mine["from_worker"].drop_nulls().to_list())
        assert {row["worker"] for row in fan_in} == set(sleeping["worker"].to_list())
        idle = ask(driver, run, "root_cause/longest_idle", epoch=epoch, limit=100_000)
        still = activities(snapshot).filter(pl.col("type").is_in(["waiting", "input_wait", "idle", "unknown"]))
        assert Counter((r["worker"], r["type"], r["duration_ns"]) for r in idle if r["duration_ns"]) == Counter(
            still.select("worker", "type", "inside_ns").iter_rows()
        )
        delays = ask(driver, run, "root_cause/channel_delay", epoch=epoch, limit=100_000)
        by_channel: Counter[tuple[Any, ...]] = Counter()
        for row in known.iter_rows(named=True):
            by_channel[row["channel"], row["message"]] += row["waited_ns"]
        assert {(r["channel"], r["type"]): r["waited_ns"] for r in delays if r["waited_ns"]} == +by_channel
        sent: Counter[tuple[Any, ...]] = Counter()
        for row in traffic(snapshot).to_pylist():
            sent[row["channel"], row["type"]] += row["messages"]
        assert {(r["channel"], r["type"]): r["messages"] for r in delays if r["messages"]} == +sent
        bound = ask(driver, run, "root_cause/input_bound", epoch=epoch)[0]
        by_type = dict(activities(snapshot).group_by("type").agg(pl.col("inside_ns").sum()).iter_rows())
        path = critical_path(snapshot).by_type
        assert bound["input_wait_ns"] == by_type.get("input_wait", 0)
        assert bound["idle_ns"] == by_type.get("idle", 0)
        assert bound["waiting_ns"] == by_type.get("waiting", 0)
        assert bound["work_ns"] == sum(ns for kind, ns in by_type.items() if kind not in NO_WORK)
        assert bound["path_input_ns"] == path.get("input_wait", 0) + path.get("idle", 0)
        for worker in run.workers:
            ran = ask(driver, run, "root_cause/ran_meanwhile", epoch=epoch, worker=worker)
            mine = sleeping.filter(pl.col("worker") == worker, pl.col("waited_ns") > 0)
            sums: Counter[int] = Counter()
            for row in ran:
                sums[row["worker"]] += row["ran_ns"]
            assert all(ns == mine["waited_ns"].sum() for ns in sums.values())
            overlap: Counter[tuple[Any, ...]] = Counter()
            others = activities(snapshot).filter(pl.col("worker") != worker)
            for wait in mine.iter_rows(named=True):
                start, end = max(wait["start_ns"], window.start_ns), min(wait["end_ns"], window.end_ns)
                both = others.filter(pl.col("start_ns") < end, pl.col("end_ns") > start)
                for row in both.iter_rows(named=True):
                    ns = min(row["end_ns"], end) - max(row["start_ns"], start)
                    overlap[row["worker"], row["type"], names.get(row["operator"])] += ns
            by_name: Counter[tuple[Any, ...]] = Counter()
            for row in ran:
                by_name[row["worker"], row["type"], row["operator"]] += row["ran_ns"]
            assert by_name == +overlap


@pytest.mark.sampled(2)
@pytest.mark.parametrize("sample", BUNDLED)
def test_what_a_worker_waited_for(driver: neo4j.Driver, runs: dict[str, Run], sample: str) -> None:
    run = runs[sample]
    chosen = random.Random(sample)
    every = [row for _, snapshot in snapshots(run) for row in waited(snapshot).iter_rows(named=True)]
    unique = {(row["src"], row["dst"]): row for row in every if row["duration_ns"] > 1}
    for row in chosen.sample(list(unique.values()), min(len(unique), 200 if PROVE else 15)):
        at_ns = row["start_ns"] + chosen.randrange(row["duration_ns"])
        found = ask(driver, run, "root_cause/waited_for", worker=row["worker"], at_ns=at_ns)
        assert found
        for each in found:
            assert (each["wait_start_ns"], each["wait_end_ns"]) == (row["start_ns"], row["end_ns"])
            assert (each["from_worker"], each["message"], each["channel"]) == (
                row["from_worker"],
                row["message"],
                row["channel"],
            )
        told = sum(each["doing_ns"] or 0 for each in found)
        assert told == (max(0, row["sent_ns"] - row["start_ns"]) if row["from_worker"] is not None else 0)
        assert ask(driver, run, "root_cause/waited_for", worker=row["worker"], at_ns=row["end_ns"]) == []


# ------------------------------------------------------------------ patterns and provenance, by brute force


@pytest.mark.sampled(2)
@pytest.mark.parametrize("sample", BUNDLED)
def test_messages_in_turn_and_in_bursts(driver: neo4j.Driver, runs: dict[str, Run], sample: str) -> None:
    run = runs[sample]
    for epoch, snapshot in snapshots(run):
        window = snapshot.window
        sent = snapshot.messages.filter(
            pl.col("start_ns") > window.start_ns, pl.col("start_ns") <= window.end_ns, pl.col("type") != "spawn"
        ).with_columns(a=worker_of("src"), b=worker_of("dst"))
        turns: dict[tuple[int, int, int], list[int]] = defaultdict(list)
        for row in sent.filter(pl.col("type") == "progress_message").sort("start_ns", "a").iter_rows(named=True):
            turns[min(row["a"], row["b"]), max(row["a"], row["b"]), row["channel"]].append(row["a"])
        expected = {key: sum(x != y for x, y in pairwise(senders)) for key, senders in turns.items()}
        found = ask(driver, run, "patterns/progress_ping_pong", epoch=epoch, least=1)
        assert {(r["worker"], r["other"], r["channel"]): r["turns"] for r in found} == {
            key: count for key, count in expected.items() if count
        }
        bursts = []
        for key, rows in sent.sort("start_ns").group_by("a", "b", "type", maintain_order=True):
            times = rows["start_ns"].to_list()
            cuts = [n for n in range(len(times)) if n == 0 or times[n] - times[n - 1] > 50_000] + [len(times)]
            bursts += [(*key, times[i], times[j - 1], j - i) for i, j in pairwise(cuts) if j - i >= 2]
        found = ask(driver, run, "patterns/bursts", epoch=epoch, gap_ns=50_000, least=2, limit=100_000)
        names = ("from_worker", "to_worker", "type", "start_ns", "end_ns", "messages")
        assert sorted(tuple(row[name] for name in names) for row in found) == sorted(bursts)


def reachable(edges: pl.DataFrame, start: int, *, forward: bool, inside: pl.Expr) -> set[int]:
    """Return what leads to a vertex, or what it leads to, by the plainest search there is."""
    near, far = ("src", "dst") if forward else ("dst", "src")
    following: dict[int, list[int]] = defaultdict(list)
    for a, b in edges.filter(inside).select(near, far).iter_rows():
        following[a].append(b)
    seen: set[int] = set()
    waiting = [start]
    while waiting:
        for each in following[waiting.pop()]:
            if each not in seen:
                seen.add(each)
                waiting.append(each)
    return seen


@pytest.mark.sampled(2)
@pytest.mark.parametrize("sample", BUNDLED)
def test_causes_and_effects_are_all_found_once(driver: neo4j.Driver, runs: dict[str, Run], sample: str) -> None:
    run = runs[sample]
    edges = run.scan("edges").collect().with_columns(end_ns=pl.col("start_ns") + pl.col("duration_ns"))
    vertices = run.scan("vertices").collect()
    times = dict(vertices.select("id", "t_ns").iter_rows())
    labels = dict(vertices.select("id", "epoch").iter_rows())
    rounds = rounds_of(run)
    for epoch in random.Random(sample).sample(rounds, len(rounds) if PROVE else 2):
        window = run.window(epoch=epoch)
        inside = vertices.filter(pl.col("t_ns") > window.start_ns, pl.col("t_ns") <= window.end_ns)
        for event in inside["id"].sample(3, seed=epoch).to_list():
            causes = reachable(edges, event, forward=False, inside=pl.col("start_ns") > window.start_ns)
            found = ask(driver, run, "provenance/led_to", event=event, limit=10**9)
            assert Counter(row["event"] for row in found) == Counter(causes)
            effects = reachable(edges, event, forward=True, inside=pl.col("end_ns") <= window.end_ns)
            found = ask(driver, run, "provenance/delayed", event=event, limit=10**9)
            assert Counter(row["event"] for row in found) == Counter(effects)
            assert [row["t_ns"] for row in found] == sorted(times[each] for each in effects)
            earlier = run.epochs.filter(pl.col("end_ns") == window.start_ns)["start_ns"]
            back = earlier[0] if len(earlier) else window.start_ns
            causes = reachable(edges, event, forward=False, inside=pl.col("start_ns") > back)
            found = ask(driver, run, "provenance/input_round", event=event, rounds=1)
            assert {(r["epoch"], r["worker"]): r["events"] for r in found} == Counter(
                (labels[each], each >> POSITION_BITS) for each in causes
            )
        snapshot = run.snapshot(window)
        for worker in run.workers:
            cone = ask(driver, run, "patterns/cone_of_influence", epoch=epoch, worker=worker)
            mine = activities(snapshot).filter(pl.col("worker") == worker, pl.col("type") != "waiting")
            longest = mine.sort("inside_ns", "start_ns", descending=[True, False]).row(0, named=True)
            reached = {longest["dst"]} | reachable(
                edges, longest["dst"], forward=True, inside=pl.col("end_ns") <= window.end_ns
            )
            assert {row["worker"]: row["events"] for row in cone} == Counter(each >> POSITION_BITS for each in reached)
            for row in cone:
                assert row["activity_ns"] == longest["inside_ns"]
                assert row["first_ns"] == min(times[e] for e in reached if e >> POSITION_BITS == row["worker"])


# ------------------------------------------------------------------ what the headers promise


@pytest.mark.parametrize("name", sorted(QUERIES.keys() - TWINS - DRAWN - OF_WHOLE_RUNS - {RESCALINGS}))
def test_examples_are_true(driver: neo4j.Driver, runs: dict[str, Run], name: str) -> None:
    query = QUERIES[name]
    example = query.example
    assert example is not None, f"{name} has no example"
    run = runs[example.sample]
    values = complete(
        driver, query, {"run": ids(run), **example.parameters} if "run" in query.params else dict(example.parameters)
    )
    given = {key: query.params[key].convert(value) for key, value in values.items()}
    answer = answer_query(driver, query, given)
    check_example(query, answer)


@pytest.mark.parametrize("name", sorted(DRAWN))
def test_what_is_drawn_is_a_graph(driver: neo4j.Driver, runs: dict[str, Run], name: str) -> None:
    import neo4j.graph

    query = QUERIES[name]
    values = {"limit": 5} | complete(driver, query, {"run": ids(runs["skewed"])})
    given = {key: values.get(key, parameter.default) for key, parameter in query.params.items()}
    result = driver.execute_query(query.text, given, routing_="r")
    assert result.records
    drawn = {
        type(each)
        for row in result.records
        for value in row.values()
        for each in (value if isinstance(value, list) else [value])
        if value is not None
    }
    assert any(issubclass(kind, neo4j.graph.Node) for kind in drawn)
    assert any(issubclass(kind, neo4j.graph.Relationship) for kind in drawn)


def operators_of(plan: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield plan["operatorType"].split("@")[0], str(plan.get("args", {}).get("Details", ""))
    for child in plan.get("children", ()):
        yield from operators_of(child)


def sensible(query: Any, run: Run) -> dict[str, Any]:
    """Return values for the parameters that have no default."""
    window = run.slowest()
    return {
        name: {"worker": 1, "at_ns": (window.start_ns + window.end_ns) // 2}[name]
        for name, each in query.params.items()
        if each.required and name not in {"run", "epoch"}
    }


@pytest.mark.sampled(30)
@pytest.mark.parametrize("name", sorted(QUERIES.keys() - TWINS - ACROSS))
def test_queries_start_at_an_index(driver: neo4j.Driver, runs: dict[str, Run], name: str) -> None:
    query, run = QUERIES[name], runs["bfs"]
    values = complete(driver, query, {"run": ids(run), **sensible(query, run)})
    plan = answer_query(driver, query, values, plan="profile").plan
    assert plan is not None
    used = list(operators_of(plan))
    scans = [step for step in used if "Scan" in step[0] and "IndexScan" not in step[0]]
    assert not scans, "every node of a kind is looked at"
    if name in ROOT_CAUSES:
        assert any("Seek" in step for step, _ in used)


# Accesses per row of what a query looks at: events and activities of its epochs, or their segments where waits are
# enough for it. Queries may touch a row more than once; they may not touch what lies elsewhere.
ACCESSES = 30


def accesses(plan: Mapping[str, Any]) -> int:
    return int(plan.get("args", {}).get("DbHits", 0)) + sum(accesses(child) for child in plan.get("children", ()))


@pytest.mark.sampled(30)
@pytest.mark.parametrize("name", sorted(QUERIES.keys() - ACROSS))
def test_queries_touch_little_beside_what_they_look_at(driver: neo4j.Driver, runs: dict[str, Run], name: str) -> None:
    """Late in a run, where a walk that forgets the window's start goes back through all that came before."""
    query, run = QUERIES[name], runs[LONG]
    # In the last one but one: the last one of a trace that is cut there is all but empty.
    last = run.window(epoch=rounds_of(run)[-2])
    given = {"epoch": last.epoch, "event": last.end_vertex, "worker": 1, "at_ns": (last.start_ns + last.end_ns) // 2}
    values = {key: value for key, value in given.items() if key in query.params}
    answer = answer_query(driver, query, {"run": ids(run), **values}, plan="profile")
    assert answer.plan is not None
    assert answer.coverage is not None
    covered = list(answer.coverage.covered)
    looked = run.epochs.filter(pl.col("epoch").is_in(covered))
    rows = int(looked.select(pl.col("vertices") + pl.col("edges")).sum().item())
    if not query.details:
        begun = "MATCH (segment:Segment {run: $run}) WHERE segment.round IN $covered RETURN count(*) AS segments"
        rows = driver.execute_query(begun, {"run": ids(run), "covered": covered}).records[0]["segments"]
    assert accesses(answer.plan) <= ACCESSES * (rows + run.epochs.height + run.operators.height)


def test_advice_is_not_looked_for_among_the_steps_of_a_path(driver: neo4j.Driver, runs: dict[str, Run]) -> None:
    """Which way the server chose depended on how much advice and how many steps the whole database had."""
    query, run = QUERIES["analyses/advice"], runs["bfs"]
    text = "MATCH (s:Snapshot {run: $run, current: true}) RETURN s.epoch AS epoch, s.path_steps AS steps"
    rows = driver.execute_query(text, {"run": ids(run)}).records
    most = max(rows, key=lambda row: row["steps"])
    answer = answer_query(driver, query, {"run": ids(run), "epoch": most["epoch"]}, plan="profile")
    assert answer.plan is not None
    assert accesses(answer.plan) < most["steps"]


@pytest.mark.parametrize(
    "name", ["provenance/led_to", "provenance/delayed", "provenance/input_round", "patterns/cone_of_influence"]
)
def test_provenance_is_walked_without_listing_paths(driver: neo4j.Driver, runs: dict[str, Run], name: str) -> None:
    query, run = QUERIES[name], runs["bfs"]
    values = complete(driver, query, {"run": ids(run), **sensible(query, run)})
    plan = answer_query(driver, query, values, plan="profile").plan
    assert plan is not None
    used = [step for step, _ in operators_of(plan)]
    assert any(step.startswith("VarLengthExpand(Pruning") for step in used), used
    assert not any(step in {"VarLengthExpand(All)", "Repeat(Trail)"} for step in used)


def test_explaining_runs_nothing(driver: neo4j.Driver, runs: dict[str, Run]) -> None:
    query = QUERIES["root_cause/held_up_by"]
    answer = answer_query(driver, query, complete(driver, query, {"run": ids(runs["bfs"])}), plan="explain")
    assert answer.rows == []
    assert answer.plan is not None
    assert "DbHits" not in answer.plan["args"]


# ------------------------------------------------------------------ what is asked when nothing is said


def test_the_latest_run_and_its_slowest_round_are_chosen(driver: neo4j.Driver, runs: dict[str, Run]) -> None:
    latest = max(runs.values(), key=lambda run: run.info.run["origin_unix_ns"])
    query = QUERIES["root_cause/held_up_by"]
    assert complete(driver, query, {}) == {"run": ids(latest), "epoch": latest.slowest().epoch}
    for run in runs.values():
        assert complete(driver, query, {"run": ids(run)})["epoch"] == run.slowest().epoch
    assert complete(driver, query, {"run": ids(runs["bfs"]), "epoch": "3"})["epoch"] == 3
    last = runs["bfs"].epochs["epoch"].max()
    with pytest.raises(InvalidParameterError, match=rf"Epoch 99 of run .* is not loaded; loaded are 0 to {last}"):
        complete(driver, query, {"run": ids(runs["bfs"]), "epoch": 99})
    with pytest.raises(InvalidParameterError, match="No epoch of run nobody is loaded"):
        complete(driver, query, {"run": "nobody"})


def test_values_are_never_code(driver: neo4j.Driver, runs: dict[str, Run]) -> None:
    before = driver.execute_query("MATCH (n) RETURN count(n) AS nodes").records[0]["nodes"]
    texts = ("' OR 1=1 //", "x'}) DETACH DELETE n //", "$epoch", "`", "\\u0027", "\n")
    for place, query in enumerate(draw_some(list(QUERIES.values()), 8)):
        # Each query gets two of them, or all.
        for text in texts if PROVE else (texts[place % 6], texts[(place + 1) % 6]):
            if "run" in query.params:
                given = {"run": text, **({"epoch": 1} if "epoch" in query.params else {})}
                assert answer_query(driver, query, {**given, **sensible(query, runs["bfs"])}).rows == [], query.name
    assert driver.execute_query("MATCH (n) RETURN count(n) AS nodes").records[0]["nodes"] == before


def test_hostile_names_come_back_as_they_are(alone: neo4j.Driver, tmp_path: Any) -> None:
    names = ["'}) DETACH DELETE n //", "`]->() DELETE `$run", "Ünïcode 😀\n\ttab", "", "a|b", "\\u0027 OR 1=1"]
    trace = tmp_path / "trace"
    shutil.copytree(SAMPLES / "skewed", trace)
    operators = pq.read_table(trace / "operators.parquet")
    new = pa.array([names[row % len(names)] for row in range(operators.num_rows)])
    at = operators.column_names.index("name")
    pq.write_table(operators.set_column(at, operators.schema.field(at), new), trace / "operators.parquet")
    if not PROVE:
        keep_epochs(trace, 4)
    api.build(trace, tmp_path / "store", engine="local")
    run = api.open(tmp_path / "store").run
    load(run, alone)
    seen = set()
    for query in draw_some(list(QUERIES.values()), 24):
        given = {"run": ids(run), **sensible(query, run)} if "run" in query.params else {}
        if query.over is Over.ROUNDS_OF_BOTH:
            # No other run is loaded.
            given["against"] = ids(run)
        rows = answer_query(alone, query, complete(alone, query, given)).rows
        seen |= {value for row in rows for value in row.values() if isinstance(value, str)}
    assert len(seen & set(names)) > 2
    grew = run_query(alone, "root_cause/operator_grew", {"run": ids(run), "epoch": run.slowest().epoch, "limit": 1000})
    known = names_of(run)
    assert grew
    assert all(row["name"] == known[row["operator"]] for row in grew)


def test_workers_that_have_left_or_are_not_born_yet_are_not_judged(alone: neo4j.Driver, tmp_path: Path) -> None:
    works = "0 start 1 | 90 stop 1 | 100 end | 190 spawn 3 | 200 end | 290 send 3>1 *5 | 300 end"
    waits_ = "0 start 1 | 90 stop 1 | 100 end | 200 end | 210 park | 295 unpark | 296 recv 3<0 *5 | 300 end"
    left, born = "0 start 1 | 90 stop 1 | 100 end | 150 exit", "250 start 1 | 290 stop 1 | 300 end"
    draw(works, waits_, left, born).write(tmp_path / "trace")
    api.build(tmp_path / "trace", tmp_path / "store", engine="local")
    run = api.open(tmp_path / "store").run
    load(run, alone)
    held_up_as_stragglers_say(alone, run)
    judged = [ask(alone, run, "root_cause/skew_or_slow", epoch=epoch) for epoch in range(3)]
    assert [sorted(row["worker"] for row in rows) for rows in judged] == [[0, 1, 2], [0, 1, 2], [0, 1, 3]]


def test_what_happens_where_the_run_begins_and_where_a_round_ends_counts(alone: neo4j.Driver, tmp_path: Path) -> None:
    """The first window holds the instant 0; an activity without length belongs to the window in which it ends."""
    sender = "0 send 3>1 #0 *5 | 0 psend 9 | 0 start 1 | 80 stop 1 | 100 send 3>1 #1 *7 | 100 end | 200 end"
    sleeps = "0 park | 0 unpark | 0 start 1 | 0 recv 3<0 #0 *5 | 0 stop 1 | 0 precv 9<0 | 0 start 1 | 60 stop 1"
    reader = f"{sleeps} | 100 park | 100 unpark | 100 start 1 | 100 recv 3<0 #1 *7 | 100 stop 1 | 100 end | 200 end"
    draw(sender, reader, "0 start 1 | 20 stop 1 | 30 precv 9<0 | 100 end | 200 end").write(tmp_path / "trace")
    api.build(tmp_path / "trace", tmp_path / "store", engine="local")
    run = api.open(tmp_path / "store").run
    load(run, alone)
    held_up_as_stragglers_say(alone, run)
    for epoch, snapshot in snapshots(run):
        judged = {row["worker"]: row["records"] for row in ask(alone, run, "root_cause/skew_or_slow", epoch=epoch)}
        assert judged == ({0: 0, 1: 12, 2: 0} if epoch == 0 else dict.fromkeys(range(3)))
        names = ("worker", "from_worker", "type", "channel", "waits", "waiting_ns")
        slept = waits(snapshot).to_pylist()
        assert [row["waits"] for row in slept] == ([2] if epoch == 0 else [])
        assert ask(alone, run, "patterns/who_waits_for_whom", epoch=epoch) == columns(slept, *names)
        held = ask(alone, run, "root_cause/held_up_by", epoch=epoch)
        of_sender = sum(row["waits"] for row in slept)
        assert {row["worker"]: row["others_waits"] for row in held} == {0: of_sender, 1: 0, 2: 0}
        for name in ("patterns/fan_in_waits", "root_cause/channel_delay"):
            assert sum(row["waits"] for row in ask(alone, run, name, epoch=epoch)) == of_sender
        for name in ("segments/waits", "root_cause/slowest_messages"):
            assert len(ask(alone, run, name, epoch=epoch)) == of_sender
        sent = traffic(snapshot).to_pylist()
        of_data = [row for row in sent if row["type"] == "data_message"]
        names = ("from_worker", "to_worker", "channel", "messages", "records")
        assert columns(ask(alone, run, "patterns/data_messages", epoch=epoch), *names) == columns(of_data, *names)
        for name in ("patterns/bursts", "root_cause/channel_delay"):
            rows = ask(alone, run, name, epoch=epoch, **({"least": 1} if name.endswith("bursts") else {}))
            assert sum(row["messages"] for row in rows) == sum(row["messages"] for row in sent)
        hops = k_hops(snapshot, KHopsParameters(k=3)).to_pylist()
        assert hop_rows(ask(alone, run, "analyses/k_hops", epoch=epoch, k=3)) == hop_rows(hops)
    first = run.scan("vertices").filter(pl.col("t_ns") == 0).collect()["id"].min()
    for query in ("provenance/delayed", "provenance/led_to", "provenance/input_round"):
        found = ask(alone, run, query, event=first)
        assert bool(found) == (query == "provenance/delayed")


def test_workers_of_which_nothing_is_recorded_are_not_judged(alone: neo4j.Driver, tmp_path: Path) -> None:
    works, other = "0 start 1 | 90 stop 1 | 100 end | 200 end", "0 start 1 | 50 stop 1 | 100 end | 200 end"
    # Nobody says what worker 2 did in epoch 0.
    draw(works, other, "100 end | 110 start 1 | 150 stop 1 | 200 end").write(tmp_path / "trace")
    api.build(tmp_path / "trace", tmp_path / "store", engine="local")
    run = api.open(tmp_path / "store").run
    load(run, alone)
    for epoch, workers in ((0, {0, 1}), (1, {0, 1, 2})):
        judged = {row["worker"]: row["work_ratio"] for row in ask(alone, run, "root_cause/skew_or_slow", epoch=epoch)}
        assert judged.keys() == workers
        rows = stragglers(run.snapshot(run.window(epoch=epoch))).to_pylist()
        assert judged == {row["worker"]: pytest.approx(row["work_ratio"], abs=0.001) for row in rows}


def test_records_that_nobody_counts_are_not_called_none(alone: neo4j.Driver, tmp_path: Path) -> None:
    sender = "10 send 3>1 #0 *4 | 20 send 3>2 #0 | 25 send 3>1 #1 | 90 end | 100 send 3>1 #2 | 190 end"
    reads = (
        "30 start 1 | 50 recv 3<0 #0 *4 | 60 recv 3<0 #1 | 80 stop 1 | 90 end | 110 start 1 | 120 recv 3<0 #2 | 190 end"
    )
    others = "30 start 1 | 50 recv 3<0 #0 | 70 stop 1 | 90 end | 190 end", "80 start 1 | 85 stop 1 | 90 end | 190 end"
    draw(sender, reads, *others).write(tmp_path / "trace")
    api.build(tmp_path / "trace", tmp_path / "store", engine="local")
    run = api.open(tmp_path / "store").run
    load(run, alone)
    held_up_as_stragglers_say(alone, run)
    for epoch, snapshot in snapshots(run):
        found = ask(alone, run, "analyses/metrics", epoch=epoch)
        assert [row["records"] for row in found] == metrics(snapshot)["records"].to_pylist()
    judged = [ask(alone, run, "root_cause/skew_or_slow", epoch=epoch) for epoch in range(2)]
    told = [{row["worker"]: row["records"] for row in rows} for rows in judged]
    assert told == [{0: 0, 1: 4, 2: None, 3: 0}, dict.fromkeys(range(4))]


def test_rounds_that_take_no_time_are_divided_by_nowhere(alone: neo4j.Driver, tmp_path: Path) -> None:
    ends, longer = " | 20 end" * 6, " | 30 end | 40 end"
    for name, log in (("no", ends), ("some", ends + longer)):
        trace = draw(f"0 start 7 | 10 stop 7{log}", f"0 start 7 | 15 stop 7{log}").write(tmp_path / name, trace_id=name)
        api.build(trace, tmp_path / f"{name}.pag", engine="local")
        run = api.open(tmp_path / f"{name}.pag").run
        load(run, alone)
        assert not run.window(epoch=2).span_ns
        for query in QUERIES.values():
            if query.name in {RESCALINGS, "analyses/advice"} or "run" not in query.params:
                continue
            given = {"run": ids(run), **sensible(query, run)}
            if query.over is Over.ROUNDS_OF_BOTH:
                given["against"] = ids(run)
            for epoch in (1, 2) if "epoch" in query.params else (None,):
                values = given if epoch is None else {**given, "epoch": epoch}
                rows = answer_query(alone, query, complete(alone, query, values)).rows
                json.dumps(
                    [value for row in rows for value in row.values() if isinstance(value, float)], allow_nan=False
                )


def test_an_epoch_that_is_hidden_has_no_answer(alone: neo4j.Driver, runs: dict[str, Run]) -> None:
    run = runs["skewed"]
    load(run, alone, epochs=[3, 4, 5])
    alone.execute_query("MATCH (e:Epoch {epoch: 4}) SET e.published = false")
    window = run.window(epoch=4)
    for query in QUERIES.values():
        if "epoch" in query.params:
            given = {"run": ids(run), "epoch": 4, **sensible(query, run)}
            assert answer_query(alone, query, given).rows == [], query.name
    at_ns = (window.start_ns + window.end_ns) // 2
    assert answer_query(alone, QUERIES["analyses/state_at"], {"run": ids(run), "at_ns": at_ns}).rows == []
    with pytest.raises(InvalidParameterError, match="is not loaded; it is one of 4"):
        run_query(alone, "analyses/state_at", {"run": ids(run), "at_ns": at_ns})
    # The walk through what led to an event stops where a hidden epoch begins.
    last = run.window(epoch=5)
    far = {"run": ids(run), "event": last.end_vertex, "back_ns": 10**12, "limit": 10**6}
    with pytest.warns(PartialAnswerWarning, match=r"left out epoch 4 \(not loaded\)"):
        led = run_query(alone, "provenance/led_to", far)
    assert led
    assert min(row["t_ns"] for row in led) > last.start_ns
    alone.execute_query("MATCH (e:Epoch {epoch: 4}) SET e.published = true")
    with pytest.warns(PartialAnswerWarning, match=r"left out epoch 2 \(not loaded\)"):
        led = run_query(alone, "provenance/led_to", far)
    start = run.window(epoch=3).start_ns
    assert start < min(row["t_ns"] for row in led) < window.start_ns


@pytest.mark.sampled(2)
@pytest.mark.parametrize("sample", BUNDLED)
def test_segments_tell_the_same_story(driver: neo4j.Driver, runs: dict[str, Run], sample: str) -> None:
    run = runs[sample]
    for epoch, snapshot in snapshots(run):
        window = snapshot.window
        sleeping = waited(snapshot)
        found = ask(driver, run, "segments/waits", epoch=epoch, limit=100_000)
        keys = ("worker", "start_ns", "end_ns", "waited_ns", "from_worker", "message", "channel", "sent_ns")
        assert Counter(tuple(row[key] for key in keys) for row in found) == Counter(sleeping.select(keys).iter_rows())
        path = ask(driver, run, "segments/path", epoch=epoch)
        if not path:
            assert critical_path(snapshot).all_waiting or window.span_ns == 0
            continue
        assert sum(row["duration_ns"] + row["transfer_ns"] for row in path) == window.span_ns
        on_path: Counter[int] = Counter()
        for row in path:
            on_path[row["worker"]] += row["duration_ns"]
        local = path_steps(snapshot).filter(pl.col("type").is_in(LOCAL))
        expected = Counter(dict(local.group_by("worker").agg(pl.col("duration_ns").sum()).iter_rows()))
        assert +on_path == +expected
        ended = {row["dst"]: row for row in sleeping.iter_rows(named=True)}
        opened = {row["segment"]: row for row in found}
        for chain in ask(driver, run, "segments/wait_chains", epoch=epoch, limit=5):
            assert len(chain["chain"]) == chain["messages"] + 1
            assert all(a != b for a, b in pairwise(chain["chain"]))
            assert window.start_ns < chain["first_ns"] <= chain["end_ns"] <= window.end_ns
        assert opened.keys() == ended.keys()


def test_library_names_are_real() -> None:
    assert len(QUERIES.keys() - TWINS - DRAWN) >= 30
    assert len(ROOT_CAUSES) == 11
    assert len(ACROSS) == 4
    assert {load_query(name).name for name in QUERIES} == set(QUERIES)
