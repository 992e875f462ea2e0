"""Motifs: Polars, Spark and GraphFrames itself find what a search by hand finds, on random graphs."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pag_graph.engines.motif import SparkMotifQuery
from pag_graph.engines.session import GRAPHFRAMES_COORDINATE, GRAPHFRAMES_JAR_VARIABLE
from pag_graph.motif.polars_query import Graph, MotifQuery
from pag_graph.motif.query import ask
from pag_graph.motif.syntax import Motif, parse_motif
from tests.support.graphs import graph_of, spark_graph_of
from tests.support.motif_search import Row, as_networkx, in_order, motifs, search

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from pyspark.sql import SparkSession

PROVE = os.environ.get("PAG_PROVE") == "1"
COLOURS = ["red", "blue", "it's"]

Truth = Any
"""True, false, or None for unknown."""


@dataclass(frozen=True)
class Condition:
    """A filter as text, and what it means, written independently of the filter language."""

    text: str
    holds: Callable[[Row], bool | None]


def both(left: Truth, right: Truth) -> Truth:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def either(left: Truth, right: Truth) -> Truth:
    if left is True or right is True:
        return True
    return None if left is None or right is None else False


def opposite(value: Truth) -> Truth:
    return None if value is None else not value


# Random graphs with loops, parallel edges, edges that are the same in everything, and edges that dangle.


@st.composite
def graphs(draw: st.DrawFn) -> tuple[pl.DataFrame, pl.DataFrame]:
    size = draw(st.integers(1, 7))
    ids = list(range(size))
    number = st.one_of(st.none(), st.integers(-3, 3))
    vertices = [{"id": i, "x": draw(number)} for i in ids]
    end = st.integers(0, size - 1) if draw(st.booleans()) else st.integers(0, size)
    edge = st.fixed_dictionaries(
        {"src": end, "dst": end, "w": number, "colour": st.one_of(st.none(), st.sampled_from(COLOURS))}
    )
    edges = draw(st.lists(edge, max_size=14))
    return (
        pl.DataFrame(vertices, schema={"id": pl.Int64, "x": pl.Int64}),
        pl.DataFrame(edges, schema={"src": pl.Int64, "dst": pl.Int64, "w": pl.Int64, "colour": pl.String}),
    )


def value(row: Row, element: str, column: str) -> Any:
    return row[element][column]


@st.composite
def conditions(draw: st.DrawFn, motif: Motif, depth: int = 2) -> Condition:
    edges = [name for name in motif.columns if name in motif.edges]
    vertices = [name for name in motif.columns if name not in motif.edges]
    if depth and draw(st.booleans()):
        left, right = draw(conditions(motif, depth - 1)), draw(conditions(motif, depth - 1))
        kind = draw(st.sampled_from(["and", "or", "not"]))
        if kind == "and":
            return Condition(f"({left.text}) AND {right.text}", lambda row: both(left.holds(row), right.holds(row)))
        if kind == "or":
            return Condition(
                f"(({left.text}) or ({right.text}))", lambda row: either(left.holds(row), right.holds(row))
            )
        return Condition(f"not ({left.text})", lambda row: opposite(left.holds(row)))
    numbers = [(name, "x") for name in vertices] + [(name, each) for name in edges for each in ("w", "src", "dst")]
    numbers += [(name, "id") for name in vertices]
    first, second = draw(st.sampled_from(numbers)), draw(st.sampled_from(numbers))
    constant = draw(st.integers(-3, 3))
    one, two = (f"{name}.{column}" for name, column in (first, second))
    kind = draw(st.sampled_from(["compare", "sum", "rest", "in", "between", "null", "text", "quotient"]))
    if kind == "text" and edges:
        name, word = draw(st.sampled_from(edges)), draw(st.sampled_from(COLOURS))
        quoted = word.replace("'", "''")
        return Condition(
            f"{name}.colour != '{quoted}'",
            lambda row: None if value(row, name, "colour") is None else value(row, name, "colour") != word,
        )
    if kind == "null":
        return Condition(f"{one} is not null", lambda row: value(row, *first) is not None)
    if kind == "in":
        return Condition(
            f"{one} not in ({constant}, 2)",
            lambda row: None if value(row, *first) is None else value(row, *first) not in {constant, 2},
        )
    if kind == "between":
        return Condition(
            f"{one} between {constant} and {two}",
            lambda row: both(at_least(value(row, *first), constant), at_least(value(row, *second), value(row, *first))),
        )
    operator, compare = draw(
        st.sampled_from(
            [
                ("=", lambda x, y: x == y),
                ("<>", lambda x, y: x != y),
                ("<", lambda x, y: x < y),
                (">=", lambda x, y: x >= y),
            ]
        )
    )

    def compared(left: Callable[[Row], Any], right: Callable[[Row], Any]) -> Callable[[Row], bool | None]:
        def holds(row: Row) -> bool | None:
            x, y = left(row), right(row)
            return None if x is None or y is None else compare(x, y)

        return holds

    def added(row: Row) -> int | None:
        x, y = value(row, *first), value(row, *second)
        return None if x is None or y is None else x + 2 * y - 1

    def rest(row: Row) -> int | None:
        x, y = value(row, *first), value(row, *second)
        if x is None or y is None or y == 0:
            return None
        return abs(x) % abs(y) * (1 if x >= 0 else -1)

    def quotient(row: Row) -> float | None:
        x, y = value(row, *first), value(row, *second)
        return None if x is None or y is None or y == 0 else x / y

    if kind == "sum":
        return Condition(f"{one} + ns(2) * {two} - 1 {operator} {constant}", compared(added, lambda _: constant))
    if kind == "rest":
        return Condition(f"{one} % {two} {operator} {constant}", compared(rest, lambda _: constant))
    if kind == "quotient":
        return Condition(f"{one} / {two} {operator} {constant} * 0.5", compared(quotient, lambda _: constant * 0.5))
    return Condition(
        f"{one} {operator} {two}", compared(lambda row: value(row, *first), lambda row: value(row, *second))
    )


def at_least(left: int | None, right: int | None) -> bool | None:
    return None if left is None or right is None else left >= right


@dataclass(frozen=True)
class Case:
    """A graph, a motif, a filter, and the rows that are right."""

    vertices: pl.DataFrame
    edges: pl.DataFrame
    text: str
    where: str | None
    expected: Counter[str]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    vertices, edges = draw(graphs())
    text = draw(motifs().filter(lambda text: in_order(parse_motif(text))))
    motif = parse_motif(text)
    condition = draw(st.one_of(st.none(), conditions(motif)))
    rows = search(as_networkx(vertices, edges), motif)
    if condition is not None:
        rows = [row for row in rows if condition.holds(row) is True]
    return Case(vertices, edges, text, condition.text if condition else None, counted(rows))


def counted(rows: list[Row]) -> Counter[str]:
    """Count rows by their content; the search marks vertices that exist, engines do not."""
    return Counter(
        str({name: {key: part[key] for key in part if key != "exists"} for name, part in row.items()}) for row in rows
    )


def polars_query(case: Case, graph: Graph | None = None) -> MotifQuery:
    graph = graph or graph_of(case.vertices, case.edges)
    return MotifQuery(question=ask(case.text, case.where, graph.shape), graph=graph)


@given(cases())
@settings(max_examples=10_000 if PROVE else 60)
def test_polars_finds_what_a_search_by_hand_finds(case: Case) -> None:
    query = polars_query(case)
    found = query.table()
    assert tuple(found.column_names) == parse_motif(case.text).columns
    assert counted(found.to_pylist()) == case.expected
    assert query.total == found.num_rows


@pytest.mark.parametrize("where", ["a.x = n.x", "a.x = 1 and n.x = 1", None])
def test_a_vertex_of_its_own_comes_before_edges_that_have_it(where: str | None) -> None:
    vertices = pl.DataFrame({"id": [0, 1, 2], "x": [1, 1, 2]})
    edges = pl.DataFrame({"src": [0, 1, 2], "dst": [0, 1, 2], "w": [1, 2, 3], "colour": ["red", "red", "red"]})
    graph = graph_of(vertices, edges)
    found = MotifQuery(question=ask("(a); (a)<-[]-(a); !(n)-[]->(a)", where, graph.shape), graph=graph).table()
    expected = {(0, 1), (1, 0)} if where else {(a, n) for a in range(3) for n in range(3) if a != n}
    assert {(row["a"]["id"], row["n"]["id"]) for row in found.to_pylist()} == expected


@pytest.mark.parametrize("text", ["(a)<-[e]->()", "()<-[e]->(a)", "()<-[e]->()", "(a)<-[]->()"])
def test_an_unnamed_end_of_a_two_headed_edge_is_another_vertex_each_way(text: str) -> None:
    vertices = pl.DataFrame({"id": [0, 1, 2]})
    edges = pl.DataFrame({"src": [0, 1, 1], "dst": [1, 0, 2]})
    motif = parse_motif(text)
    expected = counted(search(as_networkx(vertices, edges), motif))
    graph = graph_of(vertices, edges)
    assert counted(MotifQuery(question=ask(text, None, graph.shape), graph=graph).table().to_pylist()) == expected
    # GraphFrames reads the two edges as they are written out.
    plain = ask(str(motif), None, graph.shape)
    assert counted(MotifQuery(question=plain, graph=graph).table().to_pylist()) == expected


@given(cases(), st.randoms(use_true_random=False))
def test_no_order_of_joins_changes_the_answer(case: Case, random: Any) -> None:
    class Arbitrary(MotifQuery):
        def _count(self, scans: Any) -> Any:
            from pag_graph.motif.plan import Counts

            return Counts(
                edges=9, vertices=9, by_element={scan.element: random.choice([1.0, 5.0, 90.0]) for scan in scans}
            )

    plain = polars_query(case)
    query = Arbitrary(question=plain.question, graph=plain.graph)
    query.explain(analyse=True)
    assert counted(query.table().to_pylist()) == case.expected


@given(cases(), st.integers(0, 4))
def test_a_limit_gives_the_first_rows_and_knows_them_all(case: Case, limit: int) -> None:
    query = polars_query(case)
    query.limit = limit
    found = counted(query.table().to_pylist())
    assert found.total() == min(limit, case.expected.total())
    assert found <= case.expected
    assert query.total == case.expected.total()


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    from pag_graph.engines.session import spark_session

    # The session is shared with other modules, and ends with the process.
    return spark_session(master="local[2]", quick=True)


@pytest.mark.spark
def test_spark_finds_the_same_rows(spark: SparkSession) -> None:
    @given(cases())
    @settings(max_examples=300 if PROVE else 5)
    @example(
        Case(
            pl.DataFrame({"id": [0, 1], "x": [None, 2]}, schema={"id": pl.Int64, "x": pl.Int64}),
            pl.DataFrame(
                {"src": [0, 0, 1], "dst": [1, 1, 1], "w": [2**63 - 1, 2**63 - 1, 3], "colour": [None, None, "red"]}
            ),
            "(a)-[e]->(b); !(b)-[]->(a)",
            "e.w + 1 is null",
            Counter(
                [
                    (
                        "{'a': {'id': 0, 'x': None}, 'e': {'src': 0, 'dst': 1, 'w': 9223372036854775807,"
                        " 'colour': None}, 'b': {'id': 1, 'x': 2}}"
                    )
                ]
            ),
        )
    )
    def agrees(case: Case) -> None:
        here = polars_query(case)
        frames = (spark.createDataFrame(frame.to_arrow()) for frame in (case.vertices, case.edges))
        graph = spark_graph_of(*frames)
        there = SparkMotifQuery(question=ask(case.text, case.where, graph.shape), graph=graph)
        local, found = here.table(), there.table()
        assert counted(local.to_pylist()) == case.expected
        assert counted(found.to_pylist()) == case.expected
        assert found.schema == local.schema
        here.limit = there.limit = 2
        assert there.table().to_pylist() == here.table().to_pylist()

    agrees()


needs_jar = pytest.mark.skipif(
    not os.environ.get(GRAPHFRAMES_JAR_VARIABLE),
    reason=f"GraphFrames' jar cannot be had everywhere; name a copy of {GRAPHFRAMES_COORDINATE} in PAG_GRAPHFRAMES_JAR",
)


@pytest.mark.spark
@pytest.mark.graphframes
@needs_jar
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize(
    "text", ["!(b)-[]->(a); (a)-[e]->(b)", "(a)-[e]->(b); !(b)-[]->(c); (c)-[f]->(a); !(n)-[]->(c)"]
)
def test_graphframes_finds_what_must_not_be_between_vertices_that_come_later(spark: SparkSession, text: str) -> None:
    from graphframes import GraphFrame

    from pag_graph.sinks.graphframes import find

    vertices = pl.DataFrame({"id": [0, 1, 2, 3]})
    edges = pl.DataFrame({"src": [0, 1, 1, 2, 3], "dst": [1, 0, 2, 3, 1]})
    here = graph_of(vertices, edges)
    question = ask(text, "e.src != e.dst", here.shape)
    expected = counted(MotifQuery(question=question, graph=here).table().to_pylist())
    assert expected
    graph = GraphFrame(*(spark.createDataFrame(frame.to_arrow()) for frame in (vertices, edges)))
    assert counted(find(graph, question).toArrow().to_pylist()) == expected


@pytest.mark.spark
@pytest.mark.graphframes
@needs_jar
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_graphframes_finds_the_same_rows(spark: SparkSession) -> None:
    from graphframes import GraphFrame

    from pag_graph.sinks.graphframes import find

    @given(cases())
    @settings(max_examples=300 if PROVE else 5)
    def agrees(case: Case) -> None:
        graph = GraphFrame(*(spark.createDataFrame(frame.to_arrow()) for frame in (case.vertices, case.edges)))
        # GraphFrames reads the motif as it was written, and as we reduce it: both mean the same.
        raw = graph.find(case.text)
        question = polars_query(case).question
        assert tuple(raw.columns) == question.motif.columns
        assert (
            raw.count()
            == MotifQuery(
                question=ask(case.text, None, question.shape), graph=graph_of(case.vertices, case.edges)
            ).total
        )
        found: pa.Table = find(graph, question).toArrow()
        assert counted(found.to_pylist()) == case.expected

    agrees()
