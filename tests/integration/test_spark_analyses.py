"""Every analysis gives the same rows in Spark tasks as in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from pag_graph import api
from pag_graph.analyses import ANALYSES, Analysis
from pag_graph.cli.demo import SAMPLES
from pag_graph.engines.spark import SparkEngine
from pag_graph.model.enums import RuleSet

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def engine() -> SparkEngine:
    from pag_graph.engines.session import spark_session

    # The session is shared with other modules, and ends with the process.
    return SparkEngine(spark_session(master="local[2]", quick=True))


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[RuleSet, Path]:
    folder = tmp_path_factory.mktemp("analyses")
    for rules in RuleSet:
        # A real trace for all of them; what it says under `stated`, which it contradicts, is asked of nobody here.
        api.build(SAMPLES / "skewed", folder / str(rules), rules=rules, force_rules=True, engine="local")
    return {rules: folder / str(rules) for rules in RuleSet}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("analysis", ANALYSES, ids=lambda analysis: analysis.name)
def test_rows_are_the_same(
    engine: SparkEngine, stores: dict[RuleSet, Path], analysis: Analysis, tmp_path: Path
) -> None:
    store = stores[analysis.needs.usual]
    values = dict(analysis.example_values)
    on_spark = api.analyse(store, tmp_path / "spark", analysis.name, engine=engine, parameters=values)
    assert on_spark == api.analyse(store, tmp_path / "local", analysis.name, engine="local", parameters=values)
    names = sorted(file.name for file in (tmp_path / "spark").iterdir())
    assert names == sorted(file.name for file in (tmp_path / "local").iterdir())
    for name in names:
        assert_frame_equal(pl.read_parquet(tmp_path / "spark" / name), pl.read_parquet(tmp_path / "local" / name))
