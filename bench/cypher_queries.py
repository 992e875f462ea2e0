"""The ten root-cause queries on a graph of a million relationships, warm.

Usage: ``python bench/cypher_queries.py STORE [--home FOLDER] [--repeat 7] [--load]``

`STORE` is a built run, for instance of ``pag record bfs``. With ``--load``, or without a home, all its epochs are
loaded first with the detail `full`, by the bulk import, into a server of its own (removed afterwards where no home is
given). Each query runs once to warm up and then ``--repeat`` times for the slowest round; printed are the median and
the worst time in the client, the rows, and what the server had to touch. As yardstick the same driver asks
``RETURN 1``.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pag_graph import api
from pag_graph.cypher import queries_for_people
from pag_graph.sinks.neo4j import server
from pag_graph.sinks.neo4j.query import answer_query, complete

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import neo4j

    from pag_graph.pag.snapshot import Run


def timed(action: Callable[[], Any], repeat: int) -> list[float]:
    """Return milliseconds of each run, after one that does not count."""
    action()
    times = []
    for _ in range(repeat):
        began = time.perf_counter()
        action()
        times.append((time.perf_counter() - began) * 1000)
    return times


def hits(plan: Mapping[str, Any]) -> int:
    """Return what all steps of a plan touched."""
    return int(plan["args"].get("DbHits", 0)) + sum(hits(child) for child in plan.get("children", ()))


def measure(driver: neo4j.Driver, run: Run, repeat: int) -> Iterator[tuple[str, float, float, int, int]]:
    """Yield name, median and worst milliseconds, rows and touched entities of each query."""
    window = run.slowest()
    given = {"worker": run.workers[0], "at_ns": longest_wait(driver, run)}
    for query in queries_for_people():
        if query.folder != "root_cause":
            continue
        chosen = {name: value for name, value in given.items() if name in query.params}
        if "epoch" in query.params:
            chosen["epoch"] = window.epoch
        values = complete(driver, query, {"run": str(run.info.run["run_id"]), **chosen})
        times = timed(lambda q=query, v=values: answer_query(driver, q, v), repeat)
        profiled = answer_query(driver, query, values, plan="profile")
        assert profiled.plan is not None
        yield query.name, statistics.median(times), max(times), len(profiled.rows), hits(profiled.plan)


def longest_wait(driver: neo4j.Driver, run: Run) -> int:
    """Return an instant in the first worker's longest wait in the slowest round; its middle where it never waits."""
    window = run.slowest()
    rows, _, _ = driver.execute_query(
        "MATCH (a:Event {run: $run, worker: $worker})-[wait:WAITING]->(z:Event) "
        "WHERE a.t_ns > $start AND a.t_ns < $end "
        "RETURN (a.t_ns + z.t_ns) / 2 AS at_ns ORDER BY wait.duration_ns DESC LIMIT 1",
        {
            "run": str(run.info.run["run_id"]),
            "worker": run.workers[0],
            "start": window.start_ns,
            "end": window.end_ns,
        },
    )
    return int(rows[0]["at_ns"]) if rows else (window.start_ns + window.end_ns) // 2


def main() -> None:
    """Load where asked for, measure, and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--home", type=Path)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--load", action="store_true")
    parser.add_argument("--heap", default="1g")
    options = parser.parse_args()
    run = api.open(options.store).run
    with tempfile.TemporaryDirectory() as scratch:
        home = options.home or Path(scratch) / "home"
        running = server.status(home).running
        if options.load or options.home is None:
            from pag_graph.sinks.neo4j.bulk import load_bulk

            load_bulk(run, home, overwrite=True, heap=options.heap, ports=(0, 0))
        now = server.start(home, bolt_port=0, http_port=0, heap=options.heap)
        try:
            with server.driver(now) as driver:
                counted = "MATCH ()-[r]->() RETURN count(r) AS relationships"
                relationships = driver.execute_query(counted).records[0]["relationships"]
                idle = timed(lambda: driver.execute_query("RETURN 1"), options.repeat)
                print(f"{relationships:,} relationships; epoch {run.slowest().epoch} of {run.epochs.height}")
                print("\n| query | median ms | worst ms | rows | touched |\n|---|---:|---:|---:|---:|")
                print(f"| `RETURN 1` | {statistics.median(idle):.1f} | {max(idle):.1f} | 1 | 0 |")
                for name, median, worst, rows, touched in measure(driver, run, options.repeat):
                    print(f"| `{name}` | {median:.1f} | {worst:.1f} | {rows:,} | {touched:,} |", flush=True)
        finally:
            if not running:
                server.stop(home)


if __name__ == "__main__":
    main()
