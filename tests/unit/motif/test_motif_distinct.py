"""Two names for one edge: allowed as in GraphFrames, said where it shows, and kept apart where that is asked for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import polars as pl
import pytest

import pag_graph
from pag_graph import Pag, samples
from pag_graph.errors import InvalidParameterError
from pag_graph.motif.patterns import PATTERNS
from pag_graph.motif.query import ask
from tests.support.graphs import graph_of

if TYPE_CHECKING:
    from collections.abc import Callable

TWO_AT_ONE_END = "(a)-[w]->(z); (s)-[m]->(z)"
LONG_WAITS = "w.type = 'waiting' and m.duration_ns > us(50)"


@pytest.fixture(scope="module")
def pag(tmp_path_factory: pytest.TempPathFactory) -> Pag:
    store = tmp_path_factory.mktemp("distinct") / "skewed.pag"
    pag_graph.build(samples.path("skewed"), store, engine="local")
    return pag_graph.open(store)


def test_two_names_for_one_edge_are_kept_apart(pag: Pag) -> None:
    every, apart = (pag.motif(TWO_AT_ONE_END, distinct=distinct) for distinct in (False, True))
    same = pl.col("w").struct.field(*(key := ["src", "dst", "type"])).eq_missing(pl.col("m").struct.field(*key))
    assert apart.total == every.frame().filter(~pl.all_horizontal(same)).height
    assert 0 < apart.total < every.total
    assert not apart.same_edges(apart.table())


def test_named_patterns_keep_their_edges_apart(pag: Pag) -> None:
    for name in PATTERNS:
        assert pag.motif(name, distinct=True).total == pag.motif(name).total, name


def test_edges_that_nothing_tells_apart_cannot_be_kept_apart() -> None:
    graph = graph_of(pl.DataFrame({"id": [1, 2]}), pl.DataFrame({"src": [1], "dst": [2]}))
    with pytest.raises(InvalidParameterError, match="they cannot be kept apart"):
        ask(TWO_AT_ONE_END, None, graph.shape, distinct=True)


def test_the_command_says_where_two_names_are_one_edge(pag: Pag, run_pag: Callable[..., tuple[int, str, str]]) -> None:
    words = ["motif", TWO_AT_ONE_END, pag.run.info.path, "--where", LONG_WAITS, "--format", "json"]
    code, text, error = run_pag(*words)
    answer = json.loads(text)
    assert code == 0
    assert all(row["w"] == row["m"] for row in answer["rows"])
    assert "w and m are the same edge in every row; --distinct keeps named edges apart" in " ".join(error.split())
    code, text, error = run_pag(*words, "--columns", "w.type,z.id")
    assert (code, "same edge" in error, set(json.loads(text)["rows"][0])) == (0, True, {"w.type", "z.id"})
    code, text, error = run_pag(*words, "--distinct")
    assert (code, "same edge" in error) == (0, False)
    assert json.loads(text)["matches"] == 0
    code, _, error = run_pag("motif", "late_sender", pag.run.info.path)
    assert (code, "same edge" in error) == (0, False)


def test_a_parameter_that_no_filter_uses_is_an_error(pag: Pag, run_pag: Callable[..., tuple[int, str, str]]) -> None:
    with pytest.raises(InvalidParameterError, match=r"No filter uses the parameter \$foo; they use \$ns"):
        pag.motif("(a)-[e]->(b)", "e.duration_ns > $ns", parameters={"ns": 5, "foo": 1})
    code, _, error = run_pag("motif", "(a)-[e]->(b)", pag.run.info.path, "--set", "foo=1")
    assert (code, "No filter uses the parameter $foo" in error) == (2, True)
