"""Jobs as users run them: an installed wheel, spark-submit, and a standalone cluster of real processes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from pag_graph import api
from pag_graph.cli.demo import SAMPLES
from pag_graph.engines.session import QUICK_JVM
from tests.support.sampling import proved_only
from tests.support.standalone import Cluster, cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Every session is one of its own.
pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-submit")]

ROOT = Path(__file__).parents[2]
MOST_S = 1800
"""A job takes half a minute; machines that run tests are busy."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a Python that has this package from its wheel, and the dependencies of the Python that runs the tests."""
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if uv is None:
        pytest.skip("uv builds and installs the wheel, and it is not on the path")
    folder = tmp_path_factory.mktemp("installed")
    build = [uv, "build", "--wheel", "--quiet", "--out-dir", str(folder), str(ROOT)]
    built = subprocess.run(build, capture_output=True, text=True, check=False, timeout=300)
    if "Failed to resolve requirements from `build-system.requires`" in built.stderr:
        pytest.skip("hatchling, which builds the wheel, cannot be had here")
    assert built.returncode == 0, built.stderr
    environment = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True, timeout=120)
    python = environment / "bin" / "python"
    (wheel,) = folder.glob("*.whl")
    install = [uv, "pip", "install", "--quiet", "--offline", "--no-deps", "--python", str(python), str(wheel)]
    subprocess.run(install, check=True, timeout=120)
    if os.environ.get("PAG_PROVE") != "1":
        take_compiled(next(environment.glob("lib/python*/site-packages")))
    # What stands there as an editable installation is not found this way: only folders are added, no hooks.
    packages = next(environment.glob("lib/python*/site-packages"))
    (packages / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n", encoding="utf-8")
    return python


def take_compiled(packages: Path) -> None:
    """Give an installation the kernels that are compiled beside the checkout: its modules are the same."""
    for module in (ROOT / "pag_graph").rglob("*.py"):
        installed = packages / module.relative_to(ROOT)
        if not any(module.parent.glob(f"__pycache__/{module.stem}.*.nbi")):
            continue
        assert installed.read_bytes() == module.read_bytes()
        # Numba knows a module by the time at which it was written.
        shutil.copystat(module, installed)
        (installed.parent / "__pycache__").mkdir(exist_ok=True)
        for file in module.parent.glob(f"__pycache__/{module.stem}.*.nb[ic]"):
            shutil.copy2(file, installed.parent / "__pycache__")


@pytest.fixture(scope="module")
def master(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster"), installed) as running:
        yield running


@pytest.fixture(scope="module")
def submit(master: Cluster) -> Callable[..., dict[str, Any]]:
    def run(script: str, *arguments: object) -> dict[str, Any]:
        options = ["--master", master.address, "--executor-memory", "512m", "--driver-java-options", QUICK_JVM]
        settings = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.executor.extraJavaOptions": QUICK_JVM,
        }
        options += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        command = [Path(master.environment["SPARK_HOME"]) / "bin" / "spark-submit", *options]
        command += [ROOT / "spark_jobs" / script, *arguments]
        done = subprocess.run(
            # Somewhere else, so that nothing of the repository is found by accident.
            list(map(str, command)),
            env=master.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=MOST_S,
            cwd="/",
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1])

    return run


def test_the_wheel_holds_all_that_the_package_needs(installed: Path, tmp_path: Path) -> None:
    code = (
        "import sys, pag_graph, pag_graph.cypher as c, pag_graph.cli.demo as d\n"
        # This also compiles the kernels, once for all workers of the cluster.
        "pag_graph.build(d.SAMPLES / 'skewed', sys.argv[1], engine='local')\n"
        "print(pag_graph.__file__); print(c.cypher_library()); print(len(c.list_queries()))\n"
        "print((d.SAMPLES / 'skewed' / 'meta.json').is_file())\n"
    )
    done = subprocess.run([installed, "-c", code, tmp_path / "s"], capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stderr
    file, library, queries, sample = done.stdout.splitlines()
    environment = installed.parents[1]
    assert Path(file).is_relative_to(environment)
    assert Path(library) == Path(file).parent / "_cypher"
    assert int(queries) == len(list((ROOT / "cypher").rglob("*.cypher")))
    assert sample == "True"


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A store that a job built, and one that this process did."""

    store: Path
    here: api.Pag


@pytest.fixture(scope="module")
def built(submit: Callable[..., dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("built")
    # Relative to the folder of the driver; executors have folders of their own.
    trace, new = (path.relative_to("/") for path in (SAMPLES / "skewed", folder / "job.pag"))
    assert submit("build.py", trace, new, "--slice-events", 1000)["committed"] is True
    api.build(SAMPLES / "skewed", folder / "local.pag", engine="local", slice_events=1000)
    return Built(store=folder / "job.pag", here=api.open(folder / "local.pag"))


def applications(master: Cluster) -> int:
    """Return in how many applications tasks ran in the cluster's own executors."""
    return len(list(master.work.glob("0/app-*/0/stderr")))


def test_a_standalone_cluster_builds(master: Cluster, built: Built) -> None:
    assert applications(master)
    here, there = built.here, api.open(built.store)
    assert_frame_equal(there.vertices().sort("id").collect(), here.vertices().sort("id").collect())
    keys = ["dst", "src", "type"]
    assert_frame_equal(there.edges().sort(keys).collect(), here.edges().sort(keys).collect())


def analyses(built: Built, submit: Callable[..., dict[str, Any]], folder: Path) -> None:
    to = folder / "paths"
    answer = submit("analyse.py", built.store.relative_to("/"), to.relative_to("/"), "--analysis", "critical-path")
    steps = pl.read_parquet(to / "*.parquet").group_by("epoch").agg(pl.col("duration_ns").sum())
    spans = built.here.epochs.select("epoch", duration_ns=pl.col("end_ns") - pl.col("start_ns"))
    assert answer["windows"] == spans.height
    assert_frame_equal(steps.sort("epoch"), spans.sort("epoch"))


def finds_motifs(built: Built, submit: Callable[..., dict[str, Any]], folder: Path) -> None:
    to = folder / "late"
    options = ["late_sender", "--epochs", "2-6", "--set", "min_ns=1000"]
    answer = submit("motif.py", built.store.relative_to("/"), to.relative_to("/"), *options)
    expected = built.here.motif("late_sender", epochs=range(2, 7), parameters={"min_ns": 1000}).frame()
    assert answer["matches"] == expected.height > 0
    matches = pl.read_parquet(to / "*.parquet")
    assert matches.columns == expected.columns
    assert sorted(map(str, matches.to_dicts())) == sorted(map(str, expected.to_dicts()))


@proved_only("a build runs on the cluster; test_jobs.py and test_documentation.py run these jobs in their process")
@pytest.mark.parametrize("job", [analyses, finds_motifs])
def test_jobs_run_on_a_standalone_cluster(
    master: Cluster,
    submit: Callable[..., dict[str, Any]],
    built: Built,
    job: Callable[..., None],
    tmp_path: Path,
) -> None:
    before = applications(master)
    job(built, submit, tmp_path)
    assert applications(master) == before + 1
