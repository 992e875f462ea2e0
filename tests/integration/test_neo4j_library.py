"""Queries over runs, rounds and waits: each computed once more from the store."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from pag_graph.analyses import find_analysis
from pag_graph.analyses.critical_path import critical_path
from pag_graph.analyses.expressions import delivered_ns, local_inside
from pag_graph.cypher import load_query
from pag_graph.errors import InvalidParameterError
from pag_graph.model.enums import LOCAL_TYPES
from pag_graph.model.ids import POSITION_BITS
from pag_graph.sinks.neo4j.query import answer_query, run_query
from pag_graph.sinks.provenance_walks import log_rows, touched_by_clock, touched_by_parameter

if TYPE_CHECKING:
    from collections.abc import Mapping

    import neo4j

    from pag_graph.graph.run import Run
    from pag_graph.graph.snapshot import Snapshot

pytestmark = pytest.mark.neo4j

BUNDLED = ("skewed", "bfs", "triangles", "ground_truth")
LOCAL = [str(kind) for kind in LOCAL_TYPES]
NO_WORK = ("waiting", "input_wait", "idle", "unknown")
waits = find_analysis("waits")


def ids(run: Run) -> str:
    return str(run.info.run["run_id"])


def rounds(run: Run) -> list[Snapshot]:
    numbers = run.epochs.filter(pl.col("role") == "round")["epoch"].sort().to_list()
    return [run.snapshot(run.window(epoch=number)) for number in numbers]


def steps(snapshot: Snapshot) -> pl.DataFrame:
    return pl.DataFrame(pl.from_arrow(critical_path(snapshot).steps))


def spent(run: Run) -> tuple[Counter[int], Counter[int]]:
    """Return per operator its work in all rounds, and how much of its time is on critical paths."""
    work: Counter[int] = Counter()
    path: Counter[int] = Counter()
    for snapshot in rounds(run):
        busy = local_inside(snapshot).filter(~pl.col("type").is_in(NO_WORK), pl.col("operator").is_not_null())
        work.update(dict(busy.group_by("operator").agg(pl.col("inside_ns").sum()).iter_rows()))
        local = steps(snapshot).filter(pl.col("type").is_in(LOCAL), pl.col("operator").is_not_null())
        path.update(dict(local.group_by("operator").agg(pl.col("duration_ns").sum()).iter_rows()))
    return +work, +path


@pytest.mark.parametrize("sample", BUNDLED)
def test_operators_off_the_paths_and_upstream(
    bundled_driver: neo4j.Driver, bundled_runs: dict[str, Run], sample: str
) -> None:
    run = bundled_runs[sample]
    work, path = spent(run)
    found = run_query(bundled_driver, "patterns/never_on_path", {"run": ids(run)})
    assert {row["operator"]: row["spent_ns"] for row in found} == {o: ns for o, ns in work.items() if o not in path}
    blamed = max(path, key=lambda operator: (path[operator], -operator))
    sources: dict[int, set[int]] = defaultdict(set)
    for source, target in (
        run.channels.drop_nulls(["source_operator", "target_operator"])
        .select("source_operator", "target_operator")
        .iter_rows()
    ):
        sources[target].add(source)
    hops, near = {blamed: 0}, {blamed}
    while near := {each for target in near for each in sources[target]} - hops.keys():
        hops.update(dict.fromkeys(near, max(hops.values()) + 1))
    found = run_query(bundled_driver, "provenance/upstream", {"run": ids(run)})
    assert {row["operator"]: (row["hops"], row["spent_ns"], row["path_ns"]) for row in found} == {
        operator: (number, work[operator], path[operator]) for operator, number in hops.items() if number
    }


@pytest.mark.parametrize("sample", BUNDLED)
def test_waits_of_both_and_at_once(bundled_driver: neo4j.Driver, bundled_runs: dict[str, Run], sample: str) -> None:
    run = bundled_runs[sample]
    waiting_ns = 0
    for snapshot in rounds(run):
        sums: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0])
        for row in waits(snapshot).to_pylist():
            waiting_ns += row["waiting_ns"]
            if row["from_worker"] is not None:
                pair = sums[row["worker"], row["from_worker"]]
                pair[0] += row["waits"]
                pair[1] += row["waiting_ns"]
        expected = {(a, b): (*sums[a, b], *sums[b, a]) for a, b in list(sums) if a < b and (b, a) in sums}
        values = {"run": ids(run), "epoch": snapshot.window.epoch}
        found = run_query(bundled_driver, "patterns/mutual_waits", values)
        shown = ("waits", "waiting_ns", "other_waits", "other_waiting_ns")
        assert {(row["worker"], row["other"]): tuple(row[name] for name in shown) for row in found} == expected
    at_once = run_query(bundled_driver, "patterns/waits_at_once", {"run": ids(run)})
    assert sum(row["time_ns"] for row in at_once) == sum(each.window.span_ns for each in rounds(run))
    assert sum(row["time_ns"] * row["waiting"] for row in at_once) == waiting_ns
    assert {row["waiting"] for row in at_once} <= set(range(len(run.workers) + 1))


@pytest.mark.parametrize("sample", BUNDLED)
def test_waits_on_paths_and_changes_of_worker(
    bundled_driver: neo4j.Driver, bundled_runs: dict[str, Run], sample: str
) -> None:
    run = bundled_runs[sample]
    switches = {}
    for snapshot in rounds(run):
        path = steps(snapshot)
        switches[snapshot.window.epoch] = (path.filter(pl.col("worker") != pl.col("to_worker")).height, path.height)
    found = run_query(bundled_driver, "epochs/path_switches", {"run": ids(run), "limit": 1000})
    assert {row["epoch"]: (row["switches"], row["steps"]) for row in found} == switches
    assert [row["switches"] for row in found] == sorted((each for each, _ in switches.values()), reverse=True)
    found = run_query(bundled_driver, "segments/critical_waits", {"run": ids(run)})
    edges = run.scan("edges").collect()
    ended = {row["dst"]: row["type"] for row in edges.filter(~pl.col("type").is_in(LOCAL)).iter_rows(named=True)}
    expected: Counter[str] = Counter()
    senders: Counter[tuple[int, int | None]] = Counter()
    ender = {row["dst"]: row["src"] for row in edges.filter(~pl.col("type").is_in(LOCAL)).iter_rows(named=True)}
    before = dict(edges.filter(pl.col("type").is_in(LOCAL)).select("dst", "operator").iter_rows())
    spans = [(each.window.start_ns, each.window.end_ns) for each in rounds(run)]
    for row in edges.filter(pl.col("type") == "waiting").iter_rows(named=True):
        end_ns = row["start_ns"] + row["duration_ns"]
        if row["dst"] in ended and any(low < end_ns <= high for low, high in spans):
            expected[ended[row["dst"]]] += row["duration_ns"]
            sent = ender[row["dst"]]
            senders[sent >> POSITION_BITS, before.get(sent)] += row["duration_ns"]
    assert {row["message"]: row["waited_ns"] for row in found if row["waited_ns"]} == +expected
    assert all(0 <= row["critical_ns"] <= row["waited_ns"] for row in found)
    critical_ns = sum(row["critical_ns"] for row in found)
    found = run_query(bundled_driver, "segments/waited_for_operators", {"run": ids(run), "limit": 1000})
    assert {(row["from_worker"], row["operator"]): row["waited_ns"] for row in found if row["waited_ns"]} == +senders
    assert sum(row["critical_ns"] for row in found) == critical_ns


@pytest.mark.parametrize("sample", BUNDLED)
def test_walks_of_provenance_are_the_stores(
    bundled_driver: neo4j.Driver, bundled_runs: dict[str, Run], sample: str
) -> None:
    run = bundled_runs[sample]
    slowest = run.slowest().epoch
    assert slowest is not None
    back = run_query(bundled_driver, "provenance/log_rows", {"run": ids(run), "epoch": slowest})
    assert back == log_rows(run, slowest).to_dicts()
    assert all(row["file"] for row in back)
    for worker, domain in ((0, False), (1, False), (0, True)):
        touched = touched_by_clock(run, worker, domain=domain)
        values = {"run": ids(run), "worker": worker, "domain": domain}
        forward = run_query(bundled_driver, "provenance/touched_by_clock", values)
        assert [{name: row[name] for name in touched.columns} for row in forward] == touched.to_dicts()
    for row in run_query(bundled_driver, "runs/touched_by_parameter", {"name": "horizon_ns"}):
        if row["run"] == ids(run):
            (same,) = touched_by_parameter(run, "horizon_ns")
            assert (json.loads(row["value"]), row["jobs"]) == (same["value"], same["jobs"])
            assert row["epochs"] == row["snapshots"] == run.epochs.height


def accesses(plan: Mapping[str, Any]) -> int:
    return int(plan.get("args", {}).get("DbHits", 0)) + sum(accesses(child) for child in plan.get("children", ()))


def operators_of(plan: Mapping[str, Any]) -> set[str]:
    return {plan["operatorType"], *(each for child in plan.get("children", ()) for each in operators_of(child))}


@pytest.mark.parametrize("name", ["runs/runs", "runs/worst_epochs", "runs/operator_trend"])
def test_questions_about_all_runs_touch_little(
    bundled_driver: neo4j.Driver, bundled_runs: dict[str, Run], name: str
) -> None:
    answer = answer_query(bundled_driver, load_query(name), {}, plan="profile")
    assert answer.plan is not None
    assert not [each for each in operators_of(answer.plan) if "Scan" in each and "IndexScan" not in each]
    spent = bundled_driver.execute_query("MATCH (:Snapshot)-[spent:SPENT]->() RETURN count(spent) AS rows").records
    rows = sum(run.epochs.height + run.operators.height for run in bundled_runs.values())
    assert accesses(answer.plan) <= 30 * rows + 10 * spent[0]["rows"]


@pytest.mark.parametrize("sample", BUNDLED)
def test_percentiles_of_channels(bundled_driver: neo4j.Driver, bundled_runs: dict[str, Run], sample: str) -> None:
    run = bundled_runs[sample]
    messages = run.scan("edges").filter(pl.col("type") == "data_message").collect()
    times: dict[int, list[int]] = defaultdict(list)
    for channel, taken in messages.select("channel", delivered_ns(run).alias("taken")).iter_rows():
        times[channel].append(taken)

    def percentile(values: list[int], share: float) -> int:
        return sorted(values)[max(math.ceil(share * len(values)) - 1, 0)]

    found = run_query(bundled_driver, "root_cause/channel_percentiles", {"run": ids(run)})
    assert {
        row["channel"]: (row["messages"], row["p50_ns"], row["p95_ns"], row["p99_ns"], row["longest_ns"])
        for row in found
    } == {
        channel: (len(taken), *(percentile(taken, share) for share in (0.5, 0.95, 0.99)), max(taken))
        for channel, taken in times.items()
    }


@pytest.mark.parametrize("sample", ["skewed", "bfs"])
def test_what_was_done_just_before(bundled_driver: neo4j.Driver, bundled_runs: dict[str, Run], sample: str) -> None:
    run = bundled_runs[sample]
    snapshot = run.snapshot(run.slowest())
    window = snapshot.window
    at_ns, back_ns = (window.start_ns + window.end_ns) // 2, window.span_ns // 3
    values = {"run": ids(run), "epoch": window.epoch, "at_ns": at_ns, "back_ns": back_ns, "limit": 10_000}
    found = run_query(bundled_driver, "analyses/just_before", values)
    part = run.snapshot(run.window(between=(at_ns - back_ns, at_ns)))
    names = dict(run.operators.select("operator", "name").iter_rows())
    expected: Counter[tuple[Any, ...]] = Counter()
    for row in local_inside(part).iter_rows(named=True):
        expected[row["worker"], row["type"], names.get(row["operator"])] += row["inside_ns"]
    summed: Counter[tuple[Any, ...]] = Counter()
    for row in found:
        summed[row["worker"], row["type"], row["operator"]] += row["spent_ns"]
    assert summed == +expected
    assert sum(summed.values()) == back_ns * len(run.workers)


def test_runs_are_compared_exactly(bundled_driver: neo4j.Driver, bundled_runs: dict[str, Run]) -> None:
    listed = run_query(bundled_driver, "runs/runs", {})
    assert {row["run"] for row in listed} == {ids(run) for run in bundled_runs.values()}
    for row in listed:
        (run,) = (each for each in bundled_runs.values() if ids(each) == row["run"])
        assert row["name"] == run.info.path.name
        assert row["started"].to_native().timestamp() == pytest.approx(run.info.run["origin_unix_ns"] / 1e9, abs=1e-5)
        assert row["epochs"] == run.epochs.height
        assert row["slowest_ns"] == run.slowest().span_ns
    one, other = bundled_runs["bfs"], bundled_runs["triangles"]
    found = run_query(bundled_driver, "runs/run_difference", {"run": ids(one), "against": ids(other)})
    lengths = [sum(each.window.span_ns for each in rounds(run)) for run in (other, one)]
    assert sum(row["before_ns"] for row in found) == lengths[0]
    assert sum(row["difference_ns"] for row in found) == lengths[1] - lengths[0]
    itself = run_query(bundled_driver, "runs/run_difference", {"run": ids(one), "against": ids(one)})
    assert sum(row["before_ns"] for row in itself) == sum(row["after_ns"] for row in itself) == lengths[1]
    first = min(listed, key=lambda row: row["started"])["run"]
    for missing, message in (({"run": ids(one), "against": "none"}, "not loaded"), ({"run": first}, "before")):
        with pytest.raises(InvalidParameterError, match=message):
            run_query(bundled_driver, "runs/run_difference", missing)
    worst = run_query(bundled_driver, "runs/worst_epochs", {"limit": 1000})
    assert len(worst) == sum(len(rounds(run)) for run in bundled_runs.values())
    assert [row["ratio"] for row in worst] == sorted((row["ratio"] for row in worst), reverse=True)
    name = one.operators["name"][-1]
    trend = run_query(bundled_driver, "runs/operator_trend", {"operator": name})
    for row in trend:
        (run,) = (each for each in bundled_runs.values() if ids(each) == row["run"])
        work, path = spent(run)
        (operator,) = run.operators.filter(pl.col("address") == row["address"])["operator"]
        assert row["round_ns"] == work[operator] // row["rounds"]
        assert row["path_ns"] == path[operator] // row["rounds"]


def test_the_shortest_way_is_a_way(bundled_driver: neo4j.Driver, bundled_runs: dict[str, Run]) -> None:
    run = bundled_runs["skewed"]
    found = run_query(bundled_driver, "provenance/shortest_path", {"run": ids(run), "rounds": 0})
    window = run.slowest()
    inside = run.scan("vertices").filter(pl.col("t_ns") > window.start_ns, pl.col("t_ns") <= window.end_ns).collect()
    first = inside.sort("t_ns", "id")["id"][0]
    assert found[0]["src"] == first
    assert found[-1]["dst"] == window.end_vertex
    edges = run.scan("edges").filter(pl.col("dst").is_in(inside["id"].implode())).collect()
    after: dict[int, set[int]] = defaultdict(set)
    for src, dst in edges.select("src", "dst").iter_rows():
        after[src].add(dst)
    assert all(row["dst"] in after[row["src"]] for row in found)
    assert all(a["dst"] == b["src"] for a, b in pairwise(found))
    reached, seen, hops = {first}, {first}, 0
    while window.end_vertex not in reached:
        reached = {dst for src in reached for dst in after[src]} - seen
        seen |= reached
        hops += 1
    assert len(found) == hops
