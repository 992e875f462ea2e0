"""What a build needs to know before it reads events: identity, clocks, and how the work is cut in slices."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from pag_graph.builder.clocks import Clock, ClockEstimate, estimate_clocks, messages_between_clocks
from pag_graph.builder.reading import KINDS, read_columns
from pag_graph.errors import InvalidParameterError, TraceFormatError
from pag_graph.kernels.activations import OTHER, PARK
from pag_graph.kernels.layout import runs
from pag_graph.rules.registry import of, wait_rules
from pag_graph.rules.rows import RuleParameters
from pag_graph.runtime.threads import each
from pag_graph.store.capacity import lacking
from pag_graph.store.log import TraceLog, column

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from pag_graph.model.enums import RuleSet
    from pag_graph.rules.protocol import WaitRules
    from pag_graph.store.trace import Trace

    I64 = NDArray[np.int64]
    Kinds = NDArray[np.int8]

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
    rows: Mapping[int, tuple[int, int]]
    """Per worker: its first row, and the one after its last, counted from 0 in the order of its log."""

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
    message = (
        f"{plan.trace.path}: the log of worker {worker} can be cut nowhere between its rows {low} and {high}:"
        f" {of(plan.rules).no_place_to_cut}. The slice of {part.events} events takes {lack}."
    )
    hint = "Give the process more memory, or record such places: docs/architecture.md says where slices are cut."
    raise TraceFormatError(message, hint, {"worker": worker, "rows": (low, high), "events": part.events})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """A build, decided: what is read, by which rules, cut in which slices. Travels to every task."""

    trace: Trace
    log: TraceLog
    rules: RuleSet
    parameters: RuleParameters
    run_id: str
    origin_unix_ns: int
    end_ns: int
    """The run's end on the common clock, from the origin."""
    workers: tuple[int, ...]
    clocks: Mapping[int, Clock]
    """Per worker: how its own clock becomes time from the run's origin."""
    estimate: ClockEstimate | None
    """What the messages say of the clocks, where it was asked for."""
    processes: I64
    uncertainty: I64
    idle_inferred: bool
    """Whether the rules have to find out when workers had nothing to do, because the log does not say it."""
    slices: tuple[Slice, ...]

    def metadata(self) -> dict[str, Any]:
        """Return the run's identity and provenance, for the store's commit."""
        return {
            "run_id": self.run_id,
            "trace_id": self.trace.meta.trace_id,
            "rules": str(self.rules),
            "parameters": asdict(self.parameters),
            "product_version": version("pag-graph"),
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


def plan_run(
    trace: Trace,
    rules: RuleSet,
    parameters: RuleParameters | None = None,
    *,
    slice_events: int = DEFAULT_SLICE_EVENTS,
    known: Mapping[str, Any] | None = None,
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
        `RunPlan.metadata` of an earlier build of the same run: its clocks are kept, for they may not change under what
        is committed.

    Returns
    -------
    RunPlan
        Reads footers of the event files, and a few row groups near the cuts.

    Raises
    ------
    InvalidParameterError
        If `slice_events` is not positive.

    Notes
    -----
    The run's origin is the first event of any worker: what happened before it nobody logged.
    """
    if slice_events < 1:
        message = f"slice_events is {slice_events}, and must be at least 1."
        raise InvalidParameterError(message)
    parameters = parameters or RuleParameters()
    log = TraceLog.index(trace)
    table = trace.workers
    workers = tuple(int(w) for w in table["worker"].to_pylist())
    offset = dict(zip(workers, table["offset_ns"].to_pylist(), strict=True))
    clocks = {w: Clock(offset_ns=offset[w]) for w in workers}
    estimate = None
    facts = of(rules)
    by_messages = parameters.clocks == "messages" or (parameters.clocks == "auto" and not trace.meta.aligned)
    if facts.aligned and by_messages:
        # Where the trace vouches for its offsets inside one clock domain, only whole domains are moved.
        domains = table["clock_domain"].to_pylist() if trace.meta.aligned else list(workers)
        group = {w: domains.index(domain) for w, domain in zip(workers, domains, strict=True)}
        estimate = estimate_clocks(messages_between_clocks(log, group), offset, group)
        clocks = dict(estimate.clocks)
    if known is not None and facts.aligned:
        kept = known["clocks"]
        clocks = {w: Clock(offset_ns=kept["offset_ns"][str(w)], drift=kept["drift"][str(w)]) for w in workers}
    first = min(int(clocks[w].common(log.chunks[w][0].t_min)) for w in workers if log.rows_of(w))
    last = max(int(clocks[w].common(log.chunks[w][-1].t_max)) for w in workers if log.rows_of(w))
    processes = np.full(max(workers) + 1, -1, np.int64)
    uncertainty = np.zeros(max(workers) + 1, np.int64)
    processes[list(workers)] = table["process"].to_numpy()
    uncertainty[list(workers)] = column(table, "uncertainty_ns", 0)
    if estimate is not None:
        uncertainty[list(workers)] = [estimate.uncertainty_ns[w] or 0 for w in workers]
    relative = {w: clock.shifted(-first) for w, clock in clocks.items()}
    if not facts.aligned:
        # Times are on the workers' own clocks, and nothing is shifted.
        first, last, relative = 0, last - first, dict.fromkeys(workers, Clock(offset_ns=0))
    inferred = facts.reads_idleness and _says_nothing_of_idleness(trace, log, workers)
    if inferred:
        # What ends a pause, and whether it is one, is seen in what the worker does later.
        slice_events = max(slice_events, sum(log.rows_of(w) for w in workers))
    cut = _cut_by_epoch if facts.epochs_are_islands else partial(_cut_by_time, wait_rules(rules))
    return RunPlan(
        trace=trace,
        log=log,
        rules=rules,
        parameters=parameters,
        run_id=_run_id(trace.meta.trace_id, rules, parameters),
        origin_unix_ns=first,
        end_ns=last - first,
        workers=workers,
        clocks=relative,
        estimate=estimate,
        processes=processes,
        uncertainty=uncertainty,
        idle_inferred=inferred,
        slices=cut(trace, log, workers, relative, slice_events),
    )


def _says_nothing_of_idleness(trace: Trace, log: TraceLog, workers: tuple[int, ...]) -> bool:
    """Say whether a log never says that a worker had nothing to do; where its source does not tell, its rows do."""
    if trace.meta.idle_logged is not None:
        return not trace.meta.idle_logged
    log = log.forward()
    return all(_first_row(log, worker, 0, _is_park) == log.rows_of(worker) for worker in workers)


def _run_id(trace_id: str, rules: RuleSet, parameters: RuleParameters) -> str:
    """Two rule sets over one trace are two runs, and so are two releases of this package."""
    what = json.dumps([trace_id, str(rules), asdict(parameters), version("pag-graph")], sort_keys=True)
    return hashlib.sha256(what.encode()).hexdigest()[:16]


def _cut_by_time(
    rules: WaitRules[Any, Any],
    trace: Trace,
    log: TraceLog,
    workers: tuple[int, ...],
    clocks: Mapping[int, Clock],
    slice_events: int,
) -> tuple[Slice, ...]:
    """Cut all workers at about the same instants, each where its rules need to look at neither side.

    `WaitRules.safe_cut` says where.
    """
    del trace
    instants = _instants(log, workers, clocks, slice_events)
    log = log.forward()

    def cuts(worker: int) -> list[int]:
        rows = []
        if instants:
            wanted = rules.safe_cut(lambda: _first_row(log, worker, 0, _is_park) < log.rows_of(worker))
            rows = [_first_row(log, worker, _row_at(log, worker, clocks[worker].own(t)), wanted) for t in instants]
        return list(accumulate([0, *rows, log.rows_of(worker)], max))

    return _slices(dict(zip(workers, each(cuts, workers), strict=True)))


def _slices(cuts: Mapping[int, list[int]]) -> tuple[Slice, ...]:
    count = len(next(iter(cuts.values()))) - 1
    # A worker without events takes part in the first slice: its time must be explained too.
    made = (
        {w: (c[i], c[i + 1]) for w, c in cuts.items() if c[i] < c[i + 1] or (i == 0 and c[-1] == 0)}
        for i in range(count)
    )
    return tuple(Slice(number=number, rows=rows) for number, rows in enumerate(rows for rows in made if rows))


def _even(events: int, slice_events: int) -> tuple[int, int]:
    """Return how many slices so many events make, and how many events each has, about, if all have the same."""
    count = max(-(-events // slice_events), 1)
    return count, max(-(-events // count), 1)


def _instants(log: TraceLog, workers: tuple[int, ...], clocks: Mapping[int, Clock], slice_events: int) -> list[int]:
    count, slice_events = _even(sum(log.rows_of(w) for w in workers), slice_events)
    if count <= 1:
        return []
    largest = max(chunk.rows for w in workers for chunk in log.chunks.get(w, ()))
    if slice_events < largest:
        # Slices finer than row groups: only the times themselves tell where they lie.
        times = [clocks[w].common(column(log.read(w, 0, log.rows_of(w), ["t_ns"]), "t_ns")) for w in workers]
        ordered = np.sort(np.concatenate(times))
        return [int(ordered[i * slice_events]) for i in range(1, count)]
    ends = sorted((clocks[w].common(chunk.t_max), chunk.rows) for w in workers for chunk in log.chunks.get(w, ()))
    reached = np.cumsum([rows for _, rows in ends])
    targets = np.arange(1, count) * slice_events
    return [ends[i][0] for i in np.searchsorted(reached, targets)]


def _row_at(log: TraceLog, worker: int, clock: int) -> int:
    """Return the first row of a worker that is not earlier than `clock`, or the number of its rows."""
    for chunk in log.chunks.get(worker, ()):
        if chunk.t_max >= clock:
            rows = read_columns(log, worker, chunk.first_row, chunk.first_row + chunk.rows, ["t_ns"], {})
            return chunk.first_row + int(np.searchsorted(rows["t_ns"], clock))
    return log.rows_of(worker)


def _is_park(_before: Kinds, kind: Kinds, _after: Kinds) -> NDArray[np.bool_]:
    return np.equal(kind, PARK)


def _first_row(log: TraceLog, worker: int, start: int, wanted: Callable[[Kinds, Kinds, Kinds], NDArray[Any]]) -> int:
    """Return the first row from `start` on that is wanted, or the number of the worker's rows.

    `wanted` is asked with the kinds of the rows before, of the rows themselves, and of the rows after them.
    """
    none = np.array([OTHER], np.int8)
    # Kinds that were read and not yet asked for, with the row before them; the first is of row `first`.
    kinds, first = (none, -1) if start == 0 else (none[:0], start - 1)
    for chunk in log.chunks.get(worker, ()):
        low, high = max(start - 1, 0, chunk.first_row), chunk.first_row + chunk.rows
        if low >= high:
            continue
        kinds = np.concatenate((kinds, read_columns(log, worker, low, high, ["kind"], KINDS)["kind"]))
        hits = np.flatnonzero(wanted(kinds[:-2], kinds[1:-1], kinds[2:]))
        if len(hits):
            return first + 1 + int(hits[0])
        first, kinds = first + max(len(kinds) - 2, 0), kinds[-2:]
    kinds = np.concatenate((kinds, none))
    hits = np.flatnonzero(wanted(kinds[:-2], kinds[1:-1], kinds[2:]))
    return first + 1 + int(hits[0]) if len(hits) else log.rows_of(worker)


def _cut_by_epoch(
    trace: Trace, log: TraceLog, workers: tuple[int, ...], clocks: Mapping[int, Clock], slice_events: int
) -> tuple[Slice, ...]:
    """Cut between epochs, for rule sets to which every epoch is an island."""
    del trace, clocks
    counts = dict(zip(workers, each(partial(_epoch_counts, log.forward()), workers), strict=True))
    epochs = np.unique(np.concatenate([values for values, _ in counts.values()]))
    sizes = np.zeros(len(epochs), np.int64)
    for values, rows in counts.values():
        np.add.at(sizes, np.searchsorted(epochs, values), rows)
    group = (np.cumsum(sizes) - sizes) // _even(int(sizes.sum()), slice_events)[1]
    cuts = {}
    for w, (values, rows) in counts.items():
        mine = np.zeros(int(group[-1]) + 1, np.int64)
        np.add.at(mine, group[np.searchsorted(epochs, values)], rows)
        cuts[w] = [0, *(int(x) for x in np.cumsum(mine))]
    return _slices(cuts)


def _epoch_counts(log: TraceLog, worker: int) -> tuple[I64, I64]:
    """Return the epochs of a worker and how many rows each has; an epoch may come up several times."""
    found = [
        runs(read_columns(log, worker, chunk.first_row, chunk.first_row + chunk.rows, ["epoch"], {})["epoch"])
        for chunk in log.chunks.get(worker, ())
    ]
    none = np.empty(0, np.int64)
    return np.concatenate([none, *(epoch for epoch, _ in found)]), np.concatenate([none, *(rows for _, rows in found)])
