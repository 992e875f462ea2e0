"""An analysis spread over Spark's partitions gives the same rows as in one piece."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pag_graph import api
from pag_graph.analyses import ANALYSES, Analysis, Scope, find_analysis
from pag_graph.analyses.invariants import InvariantsParameters
from pag_graph.analyses.k_hops import KHopsParameters
from pag_graph.analyses.view import View, view_of
from pag_graph.cli.demo import SAMPLES
from pag_graph.engines.frames import _engine, spark_view
from pag_graph.engines.spark import SparkEngine
from pag_graph.errors import AnalysisError, InvalidParameterError
from pag_graph.formats.spark import struct_type
from pag_graph.model.enums import RuleSet
from pag_graph.model.tables import PAG_EDGES
from pag_graph.testing.strategies import small_traces
from tests.support.sampling import draw_some

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from pag_graph.graph.run import Run

pytestmark = pytest.mark.spark

PROVE = os.environ.get("PAG_PROVE") == "1"
ACROSS = [analysis for analysis in ANALYSES if analysis.across]


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    from pag_graph.engines.session import spark_session

    # The session is shared with other modules, and ends with the process.
    return spark_session(master="local[2]", quick=True)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[RuleSet, Path]:
    folder = tmp_path_factory.mktemp("across")
    for rules in (RuleSet.TIMELY, RuleSet.ST2):
        api.build(SAMPLES / "skewed", folder / str(rules), rules=rules, engine="local")
    return {rules: folder / str(rules) for rules in (RuleSet.TIMELY, RuleSet.ST2)}


def rows(table: pa.Table, name: str) -> pl.DataFrame:
    frame = pl.DataFrame(table)
    if name != "invariants":
        return frame
    order = ["fixed", "invariant", "worker", "to_worker", "type", "operator", "channel", "src", "dst"]
    return frame.select(sorted(frame.columns)).sort(order)


def one_window(analysis: Analysis, subject: Any, parameters: Any = None) -> pl.DataFrame:
    return rows(analysis.table(view_of(subject), parameters), analysis.name)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("analysis", ACROSS, ids=lambda analysis: analysis.name)
def test_windows_of_a_sample(spark: SparkSession, stores: dict[RuleSet, Path], analysis: Analysis) -> None:
    # With few examples, one of the rule sets and two of the windows.
    able = sorted(analysis.needs.rule_sets & set(stores))
    for rules in able if PROVE else able[-1:]:
        run = api.open(stores[rules]).run
        windows = [run.slowest(), run.windows()[-1]]
        if rules is not RuleSet.ST2:
            windows.append(run.window(between=(run.end_ns // 3, run.end_ns // 2)))
        for window in windows if PROVE else windows[::2]:
            found = one_window(analysis, spark_view(run, spark, window))
            assert found.equals(one_window(analysis, run.snapshot(window))), window


@settings(max_examples=100 if PROVE else 1)
@given(trace=small_traces(skewed=True, max_steps=50), data=st.data())
def test_random_traces(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, trace: Any, data: st.DataObject
) -> None:
    place = tmp_path_factory.mktemp("random")
    trace.write(place / "trace")
    api.build(place / "trace", place / "store", engine="local")
    run = api.open(place / "store").run
    edges = spark.createDataFrame(_edges(run), struct_type(PAG_EDGES)).repartition(3)
    checkpoint = edges.localCheckpoint()
    engine = _engine(spark, lambda _: checkpoint)
    windows = [window for window in run.windows() if window.span_ns]
    window = data.draw(st.sampled_from(windows)) if windows else run.windows()[0]
    limit = data.draw(st.integers(0, 30))
    given_parameters = {
        "invariants": InvariantsParameters(epoch_max_ns=limit, message_max_ns=limit, operator_max_ns=limit),
        "k-hops": KHopsParameters(k=4, through_waits=data.draw(st.booleans())),
    }
    for analysis in draw_some(ACROSS, 4):
        parameters = given_parameters.get(analysis.name)
        found = one_window(analysis, View(run=run, windows=[window], spread=engine), parameters)
        assert found.equals(one_window(analysis, run.snapshot(window), parameters)), (analysis.name, window)


def _edges(run: Run) -> list[tuple[Any, ...]]:
    return run.scan("edges").collect().select(PAG_EDGES.names).rows()


def test_all_epochs_and_the_whole_run(spark: SparkSession, first_rounds: Run) -> None:
    pag = api.open(first_rounds.info.path)
    assert pag.each("waits", spark=spark).equals(pag.each("waits"))
    assert pag.invariants(spark=spark, epoch_max_ns=1_000_000).equals(pag.invariants(epoch_max_ns=1_000_000))
    alone = pag.critical_path(epoch=3)
    assert pag.critical_path(epoch=3, spark=spark) == alone
    if PROVE:
        assert pag.analyse("critical-path", spark=spark, epoch=3) == alone


def test_jobs(spark: SparkSession, first_rounds: Run, tmp_path: Path) -> None:
    engine, store = SparkEngine(spark), first_rounds.info.path
    for name in draw_some(("skew", "profile-rounds"), 1):
        spread = api.analyse(store, tmp_path / f"{name}-spread", name, engine=engine, across=True)
        assert spread == api.analyse(store, tmp_path / name, name, engine="local")
        files = sorted(file.name for file in (tmp_path / f"{name}-spread").iterdir())
        of_windows = [f"epoch-{window.epoch:09}.parquet" for window in api.open(store).run.windows()]
        assert files == (["run.parquet"] if find_analysis(name).scope is Scope.RUN else of_windows)
        # Each window is a task then, and otherwise several; the rows are the same, in the same order.
        rows = (pl.read_parquet(tmp_path / folder / "*.parquet") for folder in (f"{name}-spread", name))
        assert next(rows).equals(next(rows))
    with pytest.raises(InvalidParameterError, match="engine is local"):
        api.analyse(store, tmp_path / "no", "skew", engine="local", across=True)


def test_sums_that_are_too_large(spark: SparkSession, stores: dict[RuleSet, Path]) -> None:
    from pyspark.sql import functions as f

    run = api.open(stores[RuleSet.TIMELY]).run
    frames = spark_view(run, spark, run.slowest())
    edges = frames.engine.edges(pl.lit(value=True)).to_native().withColumn("records", f.lit(1 << 62))
    whole = View(run=run, windows=[run.window(between=(0, run.end_ns))], spread=_engine(spark, lambda _: edges))
    with pytest.raises(AnalysisError, match="64 bits"):
        find_analysis("traffic")(whole)
