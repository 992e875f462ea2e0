"""What the pages of a run need to know of it: its parts, its epochs, and what it can be asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from pag_graph.analyses import Analysis, all_entries, find_analysis
from pag_graph.analyses.runner import Runner
from pag_graph.api import make_engine
from pag_graph.builder.engine import silent
from pag_graph.cypher import load_query
from pag_graph.model.enums import Severity
from pag_graph.model.units import printable, short
from pag_graph.motif.patterns import PATTERNS
from pag_graph.neo4j_server.browser import for_browser
from pag_graph.neo4j_server.home import home_folder
from pag_graph.neo4j_server.process import running_in
from pag_graph.sinks.timeline import COLOURS as USUAL_COLOURS
from pag_graph.sources.spark.keep import STORE
from pag_graph.workbench.lanes import KINDS

if TYPE_CHECKING:
    from pag_graph.graph.run import Run
    from pag_graph.workbench.library import Opened

COLOURS = {
    "serialization": "#83b083",
    "deserialization": "#477e27",
    "buffer": "#d4a72a",
    "io": "#735aac",
    "scheduling": "#a48250",
    "gc": "#b4365d",
    "application": "#3e7688",
    "control_message": "#a23b3b",
    "spawn": "#e07a1f",
    **USUAL_COLOURS,
}
"""Colours of all types; those that pictures of Timely's runs show have the same there."""
_LONGEST = 120
"""Letters of a name."""
_MOST_FINDINGS = 200
_SEVERITIES = [str(severity) for severity in (Severity.ERROR, Severity.WARNING, Severity.INFO)]


def run_facts(opened: Opened) -> dict[str, Any]:
    """Return what the pages of a run need to know once: workers, operators, types, epochs, findings."""
    run = opened.pag.run
    operators = [
        {**row, "name": shortened(row["name"]), "address": shortened(row["address"])}
        for row in run.operators.select("operator", "address", "name").sort("operator").to_dicts()
    ]
    findings = _findings(run)
    return {
        "title": shortened(opened.title),
        **_for_commands(opened),
        "run": run.info.run["run_id"],
        "rules": str(run.rules),
        "aligned": run.aligned,
        "end_ns": run.end_ns,
        "version": opened.version,
        "commit": opened.commit,
        "open": is_open(opened),
        "slowest": run.slowest().epoch,
        "workers": [{"worker": worker, "name": shortened(run.worker_names.get(worker))} for worker in run.workers],
        "operators": operators,
        "kinds": KINDS,
        "colours": COLOURS,
        "cypher": cypher(),
        "motifs": {name: {"motif": pattern.motif, "purpose": pattern.purpose} for name, pattern in PATTERNS.items()},
        "epochs": run.epochs.select("epoch", "role", "start_ns", "end_ns", "edges").to_dicts(),
        "findings": findings.head(_MOST_FINDINGS).to_dicts(),
        "findings_of_epochs": _worst_findings(findings),
        "analyses": [_description(entry.load(), run) for entry in all_entries()],
    }


def _for_commands(opened: Opened) -> dict[str, str | None]:
    """Return what commands call the store, and the one that makes it where the workbench has made it for itself."""
    if opened.log is None:
        return {"called": shortened(opened.pag.run.info.path.name), "made_of": None}
    return {"called": f"{shortened(opened.log)}.graph/{STORE}", "made_of": shortened(opened.log)}


def _findings(run: Run) -> pl.DataFrame:
    """Return the findings with the ``epoch`` of the event that each is about; null where it is about none."""
    findings = run.scan("findings").collect()
    vertex_ids = findings["vertex"].drop_nulls().unique()
    if vertex_ids.is_empty():
        return findings.with_columns(epoch=pl.lit(None, pl.Int64))
    vertices = run.scan("vertices").filter(pl.col("id").is_in(vertex_ids.implode())).select("id", "epoch").collect()
    return findings.join(vertices, left_on="vertex", right_on="id", how="left", maintain_order="left")


def _worst_findings(findings: pl.DataFrame) -> list[dict[str, Any]]:
    """Return, for each epoch with findings, how many there are and how severe the worst is."""
    of_epochs = findings.drop_nulls("epoch")
    rank = pl.col("severity").replace_strict(_SEVERITIES, list(range(len(_SEVERITIES))), return_dtype=pl.Int64)
    worst = of_epochs.sort(rank).group_by("epoch", maintain_order=True)
    return worst.agg(pl.len().alias("count"), pl.col("severity").first()).sort("epoch").to_dicts()


def cypher() -> dict[str, str | None]:
    """Return where Neo4j Browser is, if the server of this machine runs, and the query for a critical path."""
    process = running_in(home_folder())
    query = load_query("analyses/critical_path")
    return {
        "browser": None if process is None else f"http://{process.host}:{process.http_port}/browser/",
        "name": query.name,
        "query": for_browser(query, query.code),
    }


def shortened(name: str | None) -> str | None:
    """Return a name of a trace as a page shows it: on one line, and not longer than anybody reads."""
    return name and printable(short(name, _LONGEST))


def _description(analysis: Analysis[Any], run: Run) -> dict[str, Any]:
    return {
        "name": analysis.name,
        "help": analysis.help,
        "scope": str(analysis.scope),
        "met": analysis.needs.met_by(run.rules),
        "picture": analysis.chart is not None,
        "parameters": [
            {
                "name": parameter.name,
                "help": parameter.help,
                "choices": parameter.choices,
                "default": plain(parameter.default),
            }
            for parameter in analysis.parameter_list
        ],
    }


def plain(value: Any) -> Any:
    """Return the value of a parameter as JSON has it; what it has not is null."""
    if isinstance(value, tuple):
        return list(value)
    return value if isinstance(value, str | int | float | bool) or value is None else None


def epochs_answer(rows: pl.DataFrame) -> dict[str, Any]:
    """Return rows of `epochs` as the pages read them: by column."""
    return {"columns": {name: rows[name].to_list() for name in rows.columns}}


NO_EPOCHS = pl.DataFrame(
    schema={"epoch": pl.Int64, "type": pl.String, "duration_ns": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64}
)
"""What `epochs` returns of a run without any."""


def is_open(opened: Opened) -> bool:
    """Say whether more of the log can change epochs that a run has.

    Parameters
    ----------
    opened
        The run.

    Returns
    -------
    bool
        So it is where a follower ended before its source was complete, and another one may go on.
    """
    run = opened.pag.run
    last_epoch = int(run.epochs["epoch"].to_numpy().max(initial=-1))
    return not run.complete and last_epoch > run.info.run["last_closed_epoch"]


def epochs(opened: Opened, known: pl.DataFrame | None = None) -> pl.DataFrame:
    """Return what the critical path of each epoch is made of.

    Parameters
    ----------
    opened
        The run.
    known
        Rows of an earlier state of the run: epochs of it that have not changed are not looked at again.

    Returns
    -------
    DataFrame
        One row per epoch and type: ``epoch``, ``type``, ``duration_ns``, and ``start_ns`` and ``end_ns`` of the epoch.
        An epoch whose path has no steps, as it takes no time, has one row without a type.
    """
    run = opened.pag.run
    windows = run.windows()
    unchanged: pl.DataFrame | None = None
    if known is not None:
        epochs_now = run.epochs.select("epoch", "start_ns", "end_ns")
        unchanged = known.join(epochs_now, on=["epoch", "start_ns", "end_ns"], how="semi")
        unchanged_epochs = set(unchanged["epoch"].to_list())
        windows = [window for window in windows if window.epoch not in unchanged_epochs]
    parts = [] if unchanged is None else [unchanged]
    if windows:
        analysis = find_analysis("critical-path")
        runner = Runner(run=run, engine=make_engine("local"), spread=None, progress=silent)
        steps = pl.DataFrame(runner.each(analysis, windows, None))  # type: ignore[arg-type]
        spans = pl.DataFrame(
            {
                "epoch": [window.epoch for window in windows],
                "start_ns": [window.start_ns for window in windows],
                "end_ns": [window.end_ns for window in windows],
            }
        )
        by_type = steps.group_by("epoch", "type").agg(pl.col("duration_ns").sum())
        of_epochs = spans.join(by_type, on="epoch", how="left").with_columns(pl.col("duration_ns").fill_null(0))
        parts.append(of_epochs.select("epoch", "type", "duration_ns", "start_ns", "end_ns"))
    return pl.concat(parts, how="vertical_relaxed").sort("start_ns", "epoch", "type")
