"""How much of each thread's time lies downstream of each operator: what a threaded port there would take over.

Definitions: `docs/model.md`, section "Advice"; Tang and Gedik (2013) 3.1.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from pag_graph.analyses.advising.pipelines import folded
from pag_graph.analyses.advising.ports import KeepParameter, LevelParameter, PactParameter, Ports, read_ports
from pag_graph.analyses.advising.thread_work import RUNTIME, Bounds
from pag_graph.analyses.critical_path import critical_path
from pag_graph.analyses.definition import Chart, ReportAnalysis
from pag_graph.analyses.expressions import operator_names
from pag_graph.analyses.reports import Report
from pag_graph.analyses.result_tables import typed_table
from pag_graph.graph.needs import Needs
from pag_graph.model.enums import COUNTED_TYPES
from pag_graph.model.tables import ADVISE_PORTS

if TYPE_CHECKING:
    import pyarrow as pa

    from pag_graph.graph.snapshot import Snapshot
    from pag_graph.graph.window import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvisePortsParameters:
    """Parameters of `advise_ports`."""

    level: LevelParameter = None
    keep: KeepParameter = ()
    pact: PactParameter = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PortTable(Report):
    """The places for ports in a window."""

    window: Window
    """The window."""
    table: pa.Table
    """Rows of `ADVISE_PORTS`."""
    ports: Ports
    """Operators as places for ports."""

    def headline(self) -> str:
        """Return what a person reads before the rows."""
        busy = ", ".join(f"{worker}: {bounds.likely:.0%}" for worker, bounds in self.ports.work.busy.items())
        lines = [f"{self.window.name.capitalize()}: work per thread {busy}; {self.ports.work.coverage:.1%} explained"]
        if self.ports.mode == "flow" and not self.ports.counted_records:
            lines.append(
                "Nobody counted the records on channels: where paths join, shares are from mu_low to mu_high."
                " Build the store again with `pag build TRACE STORE --replace`."
            )
        return "\n".join(lines)

    def summary(self) -> dict[str, Any]:
        """Return everything but the rows as plain values, for programs."""
        return {
            "mode": self.ports.mode,
            "coverage": self.ports.work.coverage,
            "threads": [
                {"worker": worker, "mu": mu.likely, "mu_high": mu.high, "life_ns": self.ports.work.life[worker]}
                for worker, mu in self.ports.work.busy.items()
            ],
        }


def advise_ports(snapshot: Snapshot, parameters: AdvisePortsParameters | None = None) -> PortTable:
    """Say how much of each thread's time lies downstream of each operator.

    Parameters
    ----------
    snapshot
        Of a run with aligned clocks.
    parameters
        How to tell operators apart, and what the log does not tell.

    Returns
    -------
    PortTable
        One row per operator and thread. The runtime's own time has a row without an operator.

    Raises
    ------
    InvalidParameterError
        If there is no such operator or channel.
    UnsupportedPlanError
        If the run was built with the rule set `st2`, whose clocks are not aligned.

    Notes
    -----
    If a source states its activities, everything that nests in an operator is downstream of it. In a dataflow,
    downstream is what an operator's records reach over channels on which no record left its worker. O(edges); if
    activities nest, also all vertices before the window's end.
    """
    options = parameters or AdvisePortsParameters()
    snapshot.run.require_aligned("Utilisations are shares of one clock's time")
    ports = read_ports(snapshot, level=options.level, keep=options.keep, pact=options.pact)
    return PortTable(window=snapshot.window, table=port_rows(snapshot, ports), ports=ports)


def port_rows(snapshot: Snapshot, ports: Ports) -> pa.Table:
    """Return what a port at each operator would take from each thread.

    Parameters
    ----------
    snapshot
        The window.
    ports
        Its operators as places for ports.

    Returns
    -------
    Table
        Rows of `ADVISE_PORTS`, one per operator and worker that runs it, or what lies downstream of it.
    """
    own_rows = {(row["operator"], row["worker"]): row for row in ports.work.own.to_dicts()}
    path = _path_ns(snapshot, ports)
    keys = sorted(
        set(own_rows) | {(key_operator, worker) for key_operator, shares in ports.below.items() for worker in shares}
    )
    rows = []
    for operator, worker in keys:
        spent = own_rows.get((operator, worker), {"own_ns": 0, "records": 0})
        share = spent["own_ns"] / ports.work.life[worker]
        mu = ports.below.get(operator, {}).get(worker, Bounds(share, share, share))
        flags = [*ports.flags[operator], *(["inferred"] if mu.low < mu.high or _apportioned(ports, operator) else [])]
        rows.append(
            {
                "operator": operator,
                "worker": worker,
                "mu": mu.likely,
                "mu_low": mu.low,
                "mu_high": mu.high,
                "own_ns": spent["own_ns"],
                "path_ns": path.get((operator, worker), 0),
                "records": spent["records"] or None,
                "flags": ",".join(flags),
                "status": ports.status[operator],
            }
        )
    frame = pl.DataFrame(rows, schema_overrides={"records": pl.Int64, "worker": pl.Int32}, infer_schema_length=None)
    if frame.is_empty():
        return ADVISE_PORTS.empty_table()
    named_rows = frame.join(operator_names(snapshot.run).drop("address"), on="operator", how="left").with_columns(
        pl.when(pl.col("operator") != RUNTIME).then("operator").alias("operator")
    )
    order = ["mu", "worker", "operator"]
    return typed_table(named_rows.sort(order, descending=[True, False, False], nulls_last=True), ADVISE_PORTS)


def _apportioned(ports: Ports, operator: int) -> bool:
    """Say whether any share behind an operator's number is a part."""
    if ports.flow is None:
        return False
    shares = ports.shares[operator].values()
    return any(0 < bounds.likely < 1 for of_workers in shares for bounds in of_workers.values())


def _path_ns(snapshot: Snapshot, ports: Ports) -> dict[tuple[int, int], int]:
    """Return work on the critical path per operator and thread."""
    if not snapshot.window.span_ns:
        return {}
    steps = pl.DataFrame(pl.from_arrow(critical_path(snapshot).table))
    work = steps.filter(pl.col("type").is_in([str(kind) for kind in COUNTED_TYPES])).select(
        pl.col("operator").fill_null(RUNTIME), "worker", "duration_ns"
    )
    if ports.flow is not None:
        told_apart = folded(work["operator"].to_numpy(), ports.flow.fold)
        work = work.with_columns(operator=pl.Series(told_apart))
    summed = work.group_by("operator", "worker").sum()
    return {(operator, worker): spent for operator, worker, spent in summed.iter_rows()}


ANALYSIS = ReportAnalysis(
    name="advise-ports",
    function=advise_ports,
    parameters=AdvisePortsParameters,
    schema=ADVISE_PORTS,
    output="ADVISE_PORTS",
    needs=Needs.ALIGNED_CLOCKS,
    example="--epoch 5",
    heaviest="mu",
    chart=Chart(kind="bars", x=("operator_name", "worker"), y=("mu",), unit=None, interval=("mu_low", "mu_high")),
)
