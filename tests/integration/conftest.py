"""One Neo4j server for all tests that need one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    import neo4j

    from pag_graph.neo4j_server.server import ServerStatus


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
