"""The bulk import makes the database that a load makes, node by node; and an interrupted one is noticed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import neo4j
import pytest

from pag_graph.errors import InvalidParameterError, Neo4jError
from pag_graph.neo4j_server import copying, server
from pag_graph.neo4j_server import home as server_home
from pag_graph.sinks.neo4j import bulk
from pag_graph.sinks.neo4j.bulk import load_bulk
from pag_graph.sinks.neo4j.detail import Detail
from pag_graph.sinks.neo4j.loader import LoadOptions, load_run, remove_run
from pag_graph.sinks.neo4j.query import run_query

if TYPE_CHECKING:
    from pathlib import Path

    from pag_graph.graph.run import Run

pytestmark = pytest.mark.neo4j


def contents(driver: neo4j.Driver) -> tuple[list[str], list[str]]:
    """Return all nodes and relationships with all properties and their types, without the server's own ids."""
    # A server gives labels in the order in which it has met them first.
    nodes = (
        "MATCH (n) RETURN COLLECT { UNWIND labels(n) AS label RETURN label ORDER BY label } AS labels, "
        "properties(n) AS has"
    )
    between = "MATCH (a)-[r]->(b) RETURN type(r) AS type, properties(r) AS has, properties(a) AS a, properties(b) AS b"

    def rows(text: str) -> list[str]:
        found = driver.execute_query(text).records
        return sorted(
            repr(
                [(name, sorted(value.items()) if isinstance(value, dict) else value) for name, value in record.items()]
            )
            for record in found
        )

    return rows(nodes), rows(between)


def test_an_import_is_a_load(first_rounds: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"

    def interrupted(*_: object) -> None:
        raise InterruptedError

    try:
        # Interrupted when the database is made and its epochs are not published yet: a load completes it.
        with monkeypatch.context() as patched:
            patched.setattr(bulk.load_steps, "publish", interrupted)
            with pytest.raises(InterruptedError):
                load_bulk(first_rounds, home, detail=Detail.FULL, ports=(0, 0))
        with server.driver(server.status(home)) as driver:
            with pytest.raises(InvalidParameterError, match=r"No epoch of run .* is loaded"):
                run_query(driver, "epochs/trend", {"run": str(first_rounds.info.run["run_id"])})
            load_run(first_rounds, driver, options=LoadOptions(detail=Detail.FULL))
            completed = contents(driver)
            remove_run(driver, str(first_rounds.info.run["run_id"]))
            assert contents(driver) == ([], [])
            load_run(first_rounds, driver, options=LoadOptions(detail=Detail.FULL))
            nodes, relationships = contents(driver)
            assert completed == (nodes, relationships)
        server.stop(home)
        server.reset(home)
        done = load_bulk(first_rounds, home, detail=Detail.FULL, options=LoadOptions(group_edges=500), ports=(0, 0))
        assert done.epochs == tuple(first_rounds.epochs["epoch"])
        with server.driver(server.status(home)) as driver:
            found_nodes, found_relationships = contents(driver)
            assert found_nodes == nodes
            assert found_relationships == relationships
            # A load finds it complete, and what it would write is what is there.
            again = load_run(first_rounds, driver, options=LoadOptions(detail=Detail.FULL))
            assert not again.epochs
        with pytest.raises(Neo4jError, match="has a database already"):
            load_bulk(first_rounds, home)
        with pytest.raises(Neo4jError, match="runs; an import needs it stopped"):
            load_bulk(first_rounds, home, overwrite=True)
        with pytest.raises(Neo4jError, match="runs; copying needs it stopped"):
            copying.copy(tmp_path / "copy", home)
        server.stop(home)
        check_copy(home, copying.copy(tmp_path / "copy", home), (nodes, relationships))
    finally:
        server.stop(home)


def check_copy(home: Path, copied: Path, whole: tuple[list[str], list[str]]) -> None:
    """A copy holds the same, has a password of its own, and refuses to be written; it is replaced only if told."""
    started = server.start(copied, bolt_port=0, http_port=0)
    try:
        assert started.password_file.read_text() != (home / "password").read_text()
        with server.driver(started) as driver:
            assert contents(driver) == whole
            for text in ("CREATE (:Mine)", "MATCH (event:Event) SET event.t_ns = 0", "MATCH (node) DETACH DELETE node"):
                with pytest.raises(neo4j.exceptions.Neo4jError, match=r"read-only mode"):
                    driver.execute_query(text)
            assert contents(driver) == whole
    finally:
        server.stop(copied)
    with pytest.raises(Neo4jError, match="an earlier copy"):
        copying.copy(copied, home)
    with pytest.raises(Neo4jError, match="a server that is no copy"):
        copying.copy(home, copied, replace=True)
    with pytest.raises(Neo4jError, match="no database to copy"):
        copying.copy(copied.with_name("another"), copied.with_name("nothing"))


def test_an_interrupted_import_is_noticed(first_rounds: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"

    def interrupted(*_: object, **__: object) -> str:
        (home / "data" / "databases" / "neo4j").mkdir(parents=True, exist_ok=True)
        raise InterruptedError

    monkeypatch.setattr(bulk.server, "administer", interrupted)
    with pytest.raises(InterruptedError):
        load_bulk(first_rounds, home)
    assert server_home.is_half_imported(home)
    with pytest.raises(Neo4jError, match="was interrupted") as caught:
        server.start(home)
    assert "--bulk" in str(caught.value.hint)
    # It may be done again without --overwrite: there is nothing to lose.
    with pytest.raises(InterruptedError):
        load_bulk(first_rounds, home)
    assert server.reset(home)
    assert not server_home.is_half_imported(home)
