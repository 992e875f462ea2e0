"""The named patterns: motif and Cypher twin return the same rows, and both return what a look at the graph gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pag_graph import api
from pag_graph.cypher import load_query
from pag_graph.motif.patterns import PATTERNS, Pattern
from pag_graph.sinks.neo4j.query import answer_query, complete

if TYPE_CHECKING:
    import neo4j

    from pag_graph.graph.run import Run

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
def pags(bundled_runs: dict[str, Run]) -> dict[str, api.Pag]:
    return {sample: api.open(run.info.path) for sample, run in bundled_runs.items()}


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
    bundled_driver: neo4j.Driver, pags: dict[str, api.Pag], name: str, sample: str, values: dict[str, int]
) -> None:
    pag, pattern = pags[sample], PATTERNS[name]
    expected = by_motif(pag, pattern, parameters=values)
    assert expected, "this pattern is not in this sample"
    assert by_cypher(bundled_driver, pag, pattern, values) == expected
    # Half of the run: what lies across its border counts for neither.
    epochs = pag.epochs["epoch"].to_list()
    first, last = epochs[len(epochs) // 4], epochs[3 * len(epochs) // 4]
    some = by_motif(pag, pattern, parameters=values, epochs=range(first, last + 1))
    assert by_cypher(bundled_driver, pag, pattern, {**values, "first_epoch": first, "last_epoch": last}) == some
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
