"""Advice and rescalings beside a run's epochs in Neo4j: as the engine says, once, and gone with the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from pag_graph import api, samples
from pag_graph.analyses.advising.advice_state import AdviceState
from pag_graph.cypher import load_query
from pag_graph.errors import InvalidParameterError
from pag_graph.sinks.neo4j.answers import write_advice, write_rescalings
from pag_graph.sinks.neo4j.detail import Detail
from pag_graph.sinks.neo4j.loader import LoadOptions, load_run, remove_run
from pag_graph.sinks.neo4j.query import answer_query, run_query
from pag_graph.testing.queue_runs import simulate
from tests.support.query_examples import check_example
from tests.support.rescaled import SHOWN

if TYPE_CHECKING:
    from pathlib import Path

    import neo4j

    from pag_graph.graph.run import Run

pytestmark = pytest.mark.neo4j

SUMMARY = LoadOptions(detail=Detail.SUMMARY)


def rows(driver: neo4j.Driver, text: str, **values: Any) -> list[dict[str, Any]]:
    return [row.data() for row in driver.execute_query(text, values).records]


def test_advice_and_its_trials_stand_beside_the_epochs(
    neo4j_driver: neo4j.Driver, bundled_runs: dict[str, Run]
) -> None:
    run = bundled_runs["skewed"]
    run_id = str(run.info.run["run_id"])
    advice = api.open(run.info.path).advise(epoch=4, beta=0.0, new_threads=2)
    said = advice.table.to_pylist()
    with pytest.raises(InvalidParameterError, match="No epoch of"):
        write_advice(neo4j_driver, run, advice)
    load_run(run, neo4j_driver, epochs=[4], options=SUMMARY)
    port = next(row for row in said if row["kind"] == "port")
    trial = {"port": port["operator_name"], "before_per_s": 1.0, "after_per_s": 2.0, "ratio_low": 2.0}
    trial |= {"ratio_high": 2.0, "decision": "keep", "blacklisted": False}
    state = AdviceState(trials=({"before": [run_id], "after": ["another"], "ports": [trial]},))
    for _ in range(2):
        assert write_advice(neo4j_driver, run, advice, state) == len(said) + 1
    found = run_query(neo4j_driver, "analyses/advice", {"run": run_id, "epoch": 4})
    names = ("rank", "kind", "operator_name", "new_threads", "utility", "predicted_ns", "low_ns", "high_ns", "verdict")
    assert [[row[name] for name in names] for row in found] == [[row[name] for name in names] for row in said]
    # What goes along adds up to what is downstream.
    moved = "MATCH (:Advice {run: $run, rank: $rank})-[moves:MOVES]->() RETURN sum(moves.mu) AS mu"
    below = sum(mu.likely for mu in advice.ports.below[port["operator"]].values())
    assert rows(neo4j_driver, moved, run=run_id, rank=port["rank"])[0]["mu"] == pytest.approx(below)
    tried = "MATCH (trial:Trial)-[:TRIED]->(:Advice)-[:AT]->(operator) RETURN DISTINCT operator.operator AS operator"
    assert rows(neo4j_driver, tried) == [{"operator": port["operator"]}]
    assert rows(neo4j_driver, "MATCH (:Trial)-[:BEFORE]->(run:Run) RETURN run.id AS id") == [{"id": run_id}]
    # Advice on the same window takes the place of what was there.
    fewer = api.open(run.info.path).advise(epoch=4, beta=0.0)
    write_advice(neo4j_driver, run, fewer)
    assert rows(neo4j_driver, "MATCH (a:Advice) RETURN count(*) AS n") == [{"n": fewer.table.num_rows}]
    remove_run(neo4j_driver, run_id)
    assert rows(neo4j_driver, "MATCH (n:Advice|Trial|Run) RETURN count(*) AS n") == [{"n": 0}]


def test_rescalings_lead_from_the_run_to_workers_phases_and_epochs(neo4j_driver: neo4j.Driver, tmp_path: Path) -> None:
    simulate(SHOWN)[0].write(tmp_path / "trace")
    api.build(tmp_path / "trace", tmp_path / "store", engine="local")
    answer = api.rescale(tmp_path / "store", period_ns=SHOWN.period_ns, first_ns=0, cores=4)
    run_id = str(answer.run.info.run["run_id"])
    load_run(answer.run, neo4j_driver, options=SUMMARY)
    steps, phases = (answer.named(name).to_pylist() for name in ("steps", "phases"))
    for _ in range(2):
        assert write_rescalings(neo4j_driver, answer) == 1 + len(steps) + len(phases)
    [operation] = answer.courses
    text = (
        "MATCH (:Run {id: $run})-[:HAS_RESCALING]->(rescaling)-[:ADDED]->(worker:Worker)"
        " MATCH (rescaling)-[:SERVED_BY]->(server:Worker) MATCH (rescaling)-[:WAS_GENERATED_BY]->(:Job)"
        " RETURN rescaling.verdict AS verdict, worker.worker AS worker, server.worker AS server"
    )
    [birth] = operation.operation.births
    assert rows(neo4j_driver, text, run=run_id) == [
        {"verdict": "relieved", "worker": birth.worker, "server": birth.by_worker}
    ]
    text = (
        "MATCH (:Rescaling)-[:HAS_PHASE]->(phase) OPTIONAL MATCH (phase)-[:FIRST_EPOCH]->(first)"
        " OPTIONAL MATCH (phase)-[:LAST_EPOCH]->(last)"
        " RETURN phase.phase AS phase, phase.p50_ns AS p50_ns, first.epoch AS first, last.epoch AS last"
    )
    latency = pl.DataFrame(pl.from_arrow(answer.named("latency")))
    bounds = {name: (part["epoch"].min(), part["epoch"].max()) for (name,), part in latency.group_by("phase")}
    for row in rows(neo4j_driver, text):
        assert (row["first"], row["last"]) == bounds[row["phase"]]
    assert {row["phase"]: row["p50_ns"] for row in rows(neo4j_driver, text)} == {
        row["phase"]: row["p50_ns"] for row in phases
    }
    text = "MATCH (:Rescaling)-[:HAS_STEP]->(s) RETURN s.step AS step, s.duration_ns AS ns ORDER BY s.number"
    assert [(row["step"], row["ns"]) for row in rows(neo4j_driver, text)] == [
        (row["step"], row["duration_ns"]) for row in steps
    ]


def test_rescalings_are_asked_for_by_a_query_of_the_library(neo4j_driver: neo4j.Driver, tmp_path: Path) -> None:
    trace, store = samples.path("elastic"), tmp_path / "store"
    api.build(trace, store, engine="local")
    answer = api.rescale(store, inputs=trace, cores=2)
    load_run(answer.run, neo4j_driver, options=SUMMARY)
    write_rescalings(neo4j_driver, answer)
    query, run_id = load_query("analyses/rescalings"), str(answer.run.info.run["run_id"])
    told = answer_query(neo4j_driver, query, {"run": run_id})
    check_example(query, told)
    [row], [known] = told.rows, answer.table.to_pylist()
    assert {name: row[name] for name in row.keys() & known.keys()} == {
        name: known[name] for name in row.keys() & known.keys()
    }
    held_up = [each["epoch"] for each in answer.named("latency").to_pylist() if each["phase"] == "bootstrap"]
    assert (row["first_epoch"], row["last_epoch"]) == (min(held_up), max(held_up))
    assert row["step_ns"] == max(each["duration_ns"] for each in answer.named("steps").to_pylist())
