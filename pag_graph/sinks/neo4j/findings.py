"""What is to be told of a run: findings of its build, and alerts of its rules, as rows of one table."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import polars as pl

from pag_graph.model.enums import AlertEvent
from pag_graph.model.tables import PAG_FINDINGS
from pag_graph.sinks.neo4j.model import FINDING

if TYPE_CHECKING:
    from pag_graph.graph.run import Run

ALERT = "alert"
"""What the kind of a finding is called that is an alert."""
_OF_ALERTS: dict[str, Any] = {
    **dict.fromkeys(("rule", "query", "subject", "row"), pl.String),
    **dict.fromkeys(("first_epoch", "resolved_epoch", "src", "dst"), pl.Int64),
    "learned": pl.Boolean,
    "coverage": pl.Float64,
}


def findings_of(run: Run, before: pl.DataFrame | None = None) -> pl.DataFrame:
    """Return findings and alerts of a run.

    Parameters
    ----------
    run
        A committed run.
    before
        Those of an earlier state of its store: the vertices that they name are not looked up again.

    Returns
    -------
    DataFrame
        Rows of `FINDING`; beside them ``t_ns``, the instant of the vertex that a finding names, and ``at_epoch``, its
        epoch, or the one with which an alert begins. O(findings + alerts).
    """
    built, alerts = _built(run, before), _alerts(run)
    columns = [*FINDING.columns, "t_ns", "at_epoch"]
    nothing = [pl.lit(None, kind).alias(name) for name, kind in _OF_ALERTS.items()]
    findings = built.with_columns(*nothing, pl.col("observed", "limit").cast(pl.Float64)).select(columns)
    return findings if alerts is None else pl.concat([findings, alerts.select(columns)], how="vertical_relaxed")


def _built(run: Run, before: pl.DataFrame | None) -> pl.DataFrame:
    """Return the findings of the build, each with an ``id`` made of what it says."""
    rows = run.scan("findings").select(PAG_FINDINGS.names).collect()
    times_seen: dict[str, int] = {}
    ids = []
    for row in rows.iter_rows():
        digest = hashlib.sha256(json.dumps(row).encode()).hexdigest()[:16]
        times_seen[digest] = times_seen.get(digest, 0) + 1
        # Findings with equal content get a number to tell them apart.
        ids.append(digest if times_seen[digest] == 1 else f"{digest}-{times_seen[digest]}")
    finding_rows = rows.with_columns(id=pl.Series(ids, dtype=pl.String))
    return finding_rows.join(_named(run, rows["vertex"], before), on="vertex", how="left", maintain_order="left")


def _named(run: Run, vertices: pl.Series, before: pl.DataFrame | None) -> pl.DataFrame:
    """Return when the vertices were that findings name, and in which epoch: ``vertex``, ``t_ns`` and ``at_epoch``."""
    known = pl.DataFrame(schema={"vertex": pl.Int64, "t_ns": pl.Int64, "at_epoch": pl.Int64})
    if before is not None:
        known = before.drop_nulls(["vertex", "t_ns"]).select(known.columns).unique("vertex")
    wanted = vertices.drop_nulls().unique()
    unknown = wanted.filter(~wanted.is_in(known["vertex"].implode()))
    if not unknown.len():
        return known
    found = run.scan("vertices").select(vertex="id", t_ns="t_ns", at_epoch="epoch")
    return pl.concat([known, found.filter(pl.col("vertex").is_in(unknown.implode())).collect()])


def _alerts(run: Run) -> pl.DataFrame | None:
    """Return the alerts, one row each, whether they are resolved or not; None of a store without rules."""
    if "alerts" not in run.info.versions:
        return None
    events = run.scan("alerts").collect()
    opened = events.filter(pl.col("event") == str(AlertEvent.OPENED))
    resolved = events.filter(pl.col("event") == str(AlertEvent.RESOLVED)).select("id", resolved_epoch="epoch")
    alerts = opened.join(resolved, on="id", how="left", maintain_order="left")
    nulls = [pl.lit(None, kind).alias(name) for name, kind in pl.DataFrame(PAG_FINDINGS.empty_table()).schema.items()]
    kept_columns = {"severity", "observed", "limit"}
    return alerts.with_columns(
        column for column in nulls if column.meta.output_name() not in kept_columns
    ).with_columns(
        finding=pl.lit(ALERT),
        worker=pl.col("subject").str.json_path_match("$.worker").cast(pl.Int32, strict=False),
        action=pl.when(pl.col("resolved_epoch").is_null()).then(pl.lit("opened")).otherwise(pl.lit("resolved")),
        t_ns=pl.lit(None, pl.Int64),
        at_epoch="first_epoch",
    )
