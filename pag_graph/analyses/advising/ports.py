"""Where a threaded port could be, and how much of each thread's time lies downstream of it.

One answer for two kinds of programs: those whose activities nest like calls (`open_stacks`), and dataflows whose
workers all run everything (`pipelines`). Definitions: `docs/model.md`, section "Advice".
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Literal

import polars as pl

from pag_graph.analyses.advising.open_stacks import Stacks, stacks
from pag_graph.analyses.advising.pipelines import Dataflow, Pact, Traffic, dataflow, exchanged_channels, folded
from pag_graph.analyses.advising.port_search import Threads
from pag_graph.analyses.advising.thread_work import RUNTIME, Bounds, ThreadWork, local_rows
from pag_graph.analyses.operator_choice import operators_called
from pag_graph.errors import InvalidParameterError
from pag_graph.graph.membership import counted_epoch
from pag_graph.model.enums import ActivityType

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pag_graph.graph.run import Run
    from pag_graph.graph.snapshot import Snapshot
    from pag_graph.graph.window import Window

Status = Literal["candidate", "source", "never_cut", "blacklisted"]

LevelParameter = Annotated[
    int | None, "Count operators that are nested deeper than this as their scope at this depth; 0 is the dataflow."
]
"""The field `level` of parameters."""
KeepParameter = Annotated[
    tuple[int | str, ...],
    "Never insert a port at these operators: numbers, addresses, or names (all operators of that name).",
]
"""The field `keep` of parameters."""
PactParameter = Annotated[
    tuple[str, ...], "The kind of a channel, if the log does not tell: 12=pipeline or 12=exchange."
]
"""The field `pact` of parameters."""
_PACT_EXAMPLE = "pag advise run.pag --pact 12=pipeline --pact 14=exchange"


@dataclass(frozen=True, kw_only=True)
class Ports:
    """The operators of a window as places for ports."""

    work: ThreadWork
    stacks: Stacks | None
    """Of a program whose activities nest like calls."""
    flow: Dataflow | None
    """Of a dataflow whose workers run everything."""
    status: Mapping[int, Status]
    """Per operator with time of its own, or downstream of which there is any."""
    flags: Mapping[int, Sequence[str]]
    """Per operator: what to know of its numbers."""
    counted_records: bool
    """Whether it is known how many records channels carried; without effect where activities nest."""

    @property
    def mode(self) -> Literal["stack", "flow"]:
        """What says what lies downstream."""
        return "flow" if self.stacks is None else "stack"

    @cached_property
    def below(self) -> Mapping[int, Mapping[int, Bounds]]:
        """Per operator and thread: the utilisation downstream of it, mu(o, t); absent where it is 0."""
        if self.stacks is not None:
            exact = self.stacks.threads().below
            return {
                operator: {thread: Bounds(share, share, share) for thread, share in shares.items()}
                for operator, shares in exact.items()
            }
        flowing = {operator: self._flowing(operator) for operator in self.status}
        return {operator: shares for operator, shares in flowing.items() if shares}

    def _flowing(self, operator: int) -> dict[int, Bounds]:
        sums: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        for reached_operator, shares in self.shares[operator].items():
            for worker, spent in self._own_ns.get(reached_operator, {}).items():
                life = self.work.life[worker]
                for place, share in enumerate(shares[worker]):
                    sums[worker][place] += share * spent / life
        return {worker: Bounds(*parts) for worker, parts in sorted(sums.items()) if parts[2] > 0}

    @cached_property
    def shares(self) -> Mapping[int, Mapping[int, Mapping[int, Bounds]]]:
        """Per operator of a dataflow: s(o, d) per other operator and worker."""
        assert self.flow is not None  # noqa: S101  (only dataflows are asked)
        self_shares = {
            operator: {operator: dict.fromkeys(self.flow.workers, Bounds(1, 1, 1))} for operator in self.status
        }
        return {
            operator: self_shares[operator] if self._alone(operator) else self.flow.shares(operator)
            for operator in self.status
        }

    def _alone(self, operator: int) -> bool:
        """Say whether an operator is looked at for itself: nothing is downstream of what would be its own upstream."""
        assert self.flow is not None  # noqa: S101  (only dataflows are asked)
        return operator == RUNTIME or operator in self.flow.scopes or self.flow.on_cycle(operator)

    @cached_property
    def _own_ns(self) -> Mapping[int, Mapping[int, int]]:
        own_ns: dict[int, dict[int, int]] = defaultdict(dict)
        for row in self.work.own.iter_rows(named=True):
            own_ns[row["operator"]][row["worker"]] = row["own_ns"]
        return own_ns

    @property
    def candidates(self) -> list[int]:
        """Operators that may get a port and have anything downstream, ascending."""
        return [
            operator
            for operator, status in sorted(self.status.items())
            if status == "candidate" and operator in self.below
        ]

    def threads(self, ports: Collection[int] = ()) -> Threads:
        """Return who does what, of the operators that may get a port.

        Parameters
        ----------
        ports
            Operators that have one already; only where activities nest.
        """
        if self.stacks is not None:
            nested = self.stacks.threads(ports)
            return Threads(
                busy=nested.busy,
                below={operator: nested.below[operator] for operator in self.candidates if operator in nested.below},
                life=nested.life,
            )
        busy = {thread: bounds.likely for thread, bounds in self.work.busy.items()}
        utilisations = {
            operator: {thread: bounds.likely for thread, bounds in self.below[operator].items() if bounds.likely > 0}
            for operator in self.candidates
        }
        return Threads(busy=busy, below=utilisations, life=self.work.life_shares)


def read_ports(
    snapshot: Snapshot,
    *,
    level: int | None = None,
    keep: Sequence[int | str] = (),
    pact: Sequence[str] = (),
    blacklist: Collection[int] = (),
) -> Ports:
    """Look for places for ports in a window.

    Parameters
    ----------
    snapshot
        Of a run with aligned clocks.
    level, keep, pact
        As the parameters of `advise_ports`.
    blacklist
        Operators at which a port did not help.

    Returns
    -------
    Ports
        O(edges of the window), and all vertices before its end where activities nest.

    Raises
    ------
    InvalidParameterError
        If there is no such operator or channel.
    """
    run = snapshot.run
    kept_operators = set(operators_called(run, keep))
    rows = local_rows(snapshot.tiling)
    pacts = _read_pacts(pact)
    if not run.one_dataflow:
        if level is not None or pacts:
            message = "Levels and pacts are of dataflows; the activities of this run nest like calls."
            raise InvalidParameterError(message, "Leave out --level and --pact.")
        work = ThreadWork(rows=rows)
        nested = stacks(snapshot, work)
        status = {
            operator: _nested_status(operator, nested, kept_operators, blacklist)
            for operator in {*nested.operator, *_operators(work)}
        }
        return Ports(
            work=work, stacks=nested, flow=None, status=status, flags=dict.fromkeys(status, ()), counted_records=False
        )
    traffic = read_traffic(run, snapshot.window)
    flow = dataflow(run, traffic, level=level, pacts=pacts)
    work = ThreadWork(rows=rows._replace(operator=folded(rows.operator, flow.fold)))
    operators = set(_operators(work)) | {node[0] for link in flow.links for node in (link.source, link.target)}
    status = {operator: _flow_status(operator, flow, kept_operators, blacklist) for operator in sorted(operators)}
    flags = {operator: _flow_flags(operator, flow, traffic) for operator in status}
    return Ports(work=work, stacks=None, flow=flow, status=status, flags=flags, counted_records=traffic.known)


def _operators(work: ThreadWork) -> list[int]:
    return work.own["operator"].unique().to_list()


def _nested_status(
    operator: int, nested: Stacks, kept_operators: Collection[int], blacklist: Collection[int]
) -> Status:
    if operator == RUNTIME or operator in kept_operators:
        return "never_cut"
    if operator in nested.outermost:
        return "source"
    return "blacklisted" if operator in blacklist else "candidate"


def _flow_status(operator: int, flow: Dataflow, kept_operators: Collection[int], blacklist: Collection[int]) -> Status:
    inputs = flow.pipeline_inputs(operator)
    bound = any(link.bound for link in inputs)
    if operator == RUNTIME or operator in flow.scopes or operator in kept_operators or bound or flow.on_cycle(operator):
        return "never_cut"
    if not inputs:
        return "source"
    return "blacklisted" if operator in blacklist else "candidate"


def _flow_flags(operator: int, flow: Dataflow, traffic: Traffic) -> tuple[str, ...]:
    flags = []
    if len(flow.workers) == 1 and flow.pipeline_inputs(operator):
        flags.append("pipeline_assumed")
    if not traffic.known:
        flags.append("no_traffic")
    return tuple(flags)


def _read_pacts(texts: Sequence[str]) -> dict[int, Pact]:
    pacts: dict[int, Pact] = {}
    for text in texts:
        channel, _, pact = text.partition("=")
        if not channel.strip().isdecimal() or pact not in {"pipeline", "exchange"}:
            message = f"The pact {text!r} cannot be read: give a channel and pipeline or exchange."
            raise InvalidParameterError(message, _PACT_EXAMPLE)
        pacts[int(channel)] = "pipeline" if pact == "pipeline" else "exchange"
    return pacts


def read_traffic(run: Run, window: Window) -> Traffic:
    """Return what a store tells of the records on its channels.

    Parameters
    ----------
    run, window
        A window of a dataflow.

    Returns
    -------
    Traffic
        Without counts where the store was written before there was a table of them.
    """
    if "traffic" not in run.info.tables:
        return Traffic(exchanged=exchanged_channels(run), records={}, known=False)
    data = run.scan("traffic").filter(pl.col("type") == str(ActivityType.DATA_MESSAGE)).drop_nulls("channel").collect()
    remote = data.filter(pl.col("from_worker") != pl.col("to_worker"))
    rounds = run.epochs.filter(pl.col("end_ns") > window.start_ns, pl.col("start_ns") < window.end_ns)["epoch"]
    shown = data.filter(counted_epoch(run).is_in(rounds.implode()))
    counts = shown.group_by("channel", "to_worker").agg(pl.col("records").sum(), lost=pl.col("records").is_null().any())
    records = {(row["channel"], row["to_worker"]): row["records"] for row in counts.to_dicts() if not row["lost"]}
    return Traffic(
        exchanged=frozenset(remote["channel"].to_list()).union(run.exchanged_before),
        records=records,
        known=True,
        uncounted=frozenset(counts.filter("lost")["channel"].to_list()),
    )
