"""The page of all analyses, from their definitions: ``python -m pag_graph.analyses.reference_page > docs/analyses.md``.

A test compares the page with the file.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import MISSING
from typing import TYPE_CHECKING, Any

from pag_graph.analyses import ANALYSES, Analysis, Parameter, Scope
from pag_graph.graph.needs import Needs

if TYPE_CHECKING:
    import pyarrow as pa

_HEAD = """\
# Analyses

*Which question does which analysis answer, and what do its parameters and columns mean?*

```sh
pag critical-path run.pag --epoch 5
```

Every analysis takes a window of a run and returns a table. It is a command of `pag`, a method of `Pag` and a choice of
`spark_jobs/analyse.py`. [All analyses](#all-analyses) lists them with the question that each answers. If you do not
know where to begin, begin with [why](#why).

- **Window.** `--epoch N`, `--role startup`, `--role shutdown` or `--between FROM TO` choose the window; without them,
  the slowest round is used. In Python these are `epoch=`, `role=`, `between=`.
- **Output.** All analyses print `--format table`, `json`, `csv`, `markdown` or `html` (one file with a picture, which
  loads nothing from elsewhere). `--top` limits the rows of a table, and `--picture FILE.svg` draws them.
- **Job.** `spark_jobs/analyse.py` writes one Parquet file per task, with a column `epoch`, to a folder that is new or
  empty. It takes parameters as `--set FIELD=VALUE`, where the value is JSON or a text.
- **Units.** Times are nanoseconds from the run's origin. "O(edges)" and the like say how the cost grows.

This page is made from the definitions in `pag_graph/analyses`. To change it, change them, and run
`python -m pag_graph.analyses.reference_page > docs/analyses.md`.

## Many windows, and large ones

`--each` asks an analysis about every epoch of a run in one pass, and `--every 10ms` about windows of that length (see
[cli.md](cli.md)). In Python these are `pag.each("waits")` and `pag.series("waits", every_ns=10_000_000)`. The rows of
all windows come in one table. The graph is read once, in stretches of many windows.

```sh
pag waits run.pag --each --format csv              # rows of all epochs, each with its epoch
pag critical-path run.pag --each --format json
```

On Spark, `spark_jobs/analyse.py` and `each(..., engine="spark")` give stretches of windows to tasks. A task holds the
edges of its windows in memory. This is the fast plan. It works as long as the edges of one window fit into a task: an
edge takes about 100 bytes, so 10 million edges take 1 GB.

If they do not fit, **a window is spread over all executors**: use `spark_jobs/analyse.py ... --across`, or a Spark
session as `spark=` in Python. Only sums, and what is listed below, come to the driver. The rows are the same.

```sh
spark-submit spark_jobs/analyse.py run.pag out/across --analysis skew --across
```

```python
import pag_graph
from pag_graph.engines.session import spark_session

spark = spark_session()
pag = pag_graph.open("run.pag")
pag.skew(epoch=5, spark=spark)
pag.each("traffic", spark=spark)
```

- `metrics`, `matrix`, `traffic`, `waits`, `skew` are sums over edges, by the same expressions in both plans.
- `k-hops`: every hop joins the edges with the vertices that walks have reached. The sums of each hop come to the
  driver.
- `critical-path`, `profile`, `profile-rounds`, `imbalance`: the driver walks the paths over waits and what ended them,
  and looks up the edges between by a join. The rows of the path come to the driver.
- `blame`, `stragglers`: the same for the path of every wait. The sums of these paths come to the driver.
- `invariants`: the largest value of each kind in a round, everything that exceeds a limit, and the run's progress
  messages come to the driver.

The other analyses (`why`, `sample`, `slack`, `what-if`, `causal-profile`, `participation`, `k-hops-st2`, `diff`) refuse
`--across` and `spark=`. Replays and counts of paths follow edges one after the other in the order of time, and each
step needs the result of the steps before it. If they were spread over tasks, every level of the graph would be a round
of messages between them, and a graph has at least as many levels as its critical path has edges. For these analyses
choose shorter windows (`--between`, `--every`): their answer is exact for the shorter window.

## All analyses

"across" marks those that can spread one window over Spark's executors.

| analysis | looks at | across | answers |
|---|---|---|---|
"""
_TAIL = '''
## Your own

You can add an analysis without changing this repository. Your own distribution names an `Analysis` with an entry point
of the group `pag_graph.analyses`:

```toml
[project.entry-points."pag_graph.analyses"]
longest-waits = "my_package.longest_waits:ANALYSIS"
```

```python
# my_package/longest_waits.py
import polars as pl
import pyarrow as pa
from pag_graph.analyses import TableAnalysis

LONGEST_WAITS = pa.schema([pa.field("worker", pa.int32(), False), pa.field("duration_ns", pa.int64(), False)])


def longest_waits(view):
    """List the waits of a window, longest first."""
    waits = view.collect(view.local).filter(pl.col("type") == "waiting")
    return waits.sort("window", "duration_ns", "worker", descending=[False, True, False])


ANALYSIS = TableAnalysis(name="longest-waits", function=longest_waits, schema=LONGEST_WAITS)
```

The function is called once for many windows, or once for a single one. In both cases every row of the view has the
place of its `window`, and the rows of a window must follow each other. Every command imports the module, so import
inside the function what takes long to import.

With this there are `pag longest-waits`, `Pag.longest_waits` and `spark_jobs/analyse.py --analysis longest-waits`.
Executors need the distribution as well. An analysis that cannot be loaded, or that takes a name that is taken, is left
out with a warning.
'''
_SCOPES = {Scope.WINDOW: "a window", Scope.RUN: "all rounds", Scope.PAIR: "two windows, or two runs"}
_SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}\n", re.MULTILINE)


def page() -> str:
    """Return the text of ``docs/analyses.md``.

    Returns
    -------
    str
        Markdown.
    """
    rows = "".join(
        f"| [{analysis.name}](#{analysis.name}) | {_SCOPES[analysis.scope]} | {'yes' if analysis.across else ''}"
        f" | {analysis.help} |\n"
        for analysis in ANALYSES
    )
    return _HEAD + rows + "".join(about(analysis) for analysis in ANALYSES) + _TAIL


def picture_name(analysis: Analysis[Any]) -> str | None:
    """Return the name of the file with an analysis' picture.

    Parameters
    ----------
    analysis
        Any.

    Returns
    -------
    str or None
        None of one that is not drawn. Timelines share one picture.
    """
    if analysis.chart is None:
        return None
    return "skewed-epoch4.svg" if analysis.chart.kind == "timeline" else f"analysis-{analysis.name}.svg"


def about(analysis: Analysis[Any]) -> str:
    """Return the section of an analysis: what it means, how it is called, its parameters and its columns.

    Parameters
    ----------
    analysis
        Out of `ANALYSES`.

    Returns
    -------
    str
        Markdown.
    """
    first, sections = _sections(analysis.doc)
    command = f"pag {analysis.name} {analysis.example_store} {analysis.example}".rstrip()
    if analysis.needs.usual is not Needs.NOTHING.usual:
        command = f"pag build run.trace {analysis.example_store} --rules {analysis.needs.usual}\n{command}"
    defaults = [(item.name, item.default) for item in analysis.parameter_list]
    shown = analysis.example_values or [pair for pair in defaults if pair[1] not in (MISSING, None, ())][:1]
    # A folder for each: a job refuses one that holds another's rows.
    job = f"spark-submit spark_jobs/analyse.py {analysis.example_store} out/{analysis.name} --analysis {analysis.name}"
    job += "".join(f" --set {name}={_setting(value)}" for name, value in shown)
    parts = [f"\n## {analysis.name}\n\n{first}\n", f"```sh\n{command}\n{job}\n```\n"]
    call = ", ".join(f"{name}={_literal(value)}" for name, value in shown)
    parts.append(f'```python\npag_graph.open("{analysis.example_store}").{analysis.method}({call})\n```\n')
    parts.extend(f"{sections[name]}\n" for name in ("Notes", "References") if name in sections)
    picture = picture_name(analysis)
    if picture is not None:
        parts.append(f"![{analysis.name} of the bundled trace skewed](pictures/{picture})\n")
    if analysis.parameter_list:
        parts.append("| parameter | type | default | meaning |\n|---|---|---|---|\n" + _parameters(analysis))
    parts.append(f"{_grain(analysis)}\n\n" + _columns(analysis.schema))
    facts = []
    if analysis.needs is not Needs.NOTHING:
        able = analysis.needs.rule_sets
        sets = " and ".join(f"`{rules}`" for rules in sorted(able))
        facts.append(f"Only for runs of the rule set {sets}." if len(able) == 1 else f"Rule sets {sets}.")
    if analysis.across:
        facts.append("A window can be spread over Spark's executors: `--across`, `spark=`.")
    if analysis.cypher:
        facts.append(f"In Neo4j: `pag neo4j query {analysis.cypher}`.")
    if analysis.alarm:
        facts.append("The command's exit code is 9 if there are any rows.")
    if facts:
        parts.append(" ".join(facts) + "\n")
    return "\n".join(parts)


def _sections(doc: str) -> tuple[str, dict[str, str]]:
    """Split a NumPy docstring; what comes before its first section is the description."""
    parts = _SECTION.split(doc)
    text_of_section = {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}
    return parts[0].strip(), text_of_section


def _parameters(analysis: Analysis[Any]) -> str:
    return "".join(
        f"| `{parameter.name}` | {_kind(parameter)} | {_default(parameter)} | {parameter.help} |\n"
        for parameter in analysis.parameter_list
    )


def _kind(parameter: Parameter) -> str:
    kind = ", ".join(f"`{choice}`" for choice in parameter.choices) or getattr(parameter.item, "__name__", "str")
    return f"{kind}{', several' if parameter.many else ''}"


def _setting(value: Any) -> str:
    """Return a value as `--set` takes it: a text as it stands, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def _literal(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _default(parameter: Parameter) -> str:
    if parameter.default is MISSING:
        return "must be given"
    return "" if parameter.default is None or parameter.default == () else f"`{parameter.default}`"


def _grain(analysis: Analysis[Any]) -> str:
    """Return the sentence of the docstring that says what a row is."""
    returns = _sections(analysis.doc)[1].get("Returns", "")
    text = " ".join(line.strip() for line in returns.splitlines()[1:])
    return text or f"Rows of `{analysis.output}`."


def _columns(schema: pa.Schema) -> str:
    rows = "".join(
        f"| `{item.name}` | {item.type}{', null' if item.nullable else ''} | {item.metadata[b'doc'].decode()} |\n"
        for item in schema
    )
    return f"| column | type | meaning |\n|---|---|---|\n{rows}"


if __name__ == "__main__":
    sys.stdout.write(page())
