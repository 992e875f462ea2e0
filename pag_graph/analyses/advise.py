"""Where a thread more would make a program faster, and by how much.

The advisor of Tang and Gedik (2013), "Auto-pipelining for Data Stream Processing", on a recording: it also replays the
window with every port that it proposes. Definitions: `docs/model.md`, section "Advice".
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import polars as pl

from pag_graph.analyses.advising.advice_options import Plan, flow_options, nested_options
from pag_graph.analyses.advising.advice_state import AdviceState, Blacklisting, port_names, read_state
from pag_graph.analyses.advising.port_replay import Replay, Transfer, port_replay
from pag_graph.analyses.advising.ports import KeepParameter, LevelParameter, PactParameter, Ports, read_ports
from pag_graph.analyses.constraints import ArrivalParameter, LoopParameter, constraint_graph
from pag_graph.analyses.definition import Chart, ReportAnalysis
from pag_graph.analyses.expressions import operator_names
from pag_graph.analyses.operator_choice import operators_called
from pag_graph.analyses.reports import Report
from pag_graph.analyses.result_tables import typed_table
from pag_graph.errors import InvalidParameterError
from pag_graph.graph.needs import Needs
from pag_graph.model.tables import ADVICE
from pag_graph.model.units import duration, nanoseconds

if TYPE_CHECKING:
    import pyarrow as pa

    from pag_graph.graph.run import Run
    from pag_graph.graph.snapshot import Snapshot
    from pag_graph.graph.window import Window

STAGE_BARRIER = "stage_barrier"
_MOST_THREADS = 1_000
"""That many new ones are tried: each takes time."""
_HALTS = {
    "rows": "no thread is busy enough to be a bottleneck",
    "candidate": "no set of ports makes the busiest thread less busy",
    "cores": "all cores have a thread already",
    "blacklist": "too many of the ports that there are did not help",
    STAGE_BARRIER: (
        "a stage begins when the one before is done, so a cut inside a task would make a barrier and no pipeline;"
        " ask `pag spark LOG` with --cores N for more cores, or with --independent JOBS for jobs at once"
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviseParameters:
    """Parameters of `advise`."""

    beta: Annotated[float, "A thread that works for at least this share of its time is a bottleneck."] = 0.7
    cores: Annotated[int | None, "Cores of the machine. Without it, there are enough cores for all threads."] = None
    new_threads: Annotated[
        int, "Try up to this many threads behind a port of a dataflow, and this many more workers."
    ] = 1
    ports: Annotated[int, "Try this many ports one after the other in a thread, if activities nest."] = 1
    until: Annotated[int | None, "Look at all rounds from the chosen epoch to this one as one window."] = None
    level: LevelParameter = None
    keep: KeepParameter = ()
    serial: Annotated[
        tuple[int | str, ...], "These operators must stay on one worker each, so more workers cannot help."
    ] = ()
    pact: PactParameter = ()
    transfer: Annotated[
        str | None, "Least and most cost of a hand-over: 0:20us. Default: from 0 to the slowest message of like size."
    ] = None
    record_transfer: Annotated[str | None, "Least and most extra cost for every record of a hand-over: 0:50ns."] = None
    rank: Annotated[
        Literal["gain", "utility"], "Order by the time that is saved at least, or by utility as the paper does."
    ] = "gain"
    nodes: Annotated[int, "Stop searching for ports after this many matrices."] = 1_000_000
    state: Annotated[str | None, "File of `pag advise-evaluate`: ports that it reverted are not proposed again."] = None
    blacklist: Annotated[
        Blacklisting,
        "A port that did not help is never proposed again (global), or not with the same other ports (configuration).",
    ] = "global"
    loop: LoopParameter = "closed"
    arrival: ArrivalParameter = "shortest"

    def check(self) -> None:
        """Refuse numbers that are out of range.

        Raises
        ------
        InvalidParameterError
            With what is wrong.
        """
        message = ""
        if not 0 <= self.beta <= 1:
            message = f"beta is {self.beta}, and must be a share from 0 to 1."
        for name in ("cores", "new_threads", "ports", "nodes"):
            value = getattr(self, name)
            if value is not None and value < 1:
                message = f"{name} is {value}, and must be at least 1."
        if self.new_threads > _MOST_THREADS:
            message = f"new_threads is {self.new_threads}, and must be at most {_MOST_THREADS:,}."
        if message:
            raise InvalidParameterError(message, "pag advise run.pag --beta 0.7 --cores 4")


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice(Report):
    """What would make a window shorter."""

    window: Window
    """The window."""
    table: pa.Table
    """Rows of `ADVICE`."""
    plan: Plan
    """What may be tried, with all numbers."""
    ports: Ports
    """Operators as places for ports."""
    beta: float
    """Share of its time from which a thread is a bottleneck."""
    halt: str | None
    """Why nothing is proposed, or nothing more; None where there is anything to try."""
    flags: tuple[str, ...]
    """What to know of all numbers: ``transfer_assumed``, ``not_replayed``, ``search_limit``, ``coverage``,
    ``cores_shared``, ``pipeline_assumed``, ``division_assumed``, ``no_traffic``."""

    def headline(self) -> str:
        """Return what a person reads before the rows."""
        busy = ", ".join(f"{worker}: {bounds.likely:.0%}" for worker, bounds in self.ports.work.busy.items())
        window_line = f"{self.window.name.capitalize()}: {duration(self.window.span_ns)}"
        lines = [f"{window_line}; work per thread {busy}; {len(self.plan.rows)} of {len(self.ports.work.busy)} busy"]
        first = next((row for row in self.table.to_pylist() if row["verdict"] == "insert"), None)
        if first is not None:
            lines.append(
                f"Try a port at {first['operator_name']}: {duration(first['predicted_ns'])}"
                f" ({duration(first['low_ns'])} to {duration(first['high_ns'])}) instead of"
                f" {duration(self.window.span_ns)}"
            )
        if self.halt is not None:
            lines.append(f"Nothing to insert: {_HALTS[self.halt]}.")
        if self.flags:
            lines.append(f"To know: {', '.join(self.flags)} (docs/advice.md)")
        return "\n".join(lines)

    def summary(self) -> dict[str, Any]:
        """Return everything but the rows as plain values, for programs."""
        return {
            "mode": self.ports.mode,
            "bottlenecks": list(self.plan.rows),
            "searched": self.plan.nodes,
            "pruned": self.plan.pruned,
            "coverage": self.ports.work.coverage,
            "halt": self.halt,
            "flags": list(self.flags),
            "threads": [
                {"thread": thread, "mu": self.plan.before.get(thread), "mu_after": share}
                for thread, share in self.plan.after.items()
            ],
        }


def advise(snapshot: Snapshot, parameters: AdviseParameters | None = None) -> Advice:
    """Say where one more thread would make the window shorter, and by how much.

    Parameters
    ----------
    snapshot
        Of a run with aligned clocks; a window that ends with an epoch, to be replayed.
    parameters
        What a bottleneck is, which ports there may be, and what hand-overs take.

    Returns
    -------
    Advice
        One row per port, or number of workers, also of those that do not help. Nothing is proposed where it cannot be
        told that it helps.

    Raises
    ------
    InvalidParameterError
        If a parameter is out of range, or there is no such operator, channel, epoch or state.
    UnsupportedPlanError
        If the run was built with the rule set `st2`, whose clocks are not aligned.
    PagError
        If the recording contradicts itself; names the vertex.
    CycleError
        If events at one instant wait for each other; names the vertex.

    Notes
    -----
    Utility tells how the work would be divided, and limits the throughput of endless streams. The replay keeps what
    was recorded: its batches, its messages and its epochs. O(vertices + edges) for every port, after one sort.
    """
    chosen = parameters or AdviseParameters()
    chosen.check()
    run = snapshot.run
    run.require_aligned("Replays with ports need aligned clocks")
    serial = operators_called(run, chosen.serial)
    snapshot = _until(snapshot, chosen.until)
    state = AdviceState() if chosen.state is None else read_state(Path(chosen.state))
    avoided = state.avoided(chosen.blacklist)
    unwanted = [operator for operator, name in port_names(run).items() if name in avoided]
    ports = read_ports(snapshot, level=chosen.level, keep=chosen.keep, pact=chosen.pact, blacklist=unwanted)
    barrier = run.info.run.get("source", {}).get("system") == "spark"
    replay = None if barrier or not _ends_with_epoch(run, snapshot.window) else _replay(snapshot, chosen, ports)
    widen = not serial and ports.mode == "flow"
    transfer = _transfer(chosen)
    if barrier:
        plan = Plan(rows=(), options=[], nodes=0, pruned=0, limited=False, before={}, after={})
    elif ports.mode == "flow":
        plan = flow_options(
            ports, chosen.beta, new_threads=_most_threads(chosen, ports), widen=widen, nodes=chosen.nodes
        )
    else:
        plan = nested_options(ports, chosen.beta, steps=chosen.ports, nodes=chosen.nodes)
    flags = _flags(chosen, ports, plan, replay, transfer)
    if replay is not None:
        plan = plan.replayed(replay, transfer)
    doubt = next((flag for flag in flags if flag in {"coverage", "cores_shared"}), None)
    ranked = plan.ranked(chosen.rank, snapshot.window.span_ns or 1)
    rows = [
        row for rank, option in enumerate(ranked, 1) for row in option.rows(rank, snapshot.window.span_ns or 1, doubt)
    ]
    table = _table(run, rows)
    halt = STAGE_BARRIER if barrier else _halt(chosen, plan, state, rows)
    return Advice(window=snapshot.window, table=table, plan=plan, ports=ports, beta=chosen.beta, halt=halt, flags=flags)


def _until(snapshot: Snapshot, epoch: int | None) -> Snapshot:
    """Return the window from the start of a snapshot's to the end of an epoch."""
    if epoch is None:
        return snapshot
    run = snapshot.run
    last = run.window(epoch=epoch)
    if last.end_ns <= snapshot.window.start_ns:
        message = f"Epoch {epoch} ends before {snapshot.window.name} begins."
        raise InvalidParameterError(message, "pag advise run.pag --epoch 3 --until 9")
    wide = run.stretch(
        snapshot.window.start_ns, last.end_ns, end_vertex=last.end_vertex, follows=snapshot.window.follows
    )
    return run.snapshot(wide)


def _ends_with_epoch(run: Run, window: Window) -> bool:
    """Say whether a window ends where an epoch does, or the run: what is cut there cannot be replayed."""
    return window.span_ns > 0 and (window.end_ns == run.end_ns or window.end_ns in run.epochs["end_ns"].to_list())


def _replay(snapshot: Snapshot, parameters: AdviseParameters, ports: Ports) -> Replay:
    graph = constraint_graph(snapshot, loop=parameters.loop, arrival=parameters.arrival)
    return port_replay(snapshot, graph, ports.work, parameters.cores)


def _most_threads(parameters: AdviseParameters, ports: Ports) -> int:
    """Return how many threads there may be more."""
    workers = len(ports.work.busy)
    return (
        parameters.new_threads
        if parameters.cores is None
        else min(parameters.new_threads, max(0, parameters.cores - workers))
    )


def _transfer(parameters: AdviseParameters) -> Transfer | None:
    if parameters.transfer is None and parameters.record_transfer is None:
        return None
    return Transfer(*_two_times(parameters.transfer or "0:0"), *_two_times(parameters.record_transfer or "0:0"))


def _two_times(text: str) -> tuple[int, int]:
    low, colon, high = text.partition(":")
    times = (nanoseconds(low), nanoseconds(high)) if colon else (nanoseconds(text), nanoseconds(text))
    if times[0] > times[1] or times[0] < 0:
        message = f"The times {text!r} are no interval: give the least and the most, as 0:20us."
        raise InvalidParameterError(message, "pag advise run.pag --transfer 0:20us")
    return times


def _flags(
    parameters: AdviseParameters, ports: Ports, plan: Plan, replay: Replay | None, transfer: Transfer | None
) -> tuple[str, ...]:
    """Say what to know of all numbers."""
    doubtful = any(bounds.low < parameters.beta <= bounds.high for bounds in ports.work.busy.values())
    port_flags = {flag for flags in ports.flags.values() for flag in flags}
    flags = {
        "coverage": doubtful,
        "cores_shared": parameters.cores is not None and len(ports.work.busy) > parameters.cores,
        "search_limit": plan.limited,
        "not_replayed": replay is None and bool(plan.options),
        "transfer_assumed": replay is not None and transfer is None and replay.transfer_assumed,
        "pipeline_assumed": "pipeline_assumed" in port_flags,
        "division_assumed": (
            replay is not None and replay.division_assumed and any(option.kind == "widen" for option in plan.options)
        ),
        "no_traffic": "no_traffic" in port_flags,
    }
    return tuple(flag for flag, holds in flags.items() if holds)


def _halt(parameters: AdviseParameters, plan: Plan, state: AdviceState, rows: list[dict[str, Any]]) -> str | None:
    """Say why nothing is proposed."""
    if state.halt is not None or state.blacklisted_share > state.alpha:
        return "blacklist"
    if not plan.rows:
        return "rows"
    if parameters.cores is not None and len(plan.before) >= parameters.cores:
        return "cores"
    return None if any(row["verdict"] != "no_gain" for row in rows) else "candidate"


def _table(run: Run, rows: list[dict[str, Any]]) -> pa.Table:
    if not rows:
        return ADVICE.empty_table()
    columns = {name: [row.get(name) for row in rows] for name in ADVICE.names if name != "operator_name"}
    frame = pl.DataFrame(columns, schema_overrides={"operator": pl.Int64, "group": pl.Int64})
    return typed_table(
        frame.join(operator_names(run).drop("address"), on="operator", how="left", maintain_order="left"), ADVICE
    )


ANALYSIS = ReportAnalysis(
    name="advise",
    function=advise,
    parameters=AdviseParameters,
    schema=ADVICE,
    output="ADVICE",
    rows="advice",
    needs=Needs.ALIGNED_CLOCKS,
    example="--epoch 3 --until 9 --cores 4",
    columns=(
        "rank",
        "kind",
        "operator_name",
        "new_threads",
        "utility_before",
        "utility",
        "predicted_ns",
        "low_ns",
        "high_ns",
        "verdict",
        "reason",
    ),
    chart=Chart(
        kind="bars", x=("kind", "operator_name", "new_threads"), y=("gain_high",), interval=("gain_low", "gain_high")
    ),
)
