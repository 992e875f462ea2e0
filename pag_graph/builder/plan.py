"""What a build needs to know before it reads events: identity, clocks, and how the work is cut in slices."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pag_graph.builder.clocks import Clock, ClockEstimate, estimate_clocks, messages_between_clocks
from pag_graph.builder.conflicts import another_story
from pag_graph.builder.cuts import cut_by_epoch, cut_by_time, ever_parks
from pag_graph.builder.pauses import Sought, pause_begins
from pag_graph.errors import InvalidParameterError, TraceFormatError
from pag_graph.rules.protocol import Setting
from pag_graph.rules.registry import of, wait_rules
from pag_graph.rules.rows import RuleParameters
from pag_graph.store.capacity import lacking
from pag_graph.store.log import TraceLog, column

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from pag_graph.builder.state import RowAt
    from pag_graph.model.enums import RuleSet
    from pag_graph.store.trace import Trace

    I64 = NDArray[np.int64]

DEFAULT_SLICE_EVENTS = 1_000_000
"""Events that are worked on at a time; a slice needs about 400 bytes of memory per event.

In process and in tasks of Spark this is the fastest of 0.5 to 4 million: larger columns leave the caches, smaller
slices cost more around them.
"""

_EVENT_BYTES = 400
_MANY_EVENTS = 8 * DEFAULT_SLICE_EVENTS
"""Events of a slice that is read without asking how much memory there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A part of a run that one task works on: consecutive rows of every worker."""

    number: int
    """From 0, in the order of time."""
    rows: Mapping[int, tuple[int, int]]
    """Per worker: its first row, and the one after its last, counted from 0 in the order of its log."""
    ends_run: bool = False
    """Whether it is the last one: it names all workers, also those without rows in it."""

    @property
    def events(self) -> int:
        """Number of events in the slice."""
        return sum(high - low for low, high in self.rows.values())


def check_memory(plan: RunPlan, part: Slice) -> None:
    """Refuse a slice that does not fit in memory, before it is read.

    Slices are about as large as asked for, but no smaller than the logs allow: between two places where the log of a
    worker may be cut nothing can be judged without the rest.

    Parameters
    ----------
    plan, part
        The build, and the slice that is about to be read.

    Raises
    ------
    TraceFormatError
        Names the worker with most rows in the slice, and what they take.
    """
    if part.events < _MANY_EVENTS or (lack := lacking(part.events * _EVENT_BYTES)) is None:
        return
    worker, (low, high) = max(part.rows.items(), key=lambda item: item[1][1] - item[1][0])
    reason = of(plan.rules).no_place_to_cut
    if plan.idle_inferred:
        reason = "it does not say when workers had nothing to do, and no steps there show it for certain"
    message = (
        f"{plan.trace.path}: the log of worker {worker} can be cut nowhere between its rows {low} and {high}:"
        f" {reason}. The slice of {part.events} events takes {lack}."
    )
    hint = "Give the process more memory, or record such places: docs/architecture.md says where slices are cut."
    raise TraceFormatError(message, hint, {"worker": worker, "rows": (low, high), "events": part.events})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """A build, decided: what is read, by which rules, cut in which slices. Travels to every task."""

    trace: Trace
    """The opened trace."""
    log: TraceLog
    """Where its rows are."""
    rules: RuleSet
    """Rule set of the build."""
    parameters: RuleParameters
    """Its parameters."""
    run_id: str
    """Identity of the run (`run_id_of`)."""
    origin_unix_ns: int
    """The run's origin: the first event of any worker, Unix time on the common clock."""
    end_ns: int
    """The run's end on the common clock, from the origin."""
    workers: tuple[int, ...]
    """Numbers of all workers, as the table of workers has them."""
    clocks: Mapping[int, Clock]
    """Per worker: how its own clock becomes time from the run's origin."""
    estimate: ClockEstimate | None
    """What the messages say of the clocks, where it was asked for."""
    processes: I64
    """By the number of a worker: its process, or -1."""
    uncertainty: I64
    """By the number of a worker: how far off its clock may be (ns)."""
    idle_inferred: bool
    """Whether the rules have to find out when workers had nothing to do, because the log does not say it."""
    slices: tuple[Slice, ...]
    """In the order of time; those that an earlier build has done are absent."""
    follows: Mapping[int, tuple[int, RowAt]]
    """Per worker whose first rows an earlier build has done: how many, and the last of them."""
    tail: bool
    """Whether the last slice holds what more of the log may change: the rows that are not decided."""

    @property
    def setting(self) -> Setting:
        """What the rules need to judge the waits of any worker."""
        return Setting(self.processes, self.uncertainty, self.parameters, self.idle_inferred)

    def metadata(self) -> dict[str, Any]:
        """Return the run's identity and provenance, for the store's commit.

        Returns
        -------
        dict
            Plain values: identity, rules, parameters, release, origin and end, source, and the clocks that were used.
        """
        return {
            "run_id": self.run_id,
            "trace_id": self.trace.meta.trace_id,
            "rules": str(self.rules),
            "parameters": asdict(self.parameters),
            "product_version": _product(),
            "origin_unix_ns": self.origin_unix_ns,
            "end_ns": self.end_ns,
            "workers": len(self.workers),
            "source": asdict(self.trace.meta.source),
            "idle": "inferred" if self.idle_inferred else "logged",
            "clocks": {
                "from": "recorded offsets" if self.estimate is None else "messages",
                "margin_ns": self.estimate.margin_ns if self.estimate else None,
                "offset_ns": {str(w): clock.offset_ns + self.origin_unix_ns for w, clock in self.clocks.items()},
                "drift": {str(w): clock.drift for w, clock in self.clocks.items()},
            },
        }


class Known(NamedTuple):
    """What a build knows of the run from an earlier one."""

    run: Mapping[str, Any]
    """`RunPlan.metadata`."""
    estimate: ClockEstimate | None
    """What the messages said of the clocks, where they were asked."""
    rows: Mapping[int, int]
    """Per worker: how many rows are done."""
    parks: frozenset[int]
    """Workers that park in them."""
    last_rows: Mapping[int, tuple[int, RowAt]]
    """Per worker: its number of rows, and the last of them."""


def plan_run(
    trace: Trace,
    rules: RuleSet,
    parameters: RuleParameters | None = None,
    *,
    slice_events: int = DEFAULT_SLICE_EVENTS,
    known: Known | None = None,
    log: TraceLog | None = None,
) -> RunPlan:
    """Decide how to build a run from a trace.

    Parameters
    ----------
    trace
        The opened trace.
    rules, parameters
        The rule set and its parameters.
    slice_events
        About how many events a slice holds. The result of a build does not depend on it.
    known
        An earlier build of the same run, to go on from.
    log
        Its index, where somebody has it; it may lack rows that `known` has done, but for the last of each worker.

    Returns
    -------
    RunPlan
        Reads footers of the event files, and a few row groups near the cuts.

    Raises
    ------
    InvalidParameterError
        If `slice_events` is not positive.
    StoreConflictError
        If a log is shorter than it was when an earlier build read it.

    Notes
    -----
    The run's origin is the first event of any worker: what happened before it nobody logged.
    """
    if slice_events < 1:
        message = f"slice_events is {slice_events}, and must be at least 1."
        raise InvalidParameterError(message)
    parameters = parameters or RuleParameters()
    # The rows that are read to cut the log are the first that are built, so they are kept for that.
    log = (TraceLog.index(trace) if log is None else log).forward()
    workers = tuple(int(w) for w in trace.workers["worker"].to_pylist())
    facts = of(rules)
    if known is not None and not facts.epochs_are_islands:
        _check_not_shorter(log, known)
    clocks, estimate = _clocks_of(trace, log, rules, parameters, known)
    first = (
        known.run["origin_unix_ns"]
        if known is not None and known.rows and facts.aligned
        else min(int(clocks[w].common(log.chunks[w][0].t_min)) for w in workers if log.rows_of(w))
    )
    last = max(int(clocks[w].common(log.chunks[w][-1].t_max)) for w in workers if log.rows_of(w))
    processes, uncertainty = _by_worker(workers, trace.workers, estimate)
    relative = {w: clock.shifted(-first) for w, clock in clocks.items()}
    if not facts.aligned:
        # Times are on the workers' own clocks, and nothing is shifted.
        first, last, relative = 0, last - first, dict.fromkeys(workers, Clock(offset_ns=0))
    parks = frozenset[int]() if known is None else known.parks
    inferred = facts.reads_idleness and not parks and _says_nothing_of_idleness(trace, log, workers)
    plan = RunPlan(
        trace=trace,
        log=log,
        rules=rules,
        parameters=parameters,
        run_id=run_id_of(trace.meta.trace_id, rules, parameters),
        origin_unix_ns=first,
        end_ns=last - first,
        workers=workers,
        clocks=relative,
        estimate=estimate,
        processes=processes,
        uncertainty=uncertainty,
        idle_inferred=inferred,
        slices=(),
        follows=dict(known.last_rows) if known is not None else {},
        tail=not (facts.epochs_are_islands or trace.meta.complete),
    )
    start = dict.fromkeys(workers, 0) | (dict(known.rows) if known is not None else {})
    return replace(plan, slices=_slices(plan, start, parks, slice_events))


def _slices(plan: RunPlan, start: Mapping[int, int], parks: Collection[int], slice_events: int) -> tuple[Slice, ...]:
    """Cut what is behind the first rows of each worker; `parks` has the workers that are known to park before them."""
    log, workers = plan.log, plan.workers
    if of(plan.rules).epochs_are_islands:
        slices = cut_by_epoch(log, workers, slice_events)
    elif plan.idle_inferred and plan.tail and plan.trace.meta.idle_logged is None:
        # Later events may still log idleness; until then it is open which rules hold, and the log is not cut.
        slices = [{w: (start[w], log.rows_of(w)) for w in workers}]
    else:
        clocks, rules = plan.clocks, wait_rules(plan.rules)
        sought = Sought(plan.parameters.busy_below_ns, plan.trace.meta.gapless)
        pauses = partial(_pauses, clocks, start, sought) if plan.idle_inferred else None
        slices = cut_by_time(rules, log, clocks, slice_events, start=start, parks=parks, pauses=pauses, tail=plan.tail)
    last = len(slices) - 1
    return tuple(Slice(number=number, rows=rows, ends_run=number == last) for number, rows in enumerate(slices))


def _clocks_of(
    trace: Trace, log: TraceLog, rules: RuleSet, parameters: RuleParameters, known: Known | None
) -> tuple[dict[int, Clock], ClockEstimate | None]:
    """Return how each worker's own clock becomes the common one, and what the messages say of it if they are asked."""
    workers = [int(w) for w in trace.workers["worker"].to_pylist()]
    offset = dict(zip(workers, trace.workers["offset_ns"].to_pylist(), strict=True))
    clocks = {w: Clock(offset_ns=offset[w]) for w in workers}
    estimate = None
    if known is not None and known.rows:
        estimate = known.estimate
    elif clocks_by_messages(trace, rules, parameters):
        # Where the trace vouches for its offsets inside one clock domain, only whole domains are moved.
        domains = trace.workers["clock_domain"].to_pylist() if trace.meta.aligned else workers
        group = {w: domains.index(domain) for w, domain in zip(workers, domains, strict=True)}
        estimate = estimate_clocks(messages_between_clocks(log, group), offset, group)
        clocks = dict(estimate.clocks)
    if known is not None and of(rules).aligned:
        # They may not change under what is committed.
        committed_clocks = known.run["clocks"]
        clocks |= {
            int(w): Clock(offset_ns=offset_ns, drift=committed_clocks["drift"][w])
            for w, offset_ns in committed_clocks["offset_ns"].items()
        }
    return clocks, estimate


def _check_not_shorter(log: TraceLog, known: Known) -> None:
    """Refuse a log that lacks rows which an earlier build has done."""
    shorter = {known.last_rows[w][1].epoch for w, rows in known.rows.items() if log.rows_of(w) < rows}
    if shorter:
        raise another_story(sorted(shorter))


def _by_worker(workers: Sequence[int], table: pa.Table, estimate: ClockEstimate | None) -> tuple[I64, I64]:
    """Return, by the number of a worker, its process and how far off its clock may be."""
    processes = np.full(max(workers) + 1, -1, np.int64)
    uncertainty = np.zeros(max(workers) + 1, np.int64)
    processes[list(workers)] = table["process"].to_numpy()
    uncertainty[list(workers)] = column(table, "uncertainty_ns", 0)
    if estimate is not None:
        uncertainty[list(workers)] = [estimate.uncertainty_ns[w] or 0 for w in workers]
    return processes, uncertainty


def clocks_by_messages(trace: Trace, rules: RuleSet, parameters: RuleParameters) -> bool:
    """Say whether the workers' clocks are aligned by the messages between them, and not by recorded offsets.

    Parameters
    ----------
    trace
        The opened trace; it says whether its offsets lead to a common clock.
    rules
        Rule set of the build.
    parameters
        Its `clocks` may ask for either.

    Returns
    -------
    bool
        False under rules that keep every worker's own clock.
    """
    by_messages = parameters.clocks == "messages" or (parameters.clocks == "auto" and not trace.meta.aligned)
    return by_messages and of(rules).aligned


def _pauses(clocks: Mapping[int, Clock], start: Mapping[int, int], sought: Sought, log: TraceLog, worker: int) -> I64:
    return pause_begins(log, worker, start[worker], clocks[worker], sought)


@cache
def _product() -> str:
    """Return the version of this package, which takes a while to find out."""
    return version("pag-graph")


def _says_nothing_of_idleness(trace: Trace, log: TraceLog, workers: tuple[int, ...]) -> bool:
    """Say whether a log never says that a worker had nothing to do; where its source does not tell, its rows do."""
    if trace.meta.idle_logged is not None:
        return not trace.meta.idle_logged
    return not any(ever_parks(log, worker) for worker in workers)


def run_id_of(trace_id: str, rules: RuleSet, parameters: RuleParameters) -> str:
    """Return the identity of a run.

    Parameters
    ----------
    trace_id
        Identity of the trace.
    rules, parameters
        Those of the build.

    Returns
    -------
    str
        16 hexadecimal digits; another trace, rule set, parameter or release of this package makes another run.
    """
    identity = json.dumps([trace_id, str(rules), asdict(parameters), _product()], sort_keys=True)
    return hashlib.sha256(identity.encode()).hexdigest()[:16]
