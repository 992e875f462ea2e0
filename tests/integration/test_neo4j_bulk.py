"""The bulk import makes the database that a load makes, node by node; and an interrupted one is noticed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
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
    from collections.abc import Callable
    from pathlib import Path

    from pag_graph.graph.run import Run

pytestmark = pytest.mark.neo4j


Contents = tuple[list[str], list[str]]


def contents(driver: neo4j.Driver) -> Contents:
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


def loaded_anew(driver: neo4j.Driver, run: Run) -> Contents:
    """Remove a run, load it, and return what is there."""
    remove_run(driver, str(run.info.run["run_id"]))
    assert contents(driver) == ([], [])
    load_run(run, driver, options=LoadOptions(detail=Detail.FULL))
    return contents(driver)


def interrupted_import(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted when the database is made and its epochs are not published yet: a load completes it."""

    def interrupted(*_: object) -> None:
        raise InterruptedError

    with monkeypatch.context() as patched:
        patched.setattr(bulk.load_steps, "publish", interrupted)
        with pytest.raises(InterruptedError):
            load_bulk(run, home, detail=Detail.FULL, ports=(0, 0))
    with server.driver(server.status(home)) as driver:
        with pytest.raises(InvalidParameterError, match=r"No epoch of run .* is loaded"):
            run_query(driver, "epochs/trend", {"run": str(run.info.run["run_id"])})
        load_run(run, driver, options=LoadOptions(detail=Detail.FULL))
        completed = contents(driver)
        assert completed == loaded_anew(driver, run)
    server.stop(home)
    assert server.reset(home)


def whole_import(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An import, and a copy of it, hold what a load makes; both are refused where they would harm a server."""
    del monkeypatch
    done = load_bulk(run, home, detail=Detail.FULL, options=LoadOptions(group_edges=500), ports=(0, 0))
    assert done.epochs == tuple(run.epochs["epoch"])
    with server.driver(server.status(home)) as driver:
        imported = contents(driver)
        # A load finds it complete, and what it would write is what is there.
        again = load_run(run, driver, options=LoadOptions(detail=Detail.FULL))
        assert not again.epochs
        assert contents(driver) == imported
        assert loaded_anew(driver, run) == imported
    with pytest.raises(Neo4jError, match="already has a database"):
        load_bulk(run, home)
    with pytest.raises(Neo4jError, match="runs; an import needs it stopped"):
        load_bulk(run, home, overwrite=True)
    with pytest.raises(Neo4jError, match="runs; copying needs it stopped"):
        copying.copy(home.with_name("copy"), home)
    server.stop(home)
    check_copy(home, copying.copy(home.with_name("copy"), home), imported)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("imports", [whole_import, interrupted_import])
def test_an_import_is_a_load(
    imports: Callable[..., None], two_rounds: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    try:
        imports(two_rounds, home, monkeypatch)
    finally:
        server.stop(home)


def check_copy(home: Path, copied: Path, whole: Contents) -> None:
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


def test_an_interrupted_import_is_noticed(two_rounds: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"

    def interrupted(*_: object, **__: object) -> str:
        (home / "data" / "databases" / "neo4j").mkdir(parents=True, exist_ok=True)
        raise InterruptedError

    monkeypatch.setattr(bulk.server, "administer", interrupted)
    with pytest.raises(InterruptedError):
        load_bulk(two_rounds, home)
    assert server_home.is_half_imported(home)
    with pytest.raises(Neo4jError, match="was interrupted") as caught:
        server.start(home)
    assert "--bulk" in str(caught.value.hint)
    # It may be done again without --overwrite: there is nothing to lose.
    with pytest.raises(InterruptedError):
        load_bulk(two_rounds, home)
    assert server.reset(home)
    assert not server_home.is_half_imported(home)


_KILLED = """\
import os, signal, sys
from pathlib import Path
from pag_graph import api
from pag_graph.sinks.neo4j import bulk

def killed(*_, **__):
    (Path(sys.argv[2]) / "data" / "databases" / "neo4j").mkdir(parents=True, exist_ok=True)
    os.kill(os.getpid(), signal.SIGKILL)

bulk.server.administer = killed
bulk.load_bulk(api.open(Path(sys.argv[1])).run, Path(sys.argv[2]))
"""


def test_a_killed_import_is_no_database_and_its_files_go_with_the_next(
    two_rounds: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, scratch = tmp_path / "home", tmp_path / "scratch"
    scratch.mkdir()
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, str(two_rounds.info.path), str(home)],
        env={**os.environ, "TMPDIR": str(scratch)},
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    (left,) = scratch.glob("pag-graph-import-*")
    assert list(left.glob("*.csv"))
    with pytest.raises(Neo4jError, match="was interrupted"):
        server.start(home)

    def looked(*_: object, **__: object) -> str:
        (own,) = scratch.glob("pag-graph-import-*")
        assert own != left
        raise InterruptedError

    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    monkeypatch.setattr(bulk.server, "administer", looked)
    with pytest.raises(InterruptedError):
        load_bulk(two_rounds, home)
    assert not list(scratch.iterdir())
