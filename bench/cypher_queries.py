"""The ten root-cause queries of the Cypher library on a whole run, warm, in the slowest round."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench.harness import Bench, Session, Yardstick
from bench.neo4j_load import holding, needs, opened_run
from pag_graph.cypher import queries_for_people
from pag_graph.sinks.neo4j.query import answer_query, complete

if TYPE_CHECKING:
    from collections.abc import Mapping

    import neo4j

    from pag_graph.graph.run import Run


def run(session: Session) -> None:
    """Load the run where no home with it is given, and ask."""
    opened = opened_run(session)
    with holding(session, opened, "neo4j-queries") as driver:
        _queries(session, driver, opened)


def _queries(session: Session, driver: neo4j.Driver, opened: Run) -> None:
    """Measure each query with parameters that make it work: the slowest round, a worker's longest wait there."""
    idle = Yardstick(name="RETURN 1", run=lambda: driver.execute_query("RETURN 1"))
    window = opened.slowest()
    parameters = {"worker": opened.workers[0], "at_ns": _longest_wait(driver, opened), "epoch": window.epoch}
    for query in queries_for_people():
        if query.folder != "root_cause":
            continue
        chosen = {name: value for name, value in parameters.items() if name in query.params}
        values = complete(driver, query, {"run": str(opened.info.run["run_id"]), **chosen})
        profiled = answer_query(driver, query, values, plan="profile")
        assert profiled.plan is not None
        figure = session.measure(
            query.name,
            lambda query=query, values=values: answer_query(driver, query, values),
            against=idle,
            target="1 s",
        )
        figure.values = {"rows": len(profiled.rows), "touched": hits(profiled.plan)}


def hits(plan: Mapping[str, Any]) -> int:
    """Return what all steps of a plan touched."""
    return int(plan["args"].get("DbHits", 0)) + sum(hits(child) for child in plan.get("children", ()))


def _longest_wait(driver: neo4j.Driver, opened: Run) -> int:
    """Return an instant in the first worker's longest wait in the slowest round; its middle where it never waits."""
    window = opened.slowest()
    rows, _, _ = driver.execute_query(
        "MATCH (a:Event {run: $run, worker: $worker})-[wait:WAITING]->(z:Event) "
        "WHERE a.t_ns > $start AND a.t_ns < $end "
        "RETURN (a.t_ns + z.t_ns) / 2 AS at_ns ORDER BY wait.duration_ns DESC LIMIT 1",
        {
            "run": str(opened.info.run["run_id"]),
            "worker": opened.workers[0],
            "start": window.start_ns,
            "end": window.end_ns,
        },
    )
    return int(rows[0]["at_ns"]) if rows else (window.start_ns + window.end_ns) // 2


BENCH = Bench(
    name="cypher_queries",
    title="Root-cause queries in Neo4j",
    about=(
        "The ten queries of `cypher/root_cause` look at the slowest round of a run whose epochs are all loaded"
        " with the detail `full`. The embedded server is asked by its driver, after a warm-up. `touched` is what"
        " the server counts as accesses. The run is the bundled `bfs`, or the one of the store that"
        " `PAG_BENCH_STORE` names; `PAG_BENCH_NEO4J_HOME` names a home that already holds it."
    ),
    run=run,
    needs=needs,
)
