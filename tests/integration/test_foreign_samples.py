"""Spans and PyTorch traces in Neo4j and Spark: the answers are those of the store."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import narwhals.stable.v2 as nw
import polars as pl
import pytest

from pag_graph import api
from pag_graph.analyses import find_analysis
from pag_graph.analyses.critical_path import critical_path
from pag_graph.analyses.expressions import worker_of
from pag_graph.analyses.waits import last_sent
from pag_graph.sinks import graphframes
from pag_graph.sinks.neo4j.detail import Detail
from pag_graph.sinks.neo4j.loader import LoadOptions, load_run
from pag_graph.sinks.neo4j.query import run_query
from tests.support.foreign_samples import SOURCES, build_sample

if TYPE_CHECKING:
    import neo4j

    from pag_graph.graph.run import Run

waits = find_analysis("waits")
stragglers = find_analysis("stragglers")
SLOW_NODE = Path(__file__).parents[1] / "data" / "spark" / "slow-node.zstd"


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    return {name: api.open(build_sample(name, tmp_path_factory.mktemp(name))).run for name in SOURCES}


def paths(run: Run) -> dict[int, pl.DataFrame]:
    rounds = run.epochs.filter(pl.col("role") == "round")["epoch"].to_list()
    return {
        epoch: pl.DataFrame(pl.from_arrow(critical_path(run.snapshot(run.window(epoch=epoch))).steps))
        for epoch in rounds
    }


@pytest.mark.neo4j
def test_queries_of_the_library_answer_as_the_engine_does(neo4j_driver: neo4j.Driver, samples: dict[str, Run]) -> None:
    for run in samples.values():
        load_run(run, neo4j_driver)
    for run in samples.values():
        values = {"run": str(run.info.run["run_id"])}
        expected = paths(run)
        found = run_query(neo4j_driver, "epochs/path_switches", {**values, "limit": 1000})
        assert {row["epoch"]: (row["switches"], row["steps"]) for row in found} == {
            epoch: (path.filter(pl.col("worker") != pl.col("to_worker")).height, path.height)
            for epoch, path in expected.items()
        }
        at_once = run_query(neo4j_driver, "patterns/waits_at_once", values)
        assert sum(row["time_ns"] for row in at_once) == sum(run.window(epoch=epoch).span_ns for epoch in expected)
        for epoch, path in expected.items():
            steps = run_query(neo4j_driver, "analyses/critical_path", {**values, "epoch": epoch})
            assert [(row["type"], row["duration_ns"]) for row in steps] == list(
                path.select("type", "duration_ns").iter_rows()
            )


@pytest.mark.neo4j
def test_a_wait_has_one_message_that_ended_it(neo4j_driver: neo4j.Driver, samples: dict[str, Run]) -> None:
    """A stream of PyTorch waits for several others: each wait had counted once for each of them."""
    for run in samples.values():
        load_run(run, neo4j_driver, options=LoadOptions(detail=Detail.WAITS))
        values = {"run": str(run.info.run["run_id"])}
        twice = (
            "MATCH (s:Segment {run: $run})<-[r:RELEASED]-() WITH s, count(r) AS messages WHERE messages > 1 RETURN s"
        )
        assert not neo4j_driver.execute_query(twice, values).records
        for epoch in run.epochs.filter(pl.col("role") == "round")["epoch"].to_list():
            expected = waits(run.snapshot(run.window(epoch=epoch))).to_pylist()
            found = run_query(neo4j_driver, "patterns/who_waits_for_whom", {**values, "epoch": epoch})
            assert found == [{name: row[name] for name in found[0]} for row in expected]


@pytest.mark.neo4j
def test_queries_about_events_count_a_wait_once(neo4j_driver: neo4j.Driver, samples: dict[str, Run]) -> None:
    run = samples["torch"]
    load_run(run, neo4j_driver)
    for epoch in run.epochs.filter(pl.col("role") == "round")["epoch"].to_list():
        window = {"run": str(run.info.run["run_id"]), "epoch": epoch}
        waited: Counter[int] = Counter()
        ended: Counter[int] = Counter()
        for row in waits(run.snapshot(run.window(epoch=epoch))).to_pylist():
            waited[row["worker"]] += row["waiting_ns"]
            ended[row["from_worker"]] += row["waiting_ns"]
        for name in ("root_cause/held_up_by", "root_cause/skew_or_slow"):
            rows = run_query(neo4j_driver, name, window)
            assert +Counter({row["worker"]: row["waiting_ns"] for row in rows}) == waited
            assert +Counter({row["worker"]: row["others_waited_ns"] for row in rows}) == ended
        channels: Counter[int] = Counter()
        for row in waits(run.snapshot(run.window(epoch=epoch))).to_pylist():
            channels[row["channel"]] += row["waiting_ns"]
        delays = run_query(neo4j_driver, "root_cause/channel_delay", {**window, "limit": 10_000})
        assert +Counter({row["channel"]: row["waited_ns"] for row in delays}) == channels
        # What ran up to a message that was sent before the wait began would not be what one waited for.
        still = run_query(neo4j_driver, "root_cause/longest_idle", {**window, "limit": 10_000})
        named: Counter[int] = Counter()
        for row in still:
            if row["type"] == "waiting":
                named[row["from_worker"]] += row["duration_ns"]
        assert +named == ended
        for row in still:
            if row["type"] == "waiting" and row["duration_ns"] > 1:
                at = {"run": window["run"], "worker": row["worker"], "at_ns": row["start_ns"] + 1}
                causes = run_query(neo4j_driver, "root_cause/waited_for", at)
                assert {(each["from_worker"], each["sent_ns"]) for each in causes} == {
                    (row["from_worker"], row["sent_ns"])
                }


@pytest.mark.neo4j
def test_a_wait_says_who_sent_the_message_that_ended_it(neo4j_driver: neo4j.Driver, samples: dict[str, Run]) -> None:
    for run in samples.values():
        load_run(run, neo4j_driver, options=LoadOptions(group_edges=100))
        edges = run.scan("edges").collect()
        messages = edges.filter(worker_of("src") != worker_of("dst"))
        waiting = edges.filter(pl.col("type") == "waiting").select("dst")
        expected = last_sent(nw.from_native(messages.join(waiting, on="dst")), "dst").to_native()
        text = "MATCH (:Event {run: $run})-[wait:WAITING]->(end:Event) RETURN end.id AS dst, wait.ended_by AS src"
        rows = neo4j_driver.execute_query(text, {"run": str(run.info.run["run_id"])}).records
        assert {(row["dst"], row["src"]) for row in rows} == set(expected.select("dst", "src").iter_rows())


@pytest.mark.neo4j
def test_workers_are_compared_with_those_that_run_the_same(
    neo4j_driver: neo4j.Driver, samples: dict[str, Run], tmp_path: Path
) -> None:
    """Streams with processes, executors with their driver: each had been set against the median of them all."""
    api.convert(SLOW_NODE, tmp_path / "trace")
    api.build(tmp_path / "trace", tmp_path / "store", engine="local")
    for run in (*samples.values(), api.open(tmp_path / "store").run):
        assert run.unlike
        load_run(run, neo4j_driver)
        for epoch in run.epochs["epoch"]:
            found = run_query(
                neo4j_driver, "root_cause/skew_or_slow", {"run": str(run.info.run["run_id"]), "epoch": epoch}
            )
            expected = stragglers(run.snapshot(run.window(epoch=epoch))).to_pylist()
            same = ("worker", "work_ns", "waiting_ns", "records")
            assert [[row[name] for name in same] for row in found] == [[row[name] for name in same] for row in expected]
            assert [row["verdict"] for row in found] == [row["cause"] for row in expected]
            assert [row["work_ratio"] for row in found] == [
                row["work_ratio"] and pytest.approx(row["work_ratio"], abs=0.001) for row in expected
            ]


@pytest.mark.spark
def test_graphframes_get_every_vertex_and_edge(samples: dict[str, Run]) -> None:
    from pag_graph.engines.session import spark_session

    spark = spark_session(master="local[2]", quick=True)
    for run in samples.values():
        vertices = pl.DataFrame(graphframes.vertices(run, spark).toArrow())
        edges = pl.DataFrame(graphframes.edges(run, spark).toArrow())
        stored = run.scan("edges").select("src", "dst", "type").collect()
        assert sorted(edges.select("src", "dst", "type").iter_rows()) == sorted(stored.iter_rows())
        assert set(edges["src"]) | set(edges["dst"]) <= set(vertices["id"])
