"""Analyses that other distributions add by entry points, installed for the test as files on the path."""

from __future__ import annotations

import importlib
import runpy
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from pag_graph import analyses, api
from pag_graph.cli.analyses import command_of
from pag_graph.errors import InvalidParameterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pag_graph.api import Pag

    Install = Callable[..., None]

MODULE = '''
from dataclasses import dataclass
from typing import Annotated

import polars as pl
import pyarrow as pa
from pag_graph.analyses import TableAnalysis

LONGEST_WAITS = pa.schema(
    [
        pa.field("worker", pa.int32(), False, {"doc": "worker that waited"}),
        pa.field("duration_ns", pa.int64(), False, {"doc": "how long"}),
    ]
)


@dataclass(frozen=True, kw_only=True)
class LongestWaitsParameters:
    least_ns: Annotated[int, "Shorter ones are left out."] = 0


def longest_waits(view, parameters):
    """List the waits of a window, longest first."""
    waits = view.collect(view.local)
    waits = waits.filter(pl.col("type") == "waiting", pl.col("duration_ns") >= parameters.least_ns)
    return waits.sort("window", "duration_ns", "worker", descending=[False, True, False])


facts = {"function": longest_waits, "parameters": LongestWaitsParameters, "schema": LONGEST_WAITS}
ANALYSIS = TableAnalysis(name="longest-waits", **facts)
TAKEN = TableAnalysis(name="skew", **facts)
ILL_NAMED = TableAnalysis(name="Longest waits", **facts)
'''


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    def make(*entries: str) -> None:
        package = tmp_path / "some_package"
        package.mkdir()
        (package / "__init__.py").write_text("", encoding="utf-8")
        (package / "longest_waits.py").write_text(MODULE, encoding="utf-8")
        info = tmp_path / "some_distribution-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some-distribution\nVersion: 1.0\n")
        lines = "\n".join(entries)
        (info / "entry_points.txt").write_text(f"[pag_graph.analyses]\n{textwrap.dedent(lines)}\n")
        monkeypatch.syspath_prepend(tmp_path)
        importlib.invalidate_caches()
        analyses.all_entries.cache_clear()

    yield make
    analyses.all_entries.cache_clear()
    for name in [name for name in sys.modules if name.split(".")[0] == "some_package"]:
        del sys.modules[name]


def test_an_analysis_of_another_distribution_is_everywhere(
    install: Install, skewed: Pag, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InvalidParameterError, match="no analysis 'longest-waits'"):
        analyses.find_analysis("longest-waits")
    install("longest-waits = some_package.longest_waits:ANALYSIS")
    found = analyses.find_analysis("longest-waits")
    assert found in analyses.all_analyses()
    assert found not in analyses.ANALYSES
    assert found.help == "List the waits of a window, longest first."
    table = skewed.analyse("longest-waits", least_ns=1_000_000)
    assert table.schema.equals(found.schema)
    waits = table["duration_ns"].to_pylist()
    assert waits == sorted(waits, reverse=True)
    assert min(waits) >= 1_000_000
    assert len(waits) < skewed.analyse("longest-waits").num_rows
    store = skewed.run.info.path
    command_of(found).main([str(store), "--least-ns", "1000000", "--format", "csv"], standalone_mode=False)
    assert len(capsys.readouterr().out.splitlines()) == len(waits) + 1
    answer = api.analyse(store, tmp_path / "out", "longest-waits", engine="local")
    assert answer["rows"] == sum(pq.read_table(file).num_rows for file in (tmp_path / "out").iterdir())


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("skew = some_package.longest_waits:TAKEN", "is called 'skew' like another one"),
        ("odd = some_package.longest_waits:ILL_NAMED", "names are lower-case words with hyphens"),
        ("gone = some_package.longest_waits:NOTHING", "cannot be loaded: AttributeError"),
        ("none = some_package.longest_waits:LONGEST_WAITS", "is no Analysis but of type Schema"),
        ("missing = no_such_package:THING", "cannot be loaded: ModuleNotFoundError"),
    ],
)
def test_what_is_wrong_with_others_is_said_and_stops_nothing(install: Install, entry: str, said: str) -> None:
    install(entry)
    with pytest.warns(UserWarning, match=said) as heard:
        found = analyses.all_analyses()
    assert "of some-distribution" in str(heard[0].message)
    assert found == analyses.ANALYSES


def test_commands_and_the_job_list_them(
    install: Install, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install("longest-waits = some_package.longest_waits:ANALYSIS")
    from pag_graph.cli.analyses import AnalysisGroup

    group = AnalysisGroup(name="pag")
    assert "longest-waits" in group.commands
    monkeypatch.setattr(sys, "argv", ["analyse.py", "--help"])
    job = Path(__file__).parents[3] / "spark_jobs" / "analyse.py"
    with pytest.raises(SystemExit):
        runpy.run_path(str(job), run_name="__main__")
    assert "longest-waits" in capsys.readouterr().out
