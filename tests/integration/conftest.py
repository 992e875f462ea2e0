"""What tests share: a Neo4j server for all that need one, and runs that it is loaded with."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pag_graph import api, samples

if TYPE_CHECKING:
    from collections.abc import Iterator

    import neo4j

    from pag_graph.graph.snapshot import Run
    from pag_graph.neo4j_server.server import ServerStatus

LAST_ROUND = 3
"""Of `first_rounds`, without ``PAG_PROVE=1``."""


@pytest.fixture(scope="session")
def skewed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Build a bundled trace of 11 epochs, 2,000 events and 4 workers; nobody changes its store."""
    store = tmp_path_factory.mktemp("skewed") / "skewed.pag"
    api.build(samples.path("skewed"), store, engine="local")
    return api.open(store).run


@pytest.fixture(scope="session")
def first_rounds(skewed: Run, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Build the first rounds of the same trace: what is loaded again and again; all of it with ``PAG_PROVE=1``."""
    if os.environ.get("PAG_PROVE") == "1":
        return skewed
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    folder = tmp_path_factory.mktemp("first rounds")
    shutil.copytree(samples.path("skewed"), folder / "trace")
    for file in sorted((folder / "trace" / "events").glob("*.parquet")):
        pq.write_table(pq.read_table(file, filters=pc.field("epoch") <= LAST_ROUND), file)
    api.build(folder / "trace", folder / "store", engine="local")
    return api.open(folder / "store").run


@pytest.fixture(scope="session")
def neo4j_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerStatus]:
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
    home = tmp_path_factory.mktemp("neo4j-shared") / "neo4j"
    yield server.start(home, bolt_port=0, http_port=0, heap="512m")
    assert server.stop(home)


@pytest.fixture
def neo4j_driver(neo4j_server: ServerStatus) -> Iterator[neo4j.Driver]:
    """Open a driver to the server, whose database has no node; constraints may be there or not."""
    from pag_graph.neo4j_server import server

    with server.driver(neo4j_server) as driver:
        wipe = "MATCH (node) WITH node LIMIT 10000 DETACH DELETE node RETURN count(*) AS removed"
        while driver.execute_query(wipe).records[0]["removed"]:
            pass
        yield driver
