"""Stores work in any folder: no name of one is taken for an address, a pattern, an option or code."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from pag_graph import api
from pag_graph.cli.demo import SAMPLES
from pag_graph.engines.spark import SparkEngine
from pag_graph.model.tables import STORE_TABLES
from pag_graph.testing.reference import build_reference
from pag_graph.testing.traces import draw
from tests.integration.conftest import LAST_ROUND, PROVE, keep_epochs
from tests.support.compare import committed, differences

if TYPE_CHECKING:
    from collections.abc import Callable

    import neo4j
    from pyspark.sql import SparkSession

ODD = "a b%20ü#?'\"[x]"
"""A space, an escape of addresses, a letter that is not of ASCII, what ends a path in one, quotes, and a pattern."""
NAMES = [ODD, "my runs", "p%41", "%2F", "back\\slash", "{}", "{a,b}", "*", "😀", "k=v", "a:b", "$(id)", "~", "tab\tx"]
LOGS = Path(__file__).parent.parent / "data" / "spark"

LINE = " | ".join(f"{t} start 1 | {t + 5} stop 1 | {t + 9} end" for t in (0, 20, 40))
WHOLE = draw(LINE, "0 park | 30 unpark | 31 end")


def lay_trace(folder: Path) -> None:
    """Copy the bundled trace into a folder; its first epochs, or all with ``PAG_PROVE=1``."""
    shutil.copytree(SAMPLES / "skewed", folder / "trace")
    if not PROVE:
        keep_epochs(folder / "trace", LAST_ROUND)


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a trace and its store."""
    folder = tmp_path_factory.mktemp("places") / ODD
    folder.mkdir()
    lay_trace(folder)
    api.build(folder / "trace", folder / "run.pag", engine="local", slice_events=500)
    return folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plain")
    lay_trace(folder)
    # Several slices: a table of several files.
    api.build(folder / "trace", folder / "run.pag", engine="local", slice_events=500)
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_builds_in_any_folder(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    store = folder / f"{name}.pag"
    for epoch in (0, 1):
        WHOLE.until_epoch(epoch).write(folder / f"trace-{epoch}")
        # Several slices leave something for each other, in files as well.
        api.build(folder / f"trace-{epoch}", store, engine="local", mode="append", slice_events=3)
        assert not differences(committed(store), build_reference(WHOLE.until_epoch(epoch)))
    api.build(folder / "trace-0", store, engine="local", mode="replace", rules="st2")
    api.build(folder / "trace-1", store, engine="local", mode="replace")
    pag = api.open(store)
    assert pag.run.snapshot(pag.run.window(epoch=0)).edges.height
    assert pag.motif("(a)-[e]->(b)", epochs=[0]).total
    assert not [path.name for path in store.iterdir() if path.name not in STORE_TABLES]


COMMANDS: list[list[Any]] = [
    ["info", "run.pag"],
    ["check", "run.pag", "--deep"],
    ["why", "run.pag"],
    ["critical-path", "run.pag", "--format", "json"],
    ["motif", "late_sender", "run.pag", "--format", "json"],
    ["k-hop-paths", "run.pag", "--k", "2", "--format", "json"],
    ["draw", "run.pag", "drawn.svg"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_commands(
    odd: Path, run_pag: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch, command: list[Any]
) -> None:
    monkeypatch.chdir(odd)
    code, said, told = run_pag(*command)
    assert code == 0, told
    code, again, told = run_pag(*[odd / word if "." in word else word for word in command])
    assert code == 0, told
    assert command[0] in {"info", "draw", "motif"} or again == said


@pytest.mark.parametrize("name", ["run.json", "run.graphml", "tables", "run.svg"])
def test_exports(odd: Path, plain: Path, run_pag: Callable[..., tuple[int, str, str]], name: str) -> None:
    for folder in (odd, plain):
        code, _, told = run_pag("export", folder / "run.pag", folder / name)
        assert code == 0, told
    files = [sorted(folder.glob(f"{name}/*")) or [folder / name] for folder in (odd, plain)]
    assert [file.name for file in files[0]] == [file.name for file in files[1]]
    assert all(file.stat().st_size for file in files[0])


def test_answers_for_spark_where_temporary_files_have_odd_names(
    tmp_path: Path, run_pag: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ODD).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ODD))
    code, said, told = run_pag("spark", LOGS / "skewed-key.zstd", "--format", "json")
    assert code == 0, told
    assert json.loads(said)
    code, _, told = run_pag("spark", LOGS / "skewed-key.zstd", "--out", tmp_path / ODD / "out")
    assert code == 0, told
    assert api.open(tmp_path / ODD / "out" / "pag").epochs.height


@pytest.fixture(scope="module")
def session() -> SparkSession:
    from pag_graph.engines.session import spark_session

    # The session is shared with other modules, and ends with the process.
    return spark_session(master="local[2]", quick=True)


@pytest.mark.spark
def test_builds_on_spark(odd: Path, plain: Path, session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    # Spark joins what slices leave, however little it is.
    monkeypatch.setattr("pag_graph.engines.spark._FEW", -1)
    engine = SparkEngine(session)
    if not PROVE:
        shutil.copytree(odd / "run.pag", odd / "spark.pag")
    for mode in ("error", "replace") if PROVE else ("replace",):
        api.build(odd / "trace", odd / "spark.pag", engine=engine, mode=mode, slice_events=500)  # type: ignore[arg-type]
        found, expected = (api.open(store).run for store in (odd / "spark.pag", plain / "run.pag"))
        for name, key in (("vertices", ["id"]), ("edges", ["dst", "src"]), ("epochs", ["epoch"])):
            assert_frame_equal(found.scan(name).sort(key).collect(), expected.scan(name).sort(key).collect())


@pytest.mark.spark
def test_reads_on_spark(odd: Path, plain: Path, session: SparkSession) -> None:
    pag, expected = api.open(odd / "run.pag"), api.open(plain / "run.pag")
    for epochs in (None, [3]):
        assert pag.spark_edges(session, epochs).count() == expected.spark_edges(session, epochs).count()
    assert pag.spark_vertices(session).count() == pag.vertices().collect().height
    motif = pag.motif("late_sender", spark=session)
    assert motif.total == expected.motif("late_sender").total
    across = pag.analyse("profile", spark=session, epoch=3)
    assert across.equals(expected.analyse("profile", epoch=3))
    engine = SparkEngine(session)
    told = api.analyse(odd / "run.pag", odd / "profiles", "profile", engine=engine, across=True)
    assert told["rows"] == pl.read_parquet(sorted((odd / "profiles").iterdir()), glob=False).height
    assert told == api.analyse(odd / "run.pag", odd / "again", "profile", engine=engine)


@pytest.mark.spark
@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", NAMES)
def test_spark_reads_every_file_once(odd: Path, session: SparkSession, tmp_path: Path, name: str) -> None:
    shutil.copytree(odd / "run.pag", tmp_path / name / "run.pag")
    pag = api.open(tmp_path / name / "run.pag")
    assert len(pag.run.info.files("edges")) > 1
    assert pag.spark_edges(session).count() == pag.edges().collect().height


@pytest.mark.neo4j
def test_loads_into_neo4j(odd: Path, neo4j_driver: neo4j.Driver) -> None:
    from pag_graph.sinks.neo4j.loader import load_run

    run = api.open(odd / "run.pag").run
    done = load_run(run, neo4j_driver, epochs=[3])
    assert done.epochs == (3,) or list(done.epochs) == [3]
    assert done.relationships
