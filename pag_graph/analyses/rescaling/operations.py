"""Operations: births, exits and activations of workers that belong together, and the instants of each."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import polars as pl

from pag_graph.analyses.expressions import END, SPAWN, worker_of
from pag_graph.analyses.rescaling.data import PREFIX, names_of_marks
from pag_graph.errors import UnsupportedPlanError
from pag_graph.model.enums import LOCAL_TYPES, RESTING_TYPES, ActivityType, EventKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pag_graph.graph.run import Run

TOGETHER_NS = 100_000_000
"""Births, or exits, that are no farther apart are one operation."""
JOIN, LEAVE, LOSS, ACTIVATE, SEVERAL = "join", "leave", "loss", "activate", "several"
_STARTS = (str(EventKind.START), str(EventKind.APPLICATION_START))
_STOPS = (str(EventKind.STOP), str(EventKind.APPLICATION_STOP))
_NO_STEPS = ("request", "drain", "activate", "lost")
_RESTS = [str(kind) for kind in (*RESTING_TYPES, ActivityType.WAITING)]


class Mark(NamedTuple):
    """An activity whose name begins with `PREFIX`. Times are nanoseconds since the run's origin."""

    worker: int
    """Whose it is."""
    name: str
    """What follows the prefix: ``request``, ``drain``, ``activate``, ``lost``, or ``SIDE:STEP``."""
    start_ns: int
    """When it begins."""
    end_ns: int
    """When it ends."""

    @property
    def is_step(self) -> bool:
        """Whether it is a step of the protocol."""
        return self.name not in _NO_STEPS

    @property
    def side(self) -> str:
        """``server``, ``client`` or ``peer``."""
        return self.name.partition(":")[0]

    @property
    def step(self) -> str:
        """Name of the step."""
        return self.name.partition(":")[2] or self.name


class Birth(NamedTuple):
    """A worker that was spawned while the run went on. Times are nanoseconds since the run's origin."""

    worker: int
    """The worker."""
    by_worker: int
    """Who spawned it."""
    spawned_ns: int
    """When."""
    first_ns: int
    """Its first event."""


class Exit(NamedTuple):
    """A worker that ended while the run went on."""

    worker: int
    """The worker."""
    t_ns: int
    """When (ns since the run's origin)."""
    working: bool
    """Whether an activity was open."""


Item = TypeVar("Item", Birth, Exit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """Workers that came or went together. Times are nanoseconds since the run's origin."""

    kind: str
    """What it was, such as ``leave``."""
    request_ns: int
    """When it was asked for."""
    birth_ns: int
    """When the first worker came or went."""
    ready_ns: int
    """When it was over."""
    worked_ns: Mapping[int, int] = field(default_factory=dict)
    """Per new worker that worked: when it first did."""
    births: tuple[Birth, ...] = ()
    """Workers that came."""
    exits: tuple[Exit, ...] = ()
    """Workers that went."""
    marks: tuple[Mark, ...] = ()
    """Steps that belong to it."""

    @property
    def work_ns(self) -> int | None:
        """When the first new worker first worked; None where none did."""
        return min(self.worked_ns.values(), default=None)

    @property
    def new(self) -> set[int]:
        """Workers that were born in it."""
        return {birth.worker for birth in self.births}

    def and_also(self, later: Operation) -> Operation:
        """Return this and a later operation as one.

        Parameters
        ----------
        later
            An operation that was asked for after this one.

        Returns
        -------
        Operation
            A new one, asked for when this one was.
        """
        return replace(
            self,
            kind=SEVERAL,
            ready_ns=max(self.ready_ns, later.ready_ns),
            worked_ns={**self.worked_ns, **later.worked_ns},
            births=self.births + later.births,
            exits=self.exits + later.exits,
            marks=self.marks + later.marks,
        )


def marks_of(run: Run) -> list[Mark]:
    """Return the activities whose names begin with `PREFIX`.

    Parameters
    ----------
    run
        A committed run.

    Returns
    -------
    list of Mark
        In time order; one that never ends is left out.
    """
    names = names_of_marks(run)
    if not names:
        return []
    rows = (
        run.scan("vertices")
        .filter(pl.col("operator").is_in(list(names)), pl.col("kind").is_in([*_STARTS, *_STOPS]))
        .select("worker", "operator", "t_ns", "kind", "id")
        .sort("id")
        .collect()
    )
    marks: list[Mark] = []
    open_: dict[tuple[int, int], list[int]] = {}
    for worker, operator, t_ns, kind, _ in rows.iter_rows():
        open_starts = open_.setdefault((worker, operator), [])
        if kind in _STARTS:
            open_starts.append(t_ns)
        elif open_starts:
            marks.append(Mark(worker, names[operator], open_starts.pop(), t_ns))
    return sorted(marks, key=lambda mark: (mark.start_ns, mark.worker, mark.end_ns))


def check_spawned(run: Run, marks: Sequence[Mark], births: Sequence[Birth]) -> None:
    """Refuse a run in which a worker was bootstrapped of which nobody says when it was spawned.

    Parameters
    ----------
    run, marks, births
        The run, with all of `marks_of` and `births_of`.

    Raises
    ------
    UnsupportedPlanError
        Names the worker.
    """
    spawned = {birth.worker for birth in births}
    for mark in marks:
        if mark.side == "client" and mark.worker not in spawned:
            message = f"{run.worker_label(mark.worker)} was bootstrapped, and no worker logged to have spawned it."
            raise UnsupportedPlanError(message, "Log a row `spawn` where the server handles the rescale message.")


def operations(run: Run, marks: Sequence[Mark], births: Sequence[Birth]) -> list[Operation]:
    """Find the operations of a run, in time order.

    Parameters
    ----------
    run
        Of aligned clocks.
    marks, births
        From `marks_of` and `births_of`.

    Returns
    -------
    list of Operation
        Workers that are spawned before any other worked belong to the run's beginning, and workers that end after the
        last work to its end. O(edges).

    Raises
    ------
    UnsupportedPlanError
        If there is none.
    """
    begin, end = _worked(run, {birth.by_worker for birth in births})
    later_births = [birth for birth in births if birth.spawned_ns > begin]
    exits = [exit_ for exit_ in _exits(run) if begin < exit_.t_ns < end]
    later = [mark for mark in marks if mark.start_ns > begin]
    processes = dict(run.scan("workers").select("worker", "process").collect().iter_rows())
    found_operations = [_joined(group, later, since_ns) for group, since_ns in _grouped(later_births, processes)]
    found_operations += [_leaving(group, later, since_ns) for group, since_ns in _grouped(exits, processes)]
    found_operations += _activated(found_operations, later)
    if not found_operations:
        message = f"{run.info.path} has no rescaling: while it works no worker is spawned, activated or ends."
        raise UnsupportedPlanError(message, "`docs/rescaling.md` says what a trace must carry.")
    # The worker that replaces one that has left is asked for in the same instant.
    found_operations.sort(key=lambda operation: (operation.request_ns, operation.birth_ns, not operation.exits))
    worked = _first_work(run, {worker for operation in found_operations for worker in operation.new})
    return [_completed(operation, following, later, worked) for operation, following in _with_next(found_operations)]


def _worked(run: Run, spawners: set[int]) -> tuple[int, int]:
    """Return when workers that spawn no others began to process something, and when they were done."""
    work = run.scan("edges").filter(pl.col("type") == str(ActivityType.PROCESSING))
    bounds = work.select(worker_of("dst").is_in(sorted(spawners)).alias("spawner"), "start_ns", end_ns=END)
    by_role = bounds.group_by("spawner").agg(pl.col("start_ns").min(), pl.col("end_ns").max()).sort("spawner").collect()
    return (by_role["start_ns"][0], by_role["end_ns"][0]) if by_role.height else (run.end_ns, run.end_ns)


def births_of(run: Run) -> list[Birth]:
    """Return all workers that others spawned.

    Parameters
    ----------
    run
        A committed run.

    Returns
    -------
    list of Birth
        In time order. O(edges).
    """
    rows = (
        run.scan("edges")
        .filter(pl.col("type") == SPAWN)
        .select(worker_of("dst").alias("worker"), worker_of("src").alias("by"), "start_ns", END.alias("end_ns"))
        .collect()
    )
    return sorted((Birth(*row) for row in rows.iter_rows()), key=lambda birth: (birth.spawned_ns, birth.worker))


def most_on_a_host(run: Run) -> int:
    """Return how many workers lived on one host at once, at most.

    Parameters
    ----------
    run
        A committed run.

    Returns
    -------
    int
        Workers whose host nobody knows count as those of one. O(edges).
    """
    host = dict(run.scan("workers").select("worker", "host").collect().iter_rows())
    begins = dict.fromkeys(host, -1) | {birth.worker: birth.first_ns for birth in births_of(run)}
    changes = [(t_ns, 1, host.get(worker)) for worker, t_ns in begins.items()]
    # Who ends in an instant makes room for who begins in it.
    changes += [(exit_.t_ns, -1, host.get(exit_.worker)) for exit_ in _exits(run)]
    alive, most = Counter[str | None](), 0
    for _, change, place in sorted(changes, key=lambda item: item[:2]):
        alive[place] += change
        most = max(most, alive[place])
    return most


def _exits(run: Run) -> list[Exit]:
    exit_rows = (
        run.scan("vertices").filter(pl.col("kind") == str(EventKind.EXIT)).select("id", "worker", "t_ns").collect()
    )
    if exit_rows.is_empty():
        return []
    local = pl.col("type").is_in([str(kind) for kind in LOCAL_TYPES])
    before = (
        run.scan("edges")
        .filter(local, pl.col("dst").is_in(exit_rows["id"].implode()))
        .select(
            id="dst",
            working=pl.col("activation").is_not_null() & ~pl.col("type").is_in(_RESTS) & (pl.col("duration_ns") > 0),
        )
    )
    rows = exit_rows.lazy().join(before, on="id", how="left").collect()
    exits = (Exit(row["worker"], row["t_ns"], bool(row["working"])) for row in rows.to_dicts())
    return sorted(exits, key=lambda exit_: (exit_.t_ns, exit_.worker))


def _grouped(items: Sequence[Item], processes: Mapping[int, int]) -> Iterator[tuple[list[Item], int]]:
    """Put together what is of one process that comes or goes whole, or close in time; each with the instant before."""
    moved = {item.worker for item in items}
    staying = {process for worker, process in processes.items() if worker not in moved}
    groups: list[list[Item]] = []
    for item in items:
        last, process = groups[-1][-1] if groups else None, processes.get(item.worker)
        is_close = last is not None and _instant(item) - _instant(last) <= TOGETHER_NS
        is_of_process = last is not None and processes.get(last.worker) == process and process not in staying
        if is_close or is_of_process:
            groups[-1].append(item)
        else:
            groups.append([item])
    yield from zip(groups, [-1, *(_instant(group[-1]) for group in groups)], strict=False)


def _instant(item: Birth | Exit) -> int:
    return item.spawned_ns if isinstance(item, Birth) else item.t_ns


def _asked_ns(marks: Iterable[Mark], name: str, since_ns: int, until_ns: int, workers: set[int] | None = None) -> int:
    """Return when something was asked for the last time between two instants; the later one where it never was."""
    asked_ns = (
        mark.start_ns
        for mark in marks
        if mark.name == name and since_ns < mark.start_ns <= until_ns and (workers is None or mark.worker in workers)
    )
    return max(asked_ns, default=until_ns)


def _joined(births: Sequence[Birth], marks: Sequence[Mark], since_ns: int) -> Operation:
    first = births[0].spawned_ns
    new_workers = {birth.worker for birth in births}
    steps = [mark.end_ns for mark in marks if mark.side == "client" and mark.worker in new_workers]
    ready_ns = max(steps, default=-1)
    return Operation(
        kind=JOIN,
        request_ns=_asked_ns(marks, "request", since_ns, first),
        birth_ns=first,
        ready_ns=ready_ns,
        births=tuple(births),
    )


def _leaving(exits: Sequence[Exit], marks: Sequence[Mark], since_ns: int) -> Operation:
    said_lost = {mark.worker for mark in marks if mark.name == "lost"}
    kind = LOSS if any(exit_.working or exit_.worker in said_lost for exit_ in exits) else LEAVE
    first, last = exits[0].t_ns, exits[-1].t_ns
    asked_ns = first if kind == LOSS else _asked_ns(marks, "drain", since_ns, first, {exit_.worker for exit_ in exits})
    return Operation(kind=kind, request_ns=asked_ns, birth_ns=first, ready_ns=last, exits=tuple(exits))


def _activated(operations: Sequence[Operation], marks: Sequence[Mark]) -> list[Operation]:
    """Return the activations that belong to no birth: workers that were there all the time get work."""
    groups: list[list[Mark]] = []
    for mark in marks:
        if mark.name != "activate" or any(
            operation.request_ns <= mark.start_ns <= operation.ready_ns for operation in operations
        ):
            continue
        if groups and mark.start_ns - groups[-1][-1].start_ns <= TOGETHER_NS:
            groups[-1].append(mark)
        else:
            groups.append([mark])
    before = [-1, *(group[-1].start_ns for group in groups)]
    return [
        Operation(
            kind=ACTIVATE,
            request_ns=_asked_ns(marks, "request", since_ns, group[0].start_ns),
            birth_ns=group[0].start_ns,
            ready_ns=max(mark.end_ns for mark in group),
        )
        for group, since_ns in zip(groups, before, strict=False)
    ]


def _with_next(operations: Sequence[Operation]) -> Iterable[tuple[Operation, Operation | None]]:
    return zip(operations, [*operations[1:], None], strict=True)


def _completed(
    operation: Operation, following: Operation | None, marks: Sequence[Mark], worked: Mapping[int, int]
) -> Operation:
    """Add the steps, the first work, and when it was ready where no client step says that."""
    # Steps after a later request belong to that request, even if it makes no operation.
    later_requests = [mark.start_ns for mark in marks if mark.name == "request" and mark.start_ns > operation.birth_ns]
    until_ns = min([*later_requests, *([] if following is None else [following.request_ns])], default=None)
    steps = tuple(
        mark
        for mark in marks
        if mark.is_step and mark.start_ns >= operation.request_ns and (until_ns is None or mark.start_ns < until_ns)
    )
    first_work = {worker: worked[worker] for worker in sorted(operation.new) if worker in worked}
    ready_ns = operation.ready_ns
    if operation.kind == ACTIVATE:
        ready_ns = max([ready_ns, *(mark.end_ns for mark in steps)])
    elif ready_ns < 0:
        ready_ns = min(first_work.values(), default=max(birth.first_ns for birth in operation.births))
    return replace(operation, marks=steps, worked_ns=first_work, ready_ns=ready_ns)


def _first_work(run: Run, new_workers: set[int]) -> dict[int, int]:
    """Return, per new worker, when it first read data of another, or began to process something."""
    if not new_workers:
        return {}
    edges = run.scan("edges").with_columns(worker=worker_of("dst")).filter(pl.col("worker").is_in(sorted(new_workers)))
    data = edges.filter(pl.col("type") == str(ActivityType.DATA_MESSAGE), pl.col("records").fill_null(1) > 0)
    reads = (
        data.select("worker", "channel", id="read")
        .join(run.scan("vertices").select("id", "t_ns"), on="id")
        .join(run.channels.lazy().select("channel", "type"), on="channel", how="left")
        .filter(~pl.col("type").fill_null("").str.starts_with(PREFIX))
        .select("worker", "t_ns")
    )
    work = edges.filter(pl.col("type") == str(ActivityType.PROCESSING)).select("worker", t_ns="start_ns")
    return dict(pl.concat([reads, work]).group_by("worker").agg(pl.col("t_ns").min()).collect().iter_rows())
