"""GraphFrames on a run: its own class in every detail, and the recipes of the documentation, run as they stand."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import networkx as nx
import polars as pl
import pytest

from pag_graph import api
from pag_graph.cli.demo import SAMPLES
from pag_graph.engines.session import GRAPHFRAMES_COORDINATE, GRAPHFRAMES_JAR_VARIABLE, graphframes_jar
from pag_graph.errors import InvalidParameterError, UnsupportedPlanError
from pag_graph.model.enums import LOCAL_TYPES, RuleSet
from pag_graph.sinks import graphframes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[2] / "docs" / "graphframes.md"
LOCAL = [str(kind) for kind in LOCAL_TYPES]
needs_jar = pytest.mark.skipif(
    not os.environ.get(GRAPHFRAMES_JAR_VARIABLE),
    reason=f"GraphFrames' jar cannot be had everywhere; name a copy of {GRAPHFRAMES_COORDINATE} in PAG_GRAPHFRAMES_JAR",
)


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    from pag_graph.engines.session import spark_session

    # The session is shared with other modules, and ends with the process.
    return spark_session(master="local[2]", quick=True)


@pytest.fixture(scope="module")
def pag(tmp_path_factory: pytest.TempPathFactory) -> api.Pag:
    store = tmp_path_factory.mktemp("graphframes") / "skewed.pag"
    api.build(SAMPLES / "skewed", store, engine="local")
    return api.open(store)


@pytest.mark.parametrize("epochs", [None, [3, 4]])
def test_the_graph_of_waits_has_two_edges_per_wait(spark: SparkSession, pag: api.Pag, epochs: list[int] | None) -> None:
    vertices, edges = graphframes.waits(pag.run, spark, epochs)
    found = pl.DataFrame(edges.toArrow())
    assert found.columns[:2] == ["src", "dst"]
    all_edges = pag.edges().collect()
    waits = all_edges.filter(pl.col("type") == "waiting")
    if epochs:
        waits = waits.filter(pl.col("epoch").is_in(epochs))
    enders = all_edges.filter(~pl.col("type").is_in(LOCAL)).join(waits.select("dst"), on="dst", how="semi")
    assert waits.height
    assert sorted(found.filter(pl.col("type") == "then")["dst"]) == sorted(waits["dst"])
    assert sorted(found.filter(pl.col("type") == "released")["dst"]) == sorted(enders["dst"])
    segment_of = dict(pag.vertices().select("id", "segment").collect().iter_rows())
    assert sorted(found.filter(pl.col("type") == "released").select("src", "dst").rows()) == sorted(
        (segment_of[src], dst) for src, dst in enders.select("src", "dst").rows()
    )
    assert sorted(found.filter(pl.col("type") == "then").select("src", "dst", "waited_ns").rows()) == sorted(
        (segment_of[src], dst, ns) for src, dst, ns in waits.select("src", "dst", "duration_ns").rows()
    )
    segments = pl.DataFrame(vertices.toArrow())
    assert segments["id"].is_unique().all()
    assert set(found["src"]) | set(found["dst"]) <= set(segments["id"])
    if epochs is None:
        assert segments["events"].sum() == len(segment_of)


def test_the_critical_detail_holds_the_paths_and_what_touches_them(spark: SparkSession, pag: api.Pag) -> None:
    vertices, edges = graphframes.critical(pag.run, spark, [3, 4])
    found = pl.DataFrame(edges.toArrow())
    steps = pl.concat([pl.DataFrame(pag.critical_path(epoch=epoch).steps) for epoch in (3, 4)])
    path = set(steps.select("edge_src", "edge_dst", "type").rows())
    assert set(found.filter("critical").select("src", "dst", "type").rows()) == path
    on_path = {end for src, dst, _ in path for end in (src, dst)}
    expected = pag.edges().filter(pl.col("src").is_in(on_path) | pl.col("dst").is_in(on_path)).collect()
    assert sorted(found.select("src", "dst", "type").rows()) == sorted(expected.select("src", "dst", "type").rows())
    ids = set(pl.DataFrame(vertices.select("id").toArrow())["id"])
    assert ids == set(expected["src"]) | set(expected["dst"])


def test_rules_without_critical_paths_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    api.build(SAMPLES / "skewed", tmp_path / "st2", rules=RuleSet.ST2, engine="local")
    with pytest.raises(UnsupportedPlanError, match="no critical path"):
        graphframes.critical(api.open(tmp_path / "st2").run, spark)


def test_an_unknown_detail_is_refused(spark: SparkSession, pag: api.Pag) -> None:
    with pytest.raises(InvalidParameterError, match="there are full, waits, critical"):
        pag.graphframe(spark, detail="everything")  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match=r"epochs is 4, and must be a list"):
        pag.graphframe(spark, epochs=4)  # type: ignore[arg-type]


def test_a_session_says_where_the_jar_is_from(spark: SparkSession) -> None:
    jar = graphframes_jar(spark)
    named = os.environ.get(GRAPHFRAMES_JAR_VARIABLE)
    assert jar.present == bool(named) or "copy fetched before" in jar.how
    assert (named in jar.how) if named else jar.how


class _Ways:
    """What the recipe of the shortest way needs of a graph, without GraphFrames' jar."""

    def __init__(self, edges: DataFrame) -> None:
        self.edges = edges
        self.length = 0

    def bfs(self, start: str, end: str, edgeFilter: str, maxPathLength: int) -> DataFrame:  # noqa: N803
        graph = nx.DiGraph(pl.DataFrame(self.edges.filter(edgeFilter).toArrow()).select("src", "dst").rows())
        first, last = (int(text.removeprefix("id = ")) for text in (start, end))
        self.length = nx.shortest_path_length(graph, first, last)
        assert self.length <= maxPathLength
        return self.edges.limit(1)


def test_the_recipe_of_the_shortest_way_finds_one(
    spark: SparkSession, pag: api.Pag, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    (recipe,) = [block for block in blocks if ".bfs(" in block]
    graph = _Ways(pag.spark_edges(spark, [4]))
    exec(compile(recipe, str(PAGE), "exec"), {"graph": graph})
    capsys.readouterr()
    assert graph.length > 1


@pytest.mark.graphframes
@needs_jar
def test_the_recipes_run(
    spark: SparkSession,
    pag: api.Pag,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recipes = PAGE.read_text(encoding="utf-8").split("## Recipes")[1]
    blocks = re.findall(r"```python\n(.*?)```", recipes, flags=re.DOTALL)
    assert len(blocks) > 7
    (tmp_path / "run.pag").symlink_to(pag.run.info.path)
    monkeypatch.chdir(tmp_path)
    # Java looks for folders where the session was started, which other tests may have done.
    set_folder = spark.sparkContext.setCheckpointDir
    monkeypatch.setattr(spark.sparkContext, "setCheckpointDir", lambda name: set_folder(str(tmp_path / name)))
    names: dict[str, Any] = {"spark": spark}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    capsys.readouterr()
    edges = pag.edges().filter(pl.col("epoch") == 4).collect()
    degrees = pl.concat([edges["src"], edges["dst"]]).value_counts(sort=True)
    assert names["busiest"].first()["degree"] == degrees["count"][0]
    assert names["way"].count() > 0
    blamed = names["blame"].toArrow()["waited_for_ns"].to_pylist()
    assert sum(blamed) == pag.edges().filter(pl.col("type") == "waiting").collect()["duration_ns"].sum()
    groups = names["groups"].toArrow()["count"].to_pylist()
    assert sum(groups) == names["waits"].vertices.count()
    assert any((tmp_path / "checkpoints").iterdir())


@pytest.mark.graphframes
@needs_jar
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("detail", ["full", "waits", "critical"])
def test_every_detail_is_a_graphframe(spark: SparkSession, pag: api.Pag, detail: Any) -> None:
    graph = pag.graphframe(spark, epochs=[4], detail=detail)
    assert graph.edges.count() > 0
    ends = graph.edges.selectExpr("src as id").union(graph.edges.selectExpr("dst as id"))
    assert ends.join(graph.vertices, on="id", how="left_anti").count() == 0
