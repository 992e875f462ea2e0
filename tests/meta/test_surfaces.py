"""Every analysis is everywhere: command, method, job, documentation, and all give its declared table."""

from __future__ import annotations

import ast
import inspect
import json
import subprocess
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pag_graph import api
from pag_graph.analyses import ANALYSES, Analysis, RunAnalysis, Scope, find_analysis, indexing, table_of
from pag_graph.analyses.index import INDEX
from pag_graph.analyses.reference_page import page
from pag_graph.analyses.signatures import source
from pag_graph.cli.demo import SAMPLES
from pag_graph.cli.gallery import pictures
from pag_graph.cypher import list_queries
from pag_graph.errors import InvalidParameterError, UnsupportedPlanError
from pag_graph.model.enums import RuleSet

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
MODULES = {
    path.stem
    for path in (ROOT / "pag_graph" / "analyses").glob("*.py")
    # These are the framework, with windows that are many or large; the graph that replays work on; distributions that
    # intervals are read from; what `why` knows before it speaks; and standing queries, with what only they ask for.
    if path.stem
    not in {
        "__init__",
        "definition",
        "entries",
        "reports",
        "result_tables",
        "window_graphs",
        "parameters",
        "index",
        "indexing",
        "runner",
        "reference_page",
        "signatures",
        "expressions",
        "view",
        "contraction",
        "constraints",
        "distributions",
        "due_times",
        "evidence",
        "observations",
        "repetitions",
        "scaling",
        "statements",
        "standing",
        "rounds",
        "totals",
        "degrees",
        "motifs",
        "invariants_resumed",
        "operator_choice",
    }
}
# What an analysis cannot do without, for a call on the bundled trace.
NEEDED = {analysis.name: dict(analysis.example_values) for analysis in ANALYSES}
each_analysis = pytest.mark.parametrize("analysis", ANALYSES, ids=lambda analysis: analysis.name)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[RuleSet, Path]:
    folder = tmp_path_factory.mktemp("surfaces")
    for rules in RuleSet:
        # A real trace for all of them; what it says under `stated`, which it contradicts, is asked of nobody here.
        api.build(SAMPLES / "skewed", folder / str(rules), rules=rules, force_rules=True, engine="local")
    return {rules: folder / str(rules) for rules in RuleSet}


def store_of(stores: dict[RuleSet, Path], analysis: Analysis) -> Path:
    return stores[analysis.needs.usual]


def test_every_module_is_listed() -> None:
    assert set(indexing.MODULES) == MODULES
    assert [analysis.name for analysis in ANALYSES] == list(INDEX)


def test_the_index_is_current() -> None:
    written = (ROOT / "pag_graph" / "analyses" / "index.py").read_text(encoding="utf-8")
    assert written == indexing.source(), "run: python -m pag_graph.analyses.indexing"


def test_names_are_unique() -> None:
    assert len({analysis.name for analysis in ANALYSES}) == len(ANALYSES)
    assert [find_analysis(analysis.method) for analysis in ANALYSES] == list(ANALYSES)


@each_analysis
def test_a_definition_is_whole(analysis: Analysis) -> None:
    assert analysis.help.endswith(".")
    assert len(analysis.help) < 120
    assert isinstance(analysis.schema, pa.Schema)
    assert analysis.needs.rule_sets
    assert analysis.cypher is None or analysis.cypher in list_queries()
    columns = set(analysis.schema.names)
    chart = analysis.chart
    if chart is not None:
        assert chart.columns <= columns
        assert bool(chart.columns) == (chart.kind != "timeline")
    assert set(analysis.columns) <= columns
    assert {analysis.heaviest} - {""} <= columns
    taken = list(inspect.signature(analysis.function).parameters)
    assert ("parameters" in taken) == (analysis.parameters is not None)
    if analysis.parameters is not None:
        assert is_dataclass(analysis.parameters)
        assert analysis.parameters.__dataclass_params__.frozen
        assert all(parameter.help for parameter in analysis.parameter_list)
        assert len(analysis.parameter_list) == len(fields(analysis.parameters))
    if isinstance(analysis, RunAnalysis):
        assert analysis.scope is Scope.RUN
        assert analysis.part is None or callable(analysis.part)


@each_analysis
def test_every_analysis_is_a_method(analysis: Analysis, stores: dict[RuleSet, Path]) -> None:
    pag = api.open(store_of(stores, analysis))
    method = getattr(pag, analysis.method)
    assert method.__doc__
    result = method(**NEEDED.get(analysis.name, {}))
    assert table_of(result).schema.equals(analysis.schema)
    if result is not table_of(result):
        json.dumps(result.summary())
    with pytest.raises(TypeError if analysis.name == "critical-path" else InvalidParameterError):
        method(no_such_parameter=1)


@pytest.mark.sampled(6)
@each_analysis
def test_every_analysis_is_a_command(
    analysis: Analysis,
    stores: dict[RuleSet, Path],
    run_pag: Callable[..., tuple[int, str, str]],
) -> None:
    code, text, _ = run_pag(analysis.name, "--help")
    assert code == 0
    assert f"Example: pag {analysis.name}" in " ".join(text.split())
    store = store_of(stores, analysis)
    given = [
        word
        for name, value in NEEDED.get(analysis.name, {}).items()
        for item in (value if isinstance(value, list) else (value,))
        for word in (f"--{name.replace('_', '-')}", item)
    ]
    expected = table_of(api.open(store).analyse(analysis.name, **NEEDED.get(analysis.name, {})))
    fine = {0, 9} if analysis.alarm else {0}
    for form in ("table", "json", "csv", "markdown", "html"):
        code, text, error = run_pag(analysis.name, store, "--format", form, *given)
        assert code in fine, error
        assert text
        if form == "json":
            assert json.loads(text)[analysis.rows] == expected.to_pylist()
        if form == "csv":
            assert text.splitlines()[0] == ",".join(analysis.schema.names)
            assert len(text.splitlines()) == expected.num_rows + 1


@pytest.mark.sampled(6)
@each_analysis
def test_every_analysis_is_a_job(analysis: Analysis, stores: dict[RuleSet, Path], tmp_path: Path) -> None:
    needed = NEEDED.get(analysis.name, {})
    store = store_of(stores, analysis)
    answer = api.analyse(store, tmp_path / "out", analysis.name, parameters=needed, engine="local")
    files = sorted((tmp_path / "out").iterdir())
    tables = [pq.read_table(file) for file in files]
    assert sum(table.num_rows for table in tables) == answer["rows"]
    # A pair of windows is a task of its own; of single ones a task takes as many as are read together.
    windows = list(api.open(store).run.stretches(api.open(store).run.windows()))
    assert len(files) == {Scope.RUN: 1, Scope.WINDOW: len(windows), Scope.PAIR: answer["windows"]}[analysis.scope]
    if analysis.scope is Scope.WINDOW and "epoch" not in analysis.schema.names:
        alone = api.open(store).each(analysis.name, **needed)
        assert pa.concat_tables(tables)["epoch"].to_pylist() == alone["epoch"].to_pylist()
    for table in tables:
        names = analysis.schema.names
        assert table.column_names == (names if "epoch" in names or analysis.scope is Scope.RUN else [*names, "epoch"])


@each_analysis
def test_rule_sets_without_meaning_are_refused(analysis: Analysis, stores: dict[RuleSet, Path]) -> None:
    for rules in set(RuleSet) - analysis.needs.rule_sets:
        with pytest.raises(UnsupportedPlanError):
            api.open(stores[rules]).analyse(analysis.name, **NEEDED.get(analysis.name, {}))


def test_the_job_lists_every_analysis() -> None:
    help_text = subprocess.run(
        [sys.executable, ROOT / "spark_jobs" / "analyse.py", "--help"], capture_output=True, text=True, check=True
    ).stdout
    for analysis in ANALYSES:
        assert analysis.name in help_text


def test_the_pictures_of_analyses_are_current(stores: dict[RuleSet, Path]) -> None:
    drawn = pictures({rules: api.open(stores[rules]) for rules in (RuleSet.TIMELY, RuleSet.ST2)})
    folder = ROOT / "docs" / "pictures"
    assert {path.name for path in folder.glob("analysis-*.svg")} == set(drawn) - {"skewed-epoch4.svg"}
    for name, text in drawn.items():
        written = (folder / name).read_text(encoding="utf-8")
        assert written == text, f"{name}: run: python -m pag_graph.cli.gallery docs/pictures"


def test_the_page_of_analyses_is_current() -> None:
    written = (ROOT / "docs" / "analyses.md").read_text(encoding="utf-8")
    assert written == page(), "run: python -m pag_graph.analyses.reference_page > docs/analyses.md"


def test_the_methods_are_current() -> None:
    written = (ROOT / "pag_graph" / "methods.py").read_text(encoding="utf-8")
    assert written == source(), "run: python -m pag_graph.analyses.signatures > pag_graph/methods.py"


@each_analysis
def test_a_method_says_what_it_takes(analysis: Analysis) -> None:
    taken = inspect.signature(getattr(api.Pag, analysis.method)).parameters
    for parameter in analysis.parameter_list:
        assert taken[parameter.name].default == parameter.default
        assert taken[parameter.name].kind is inspect.Parameter.KEYWORD_ONLY
    assert ("epoch" in taken) == (analysis.scope is not Scope.RUN)
    assert ("spark" in taken) == analysis.across


def test_listing_analyses_imports_none_of_them() -> None:
    code = (
        "import sys; sys.argv = ['pag', '--help']\n"
        "from pag_graph.cli import app\n"
        "try:\n    app.main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'polars', 'numba', 'numpy', 'pyarrow', 'pyspark', 'neo4j', 'deltalake', 'rich.markdown'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    for analysis in ANALYSES:
        assert analysis.name in done.stdout


def test_the_framework_imports_nothing_heavy() -> None:
    for name in ("__init__", "definition", "parameters", "index"):
        tree = ast.parse((ROOT / "pag_graph" / "analyses" / f"{name}.py").read_text(encoding="utf-8"))
        imported = {node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom)} | {
            alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names
        }
        assert not {module.split(".")[0] for module in imported} & {"polars", "numpy", "pyarrow", "numba"}
