"""Spark: the same tables as in process, jobs by spark-submit, GraphFrames-shaped frames."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from pag_graph import api
from pag_graph.builder.engine import silent
from pag_graph.cli.demo import SAMPLES
from pag_graph.engines import spark as spark_engine
from pag_graph.engines.session import GRAPHFRAMES_COORDINATE, GRAPHFRAMES_JAR_VARIABLE
from pag_graph.engines.spark import SparkEngine
from pag_graph.errors import MissingExtraError, StoreNotFoundError, TraceFormatError
from pag_graph.runtime.threads import CORES
from pag_graph.store.delta import open_store
from pag_graph.testing.reference import build_reference
from tests.support.compare import committed, differences
from tests.support.growing import rounds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
PROVE = os.environ.get("PAG_PROVE") == "1"
KEYS = {"vertices": ["id"], "edges": ["dst", "src"], "epochs": ["epoch"], "findings": ["finding", "vertex"]}


def tables(store: Path) -> dict[str, pl.DataFrame]:
    run = api.open(store).run
    return {name: run.scan(name).sort(key).collect() for name, key in KEYS.items()}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from pag_graph.engines.session import spark_session

    session = spark_session(master="local[2]", quick=True)
    yield session
    session.stop()


@pytest.fixture(scope="module")
def skewed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("spark") / "local.pag"
    api.build(SAMPLES / "skewed", store, engine="local")
    return store


def _threads(item: int) -> int:
    del item
    from pag_graph.runtime import threads

    return threads.allowed()


def test_tasks_share_the_cores_that_no_task_has(spark: SparkSession) -> None:
    engine = SparkEngine(spark)
    found = [engine.map(_threads, range(count), label="count", progress=silent) for count in (1, 2, 5)]
    assert found == [[min(2, CORES)], [1] * 2, [1] * 5]


@pytest.mark.parametrize(("slice_events", "joined_here"), [(None, True), (500, True), (500, False)])
def test_builds_the_same_tables_as_in_process(
    spark: SparkSession,
    skewed: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    slice_events: int | None,
    joined_here: bool,
) -> None:
    if not joined_here:
        monkeypatch.setattr(spark_engine, "_FEW", -1)
    store = tmp_path / "spark.pag"
    seen: list[tuple[str, int, int]] = []
    api.build(
        SAMPLES / "skewed",
        store,
        engine=SparkEngine(spark),
        slice_events=slice_events,
        progress=lambda *step: seen.append(step),
    )
    expected = tables(skewed)
    for name, frame in tables(store).items():
        assert_frame_equal(frame, expected[name])
    assert {label for label, *_ in seen} >= {"stitch", "assemble"}
    assert not list(store.glob("_staging-*"))


def test_appends_go_on_from_what_spark_built(spark: SparkSession, tmp_path: Path) -> None:
    whole = rounds(12)
    part = replace(whole.until_epoch(7), complete=False).write(tmp_path / "part")
    store = tmp_path / "store"
    built = api.build(part, store, engine=SparkEngine(spark), slice_events=30).store
    assert built.state is not None
    kept = {name: {file.path for file in built.parts(name) if not file.provisional} for name in ("vertices", "edges")}
    assert all(kept.values())
    grown = whole.until_epoch(9)
    for number, engine in enumerate(("local", SparkEngine(spark))):
        trace = (whole if number else replace(grown, complete=False)).write(tmp_path / f"{number}")
        now = api.build(trace, store, engine=engine, mode="append").store
        assert all(files <= {file.path for file in now.parts(name)} for name, files in kept.items())
        assert differences(committed(store), build_reference(whole if number else replace(grown, complete=False))) == ""


def test_a_bad_trace_fails_with_our_own_error_and_leaves_no_store(spark: SparkSession, tmp_path: Path) -> None:
    import shutil

    trace = tmp_path / "bad"
    shutil.copytree(SAMPLES / "skewed", trace)
    file = next((trace / "events").glob("worker-*2-*.parquet"))
    pl.read_parquet(file).with_columns(t_ns=pl.col("t_ns").reverse()).write_parquet(file)
    with pytest.raises(TraceFormatError, match=r"worker-0*2-.*worker 2.*ns before"):
        api.build(trace, tmp_path / "s", engine=SparkEngine(spark))
    with pytest.raises(StoreNotFoundError):
        open_store(tmp_path / "s")


def test_critical_paths_of_all_windows_are_as_long_as_the_windows(spark: SparkSession, skewed: Path) -> None:
    paths = api.open(skewed).critical_paths(SparkEngine(spark))
    assert len(paths) == 11
    for path in paths:
        assert path.length_ns == path.window.span_ns


def test_frames_have_the_shape_of_graphframes(spark: SparkSession, skewed: Path) -> None:
    pag = api.open(skewed)
    vertices, edges = pag.spark_vertices(spark), pag.spark_edges(spark)
    assert vertices.columns[0] == "id"
    assert edges.columns[:2] == ["src", "dst"]
    assert vertices.count() == pag.vertices().collect().height
    assert edges.count() == pag.edges().collect().height
    some = pag.spark_edges(spark, epochs=[4, 5])
    ends = some.select(some.src.alias("id")).union(some.select(some.dst.alias("id")))
    near = pag.spark_vertices(spark, epochs=[4, 5])
    assert ends.join(near, on="id", how="left_anti").count() == 0


def test_without_the_jar_the_error_names_the_coordinate(spark: SparkSession, skewed: Path) -> None:
    if os.environ.get(GRAPHFRAMES_JAR_VARIABLE):
        pytest.skip("GraphFrames' jar is here, so there is nothing to miss")
    with pytest.raises(MissingExtraError, match=GRAPHFRAMES_COORDINATE) as raised:
        api.open(skewed).graphframe(spark)
    assert GRAPHFRAMES_JAR_VARIABLE in str(raised.value.hint)


@pytest.mark.graphframes
@pytest.mark.skipif(
    not os.environ.get(GRAPHFRAMES_JAR_VARIABLE),
    reason=f"GraphFrames' jar cannot be had everywhere; name a copy of {GRAPHFRAMES_COORDINATE} in PAG_GRAPHFRAMES_JAR",
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_graphframe_finds_motifs(spark: SparkSession, skewed: Path) -> None:
    pag = api.open(skewed)
    graph = pag.graphframe(spark)
    assert graph.edges.count() == pag.edges().collect().height
    found = graph.find("(a)-[w]->(z); (s)-[m]->(z)").filter("w.type = 'waiting' and m.type != 'waiting'")
    waits = pag.edges().filter(pl.col("type") == "waiting").collect().height
    assert found.count() == waits


# A standalone cluster runs the same jobs, in `test_spark_submit.py`.
@pytest.mark.skipif(not PROVE, reason="PAG_PROVE=1 also submits to Spark's local master")
def test_jobs_run_by_spark_submit(tmp_path: Path, skewed: Path) -> None:
    import pyspark

    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    options = ["--master", "local[2]", "--conf", "spark.ui.enabled=false"]
    options += ["--driver-java-options", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"]

    def job(script: str, *arguments: object) -> dict[str, object]:
        command = [submit, *options, ROOT / "spark_jobs" / script, *arguments]
        done = subprocess.run(
            map(str, command), env=environment, capture_output=True, text=True, check=False, timeout=240
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return json.loads(done.stdout.splitlines()[-1])

    store = tmp_path / "job.pag"
    assert job("build.py", SAMPLES / "skewed", store)["committed"] is True
    expected = tables(skewed)
    for name, frame in tables(store).items():
        assert_frame_equal(frame, expected[name])
    answer = job("analyse.py", store, tmp_path / "paths", "--analysis", "critical-path")
    assert answer["windows"] == 11
    steps = pl.read_parquet(tmp_path / "paths" / "*.parquet")
    lengths = steps.group_by("epoch").agg(pl.col("duration_ns").sum())
    spans = expected["epochs"].select("epoch", duration_ns=pl.col("end_ns") - pl.col("start_ns"))
    assert_frame_equal(lengths.sort("epoch"), spans.sort("epoch"))
