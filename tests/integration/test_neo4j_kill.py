"""Loads that are killed, and servers that are: afterwards the database is what a clean load makes it, node by node.

Meanwhile somebody polls, and never sees half an epoch. Four loaders and one server by default, which loads waits; with
``PAG_PROVE=1`` fifty and ten, which load everything, as the product promises.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from neo4j.exceptions import DriverError
from neo4j.exceptions import Neo4jError as ServerError

from pag_graph.analyses import find_analysis
from pag_graph.analyses.critical_path import critical_path
from pag_graph.neo4j_server import server
from pag_graph.sinks.neo4j.detail import Detail
from pag_graph.sinks.neo4j.loader import LoadOptions, load_run, remove_run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import neo4j

    from pag_graph.graph.run import Run
    from pag_graph.neo4j_server.server import ServerStatus

waits = find_analysis("waits")

pytestmark = pytest.mark.neo4j

PROVE = os.environ.get("PAG_PROVE") == "1"
LOADERS = 50 if PROVE else 4
SERVERS = 10 if PROVE else 1
SERVERS_LOAD = Detail.FULL if PROVE else Detail.WAITS
PAUSE_S = 0.0 if PROVE else 0.3
"""Between two looks: without it, looking is what the server is busy with."""

# Small batches and groups, so that there are many places to be killed at; again and again what is there is read.
LOADER = """
import sys
from pathlib import Path
from pag_graph.graph.run import Run
from pag_graph.neo4j_server import server
from pag_graph.sinks.neo4j.detail import Detail
from pag_graph.sinks.neo4j.loader import LoadOptions, load_run
run = Run(Path(sys.argv[1]))
options = LoadOptions(detail=Detail(sys.argv[3]), batch_rows=40, group_edges=300, sessions=2)
with server.driver(server.status(Path(sys.argv[2]))) as driver:
    driver.verify_connectivity()
    print("ready", flush=True)
    load_run(run, driver, options=options, again=True)
print("done", flush=True)
"""


def contents(driver: neo4j.Driver) -> tuple[list[str], list[str]]:
    """Return all nodes and relationships, without the server's own ids and without who may write at present."""
    nodes = "MATCH (n) WHERE NOT n:Lease RETURN labels(n) AS labels, properties(n) AS has"
    relationships = (
        "MATCH (a)-[r]->(b) RETURN type(r) AS type, properties(r) AS has, labels(a) AS begins, properties(a) AS begin, "
        "labels(b) AS ends, properties(b) AS end"
    )

    def rows(text: str) -> list[str]:
        found = driver.execute_query(text).records
        return sorted(repr([(name, _sorted(value)) for name, value in record.items()]) for record in found)

    return rows(nodes), rows(relationships)


def _sorted(value: Any) -> Any:
    return sorted(value.items()) if isinstance(value, dict) else value


class Reader(threading.Thread):
    """Asks for published epochs all the time, and whether they are whole."""

    def __init__(self, home: Path, run: Run, detail: Detail) -> None:
        super().__init__(daemon=True)
        self.home, self.run_id, self.detail = home, str(run.info.run["run_id"]), detail
        self.ended = threading.Event()
        self.looks = 0
        self.broken: list[Any] = []
        self.expected = {epoch: facts(run, epoch, detail) for epoch in run.epochs["epoch"].to_list()}

    def run(self) -> None:
        while not self.ended.is_set():
            try:
                with server.driver(server.status(self.home)) as driver:
                    while not self.ended.is_set():
                        self._look(driver)
                        self.ended.wait(PAUSE_S)
            except ServerError as error:
                if "ClientError.Statement" in str(error.code):
                    self.broken.append(error)
                    return
                time.sleep(0.2)
            except (DriverError, server.Neo4jError, OSError):
                time.sleep(0.2)  # the server is being killed, or comes back

    def _look(self, driver: neo4j.Driver) -> None:
        with driver.session(default_access_mode="READ") as session:
            for row in session.run(LOOK[self.detail], {"run": self.run_id}).data():
                self.looks += 1
                if row["seen"] != self.expected[row["epoch"]]:
                    self.broken.append((row, self.expected[row["epoch"]]))


# What a query for people sees of each published epoch; one query is one look at one state of the database.
LOOK = {
    Detail.WAITS: """
        MATCH (epoch:Epoch {run: $run, published: true})
        OPTIONAL MATCH (:Segment)-[wait:THEN]->(segment:Segment {run: $run, round: epoch.epoch})
        OPTIONAL MATCH (:Segment)-[released:RELEASED]->(segment)
        RETURN epoch.epoch AS epoch, [count(wait), count(released), sum(wait.waited_ns)] AS seen""",
    Detail.FULL: """
        MATCH (epoch:Epoch {run: $run, published: true})
        CALL (epoch) {
          MATCH (worker:Worker {run: $run})
          MATCH (event:Event {run: $run, worker: worker.worker})
          WHERE epoch.start_ns < event.t_ns <= epoch.end_ns
          OPTIONAL MATCH (event)<-[activity]-(:Event)
          RETURN count(DISTINCT event) AS events, count(activity) AS activities, sum(activity.duration_ns) AS spent_ns
        }
        OPTIONAL MATCH (epoch)-[:HAS_SNAPSHOT]->(:Snapshot {current: true})-[:CONTAINS]->(step:CriticalStep)
        WITH epoch, events, activities, spent_ns, sum(step.duration_ns) AS path_ns
        RETURN epoch.epoch AS epoch, [events, activities, spent_ns, path_ns] AS seen""",
}


def facts(run: Run, epoch: int, detail: Detail) -> list[int]:
    """Compute from the store what `LOOK` must see of an epoch."""
    window = run.window(epoch=epoch)
    snapshot = run.snapshot(window)
    after = window.start_ns
    if detail is Detail.WAITS:
        local = snapshot.local
        waited = local.filter(
            (local["type"] == "waiting") & (local["end_ns"] > after) & (local["end_ns"] <= window.end_ns)
        )
        return [waited.height, waited.height, int(waited["duration_ns"].sum())]
    vertices = run.scan("vertices").collect()
    inside = vertices.filter((vertices["t_ns"] > window.start_ns) & (vertices["t_ns"] <= window.end_ns))
    edges = run.scan("edges").collect()
    ending = edges.filter(edges["dst"].is_in(inside["id"].implode()))
    return [inside.height, ending.height, int(ending["duration_ns"].sum()), critical_path(snapshot).length_ns]


@pytest.fixture
def home(neo4j_server: ServerStatus, neo4j_driver: neo4j.Driver) -> Iterator[Path]:
    """Return the home of the shared server, whose database is empty."""
    del neo4j_driver
    return neo4j_server.home


def start_loader(run: Run, home: Path, detail: Detail) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", LOADER, str(run.info.path), str(home), str(detail)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    return process


def kill_loader(run: Run, home: Path, detail: Detail, after_s: float) -> bool:
    """Start a loader and kill it; say whether it was still at work."""
    with start_loader(run, home, detail) as process:
        try:
            process.wait(after_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            return True
        return False


@pytest.mark.parametrize("detail", [Detail.WAITS, Detail.FULL])
def test_killed_loaders_leave_no_trace(neo4j_driver: neo4j.Driver, home: Path, two_rounds: Run, detail: Detail) -> None:
    whole = clean(neo4j_driver, two_rounds, detail)
    reader = Reader(home, two_rounds, detail)
    reader.start()
    chance = random.Random(f"{detail}-{os.environ.get('PAG_PROVE')}")
    began = time.monotonic()
    with start_loader(two_rounds, home, detail) as process:
        assert process.wait(600) == 0
    usual_s = time.monotonic() - began
    killed = 0
    for _ in range(LOADERS // 2 + LOADERS % 2):
        if chance.random() < 0.5:
            remove_run(neo4j_driver, reader.run_id)
        killed += kill_loader(two_rounds, home, detail, chance.uniform(0.0, usual_s))
    load_run(two_rounds, neo4j_driver, options=LoadOptions(detail=detail))
    reader.ended.set()
    reader.join(60)
    assert killed
    assert reader.looks
    assert not reader.broken
    assert contents(neo4j_driver) == whole


def clean(driver: neo4j.Driver, run: Run, detail: Detail) -> tuple[list[str], list[str]]:
    """Load once without trouble, remember what that makes, and remove it."""
    load_run(run, driver, options=LoadOptions(detail=detail))
    whole = contents(driver)
    remove_run(driver, str(run.info.run["run_id"]))
    assert contents(driver) == ([], [])
    return whole


def test_killed_servers_lose_nothing(two_rounds: Run, tmp_path_factory: pytest.TempPathFactory) -> None:
    home = tmp_path_factory.mktemp("killed server") / "home"
    # Below the ports that clients get: one that calls a dead port of its own range can end up talking to itself.
    started = server.start(home, bolt_port=27_687, http_port=27_474)
    ports = {"bolt_port": port_of(started.bolt_uri), "http_port": port_of(started.http_uri), "fixed_ports": True}
    try:
        with server.driver(started) as driver:
            whole = clean(driver, two_rounds, SERVERS_LOAD)
        reader = Reader(home, two_rounds, SERVERS_LOAD)
        reader.start()
        chance = random.Random(7)
        for number in range(SERVERS):
            with start_loader(two_rounds, home, SERVERS_LOAD) as process:
                time.sleep(chance.uniform(0.0, 3.0))
                pid = server.status(home).pid
                assert pid
                os.kill(pid, signal.SIGKILL)
                while server.status(home).running:
                    time.sleep(0.05)
                # Half of the loaders live to see it come back, and go on; the others die with it.
                if number % 2:
                    process.kill()
                server.start(home, **ports)
                process.wait(600)
        with server.driver(server.status(home)) as driver:
            load_run(two_rounds, driver, options=LoadOptions(detail=SERVERS_LOAD, lease_s=60))
            assert contents(driver) == whole
        reader.ended.set()
        reader.join(60)
        assert reader.looks
        assert not reader.broken
    finally:
        server.stop(home)


def port_of(uri: str | None) -> int:
    assert uri
    return int(uri.rsplit(":", 1)[1])


def test_what_a_look_expects_is_what_the_engine_says(two_rounds: Run) -> None:
    """The reader's yardstick is itself checked, against the analysis of waits."""
    whole = sum(facts(two_rounds, epoch, Detail.WAITS)[2] for epoch in two_rounds.epochs["epoch"].to_list())
    inside = sum(
        sum(row["waiting_ns"] for row in waits(two_rounds.snapshot(window)).to_pylist())
        for window in two_rounds.windows()
    )
    assert whole == inside
