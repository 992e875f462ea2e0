"""What tests share: a Neo4j server for all that need one, and runs that it is loaded with."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pag_graph import api, samples
from pag_graph.neo4j_server import home as server_home
from tests.support.chromium import Chromium, find_chromium

if TYPE_CHECKING:
    from collections.abc import Iterator

    import neo4j

    from pag_graph.graph.run import Run
    from pag_graph.neo4j_server.server import ServerStatus

PROVE = os.environ.get("PAG_PROVE") == "1"
LAST_ROUND = 3
"""Of `first_rounds`, without ``PAG_PROVE=1``."""
LAST_EPOCHS = {} if PROVE else {"bfs": 5}
"""Of bundled traces that are not loaded whole: a server takes a minute for all of them."""


PLANS_ARE_KEPT = """\
dbms.cypher.min_replan_interval=1h
internal.cypher.use_parameter_size=false
"""
"""For servers of Neo4j. Tests fill and empty the database again and again; half of a server's work was to plan the same
queries anew, for each size of the database and of the parameters."""


@pytest.fixture(scope="session", autouse=True)
def _quick_servers() -> Iterator[None]:
    """Let Java compile once and quickly, servers and jobs of Spark included: most live for seconds."""
    with pytest.MonkeyPatch.context() as patch:
        if not PROVE:
            patch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
            patch.setattr(server_home, "_CONFIGURATION", server_home._CONFIGURATION + PLANS_ARE_KEPT)
        yield


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """Start a browser without a window."""
    program = find_chromium()
    if program is None:
        pytest.skip("there is no Chromium; install it (Debian: apt-get install chromium) or name it in PAG_CHROMIUM")
    opened = Chromium(program, tmp_path_factory.mktemp("chromium"))
    try:
        opened.open_page()
        yield opened
    finally:
        opened.close()


@pytest.fixture(scope="session")
def skewed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Build a bundled trace of 11 epochs, 2,000 events and 4 workers; nobody changes its store."""
    store = tmp_path_factory.mktemp("skewed") / "skewed.pag"
    api.build(samples.path("skewed"), store, engine="local")
    return api.open(store).run


@pytest.fixture(scope="session")
def two_rounds(skewed: Run, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Build still fewer of them, for servers that are new: what they do first is slow."""
    return skewed if PROVE else build_first_epochs("skewed", 1, tmp_path_factory.mktemp("two rounds"))


@pytest.fixture(scope="session")
def first_rounds(skewed: Run, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Build the first rounds of the same trace: what is loaded again and again; all of it with ``PAG_PROVE=1``."""
    if PROVE:
        return skewed
    return build_first_epochs("skewed", LAST_ROUND, tmp_path_factory.mktemp("first rounds"))


def keep_epochs(trace: Path, last: int) -> None:
    """Cut a canonical trace after an epoch."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    for file in sorted((trace / "events").glob("*.parquet")):
        pq.write_table(pq.read_table(file, filters=pc.field("epoch") <= last), file)


def build_first_epochs(name: str, last: int, folder: Path) -> Run:
    """Build a bundled trace up to an epoch, in a folder: store and trace are called as the sample is."""
    trace = folder / f"{name}.trace"
    shutil.copytree(samples.path(name), trace)
    keep_epochs(trace, last)
    api.build(trace, folder / name, engine="local")
    return api.open(folder / name).run


@pytest.fixture(scope="session")
def neo4j_server(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[ServerStatus]:
    """Start a real server on free ports, with data of its own; stop it when all tests are done.

    ``PAG_TEST_NEO4J_HOME`` names the home of one that runs already, to be used instead: all in it is removed.
    """
    pytest.importorskip("neo4j", reason="Neo4j's driver is not installed")
    from pag_graph.errors import Neo4jError
    from pag_graph.neo4j_server import jars, server

    try:
        jars.find_java()
    except Neo4jError as error:
        pytest.skip(error.message)
    if running := os.environ.get("PAG_TEST_NEO4J_HOME"):
        yield server.status(Path(running))
        return
    if "groups" in getattr(pytestconfig, "workerinput", {}):
        # All tests of a group run in one process: where a second one comes here, tests are not handed out in groups.
        (tmp_path_factory.getbasetemp().parent / "neo4j-started").touch(exist_ok=False)
    home = tmp_path_factory.mktemp("neo4j-shared") / "neo4j"
    yield server.start(home, bolt_port=0, http_port=0, heap="512m")
    assert server.stop(home)


class Database:
    """The one database of the shared server; knows whether it still holds the bundled traces.

    Parameters
    ----------
    driver
        Open to the server.
    """

    def __init__(self, driver: neo4j.Driver) -> None:
        self.driver = driver
        self._bundled = False

    def wipe(self) -> None:
        """Remove all nodes; constraints may stay."""
        self._bundled = False
        text = "MATCH (node) WITH node LIMIT 10000 DETACH DELETE node RETURN count(*) AS removed"
        while self.driver.execute_query(text).records[0]["removed"]:
            pass

    def load_bundled(self, runs: dict[str, Run]) -> None:
        """Load the bundled traces in full, where they are not there any more."""
        from pag_graph.sinks.neo4j.answers import write_advice
        from pag_graph.sinks.neo4j.loader import load_run

        if not self._bundled:
            self.wipe()
            for run in runs.values():
                load_run(run, self.driver)
            skewed = runs["skewed"]
            write_advice(self.driver, skewed, api.open(skewed.info.path).advise(epoch=4, beta=0.0))
            self._bundled = True
            # Plans that were made when the database held something else are forgotten (`PLANS_ARE_KEPT`), and new ones
            # know what the indexes hold by now: so a query is planned once, whichever tests look at its plan.
            self.driver.execute_query("CALL db.prepareForReplanning(60)")


@pytest.fixture(scope="session")
def neo4j_database(neo4j_server: ServerStatus) -> Iterator[Database]:
    """Open the database of the shared server."""
    from pag_graph.neo4j_server import server

    with server.driver(neo4j_server) as driver:
        yield Database(driver)


@pytest.fixture
def neo4j_driver(neo4j_database: Database) -> neo4j.Driver:
    """Return a driver to the server, whose database has no node; constraints may be there or not."""
    neo4j_database.wipe()
    return neo4j_database.driver


@pytest.fixture(scope="session")
def bundled_runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Build the bundled traces of programs whose workers are all there from the start; nobody changes their stores.

    Of those in `LAST_EPOCHS`, the first epochs.
    """
    folder = tmp_path_factory.mktemp("bundled")
    runs = {}
    for name in samples.names():
        if name in LAST_EPOCHS:
            runs[name] = build_first_epochs(name, LAST_EPOCHS[name], folder)
        elif name != "elastic":
            api.build(samples.path(name), folder / name, engine="local")
            runs[name] = api.open(folder / name).run
    return runs


@pytest.fixture
def bundled_driver(neo4j_database: Database, bundled_runs: dict[str, Run]) -> neo4j.Driver:
    """Return a driver to a server that holds all epochs of all bundled traces; tests only read."""
    neo4j_database.load_bundled(bundled_runs)
    return neo4j_database.driver
