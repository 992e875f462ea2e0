"""The named patterns: motif and Cypher twin return the same rows, and both return what a look at the graph gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pag_graph import api
from pag_graph.cli.demo import SAMPLES
from pag_graph.cypher import load_query
from pag_graph.motif.patterns import PATTERNS, Pattern
from pag_graph.neo4j_server import server
from pag_graph.sinks.neo4j import loader
from pag_graph.sinks.neo4j.query import answer_query, complete

if TYPE_CHECKING:
    from collections.abc import Iterator

    import neo4j

    from pag_graph.neo4j_server.server import ServerStatus

pytestmark = pytest.mark.neo4j

# Where each pattern is found, with which parameters: a comparison of nothing with nothing would show nothing.
CASES: list[tuple[str, str, dict[str, int]]] = [
    ("wait_ended_by_data", "bfs", {}),
    ("wait_ended_by_data", "triangles", {"min_ns": 20_000}),
    ("wait_chain", "skewed", {}),
    ("wait_chain", "skewed", {"gap_ns": 10**10}),
    ("fan_in", "skewed", {}),
    ("fan_in", "skewed", {"within_ns": 10**9}),
    ("ping_pong", "bfs", {}),
    ("ping_pong", "triangles", {"within_ns": 200_000}),
    ("late_sender", "skewed", {}),
    ("late_sender", "bfs", {"min_ns": 10_000}),
    ("late_receiver", "bfs", {}),
    ("late_receiver", "triangles", {"min_ns": 0}),
    ("message_burst", "triangles", {}),
    ("message_burst", "bfs", {"within_ns": 10**9}),
    ("idle_beside_backlog", "skewed", {}),
    ("idle_beside_backlog", "bfs", {"min_ns": 10_000}),
]


@pytest.fixture(scope="module")
def pags(tmp_path_factory: pytest.TempPathFactory) -> dict[str, api.Pag]:
    folder = tmp_path_factory.mktemp("patterns")
    samples = sorted({sample for _, sample, _ in CASES})
    for sample in samples:
        api.build(SAMPLES / sample, folder / sample, engine="local")
    return {sample: api.open(folder / sample) for sample in samples}


@pytest.fixture(scope="module")
def driver(neo4j_server: ServerStatus, pags: dict[str, api.Pag]) -> Iterator[neo4j.Driver]:
    """Open a driver to a server that holds all epochs of the samples; tests only read."""
    with server.driver(neo4j_server) as opened:
        wipe = "MATCH (node) WITH node LIMIT 10000 DETACH DELETE node RETURN count(*) AS removed"
        while opened.execute_query(wipe).records[0]["removed"]:
            pass
        for pag in pags.values():
            loader.load_run(pag.run, opened)
        yield opened


def by_motif(pag: api.Pag, pattern: Pattern, **options: Any) -> list[tuple[Any, ...]]:
    rows = pag.motif(pattern.name, columns=list(pattern.shown.values()), **options).table().to_pylist()
    cells = [column.partition(".")[::2] for column in pattern.shown.values()]
    return sorted((tuple(row[element][name] for element, name in cells) for row in rows), key=str)


def by_cypher(driver: neo4j.Driver, pag: api.Pag, pattern: Pattern, values: dict[str, Any]) -> list[tuple[Any, ...]]:
    query = load_query(pattern.cypher)
    given = {"run": str(pag.run.info.run["run_id"]), "limit": 10**9, **values}
    answer = answer_query(driver, query, complete(driver, query, given))
    assert list(answer.columns) == list(pattern.shown)
    return sorted((tuple(row.values()) for row in answer.rows), key=str)


@pytest.mark.parametrize(("name", "sample", "values"), CASES)
def test_motif_and_cypher_return_the_same_rows(
    driver: neo4j.Driver, pags: dict[str, api.Pag], name: str, sample: str, values: dict[str, int]
) -> None:
    pag, pattern = pags[sample], PATTERNS[name]
    expected = by_motif(pag, pattern, parameters=values)
    assert expected, "this pattern is not in this sample"
    assert by_cypher(driver, pag, pattern, values) == expected
    # Half of the run: what lies across its border counts for neither.
    epochs = pag.epochs["epoch"].to_list()
    first, last = epochs[len(epochs) // 4], epochs[3 * len(epochs) // 4]
    some = by_motif(pag, pattern, parameters=values, epochs=range(first, last + 1))
    assert by_cypher(driver, pag, pattern, {**values, "first_epoch": first, "last_epoch": last}) == some
    assert set(some) <= set(expected)


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=lambda pattern: pattern.name)
def test_twins_take_the_same_parameters(pattern: Pattern) -> None:
    params = load_query(pattern.cypher).params
    own = {name: each.default for name, each in params.items()}
    assert own.keys() == {"run", "first_epoch", "last_epoch", "limit", *pattern.parameters}
    assert {name: own[name] for name in pattern.parameters} == {
        name: each.default for name, each in pattern.parameters.items()
    }
    assert any(case[0] == pattern.name for case in CASES)
