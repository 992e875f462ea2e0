"""What the threads of a rank did, and what they waited for on its devices (`docs/torch.md`)."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pag_graph.kernels.compiling import read_only
from pag_graph.kernels.nesting import depths, fit, nest
from pag_graph.model.enums import ActivityType
from pag_graph.sources.kineto import operators as classes
from pag_graph.sources.kineto.host_collectives import ON_HOST, write_host_collectives
from pag_graph.sources.kineto.rank import STEP, event_source
from pag_graph.sources.kineto.rank_log import ANNOTATION, CALL, COPY, FILL, OP, PYTHON, SLICE, SYNC
from pag_graph.sources.kineto.spans import AUTOGRAD, FLOW, SYNCHRONISATION, type_code

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from pag_graph.sources.kineto.collectives import Joined
    from pag_graph.sources.kineto.operators import Operators
    from pag_graph.sources.kineto.rank import Activity, Rank
    from pag_graph.sources.kineto.spans import Spans

    I64 = NDArray[np.int64]

__all__ = ["Intervals", "ThreadFindings", "write_flows", "write_threads"]

LAUNCHES: Final = re.compile(r"^(cuda|cu|hip)\w*(Launch|Memcpy|Memset)")
"""Calls that hand work to a device."""
SYNCHRONISES: Final = re.compile(r"^(cuda|cu|hip)(Device|Ctx|Stream|Event|StreamLegacy)Synchronize")
"""Calls that wait for a device."""
LOADER: Final = re.compile(r"^enumerate\(DataLoader\)#_(Multi|Single)Process")
"""What PyTorch calls getting the next batch."""
_BACKWARD: Final = re.compile(r"^(autograd::engine::evaluate_function|torch::autograd::)|Backward\d*$")
"""What autograd runs: its engine says so since 2022, before that the names of its functions do."""
_ONE_END: Final = "flows with one end"
_BACKWARDS: Final = "flows that end before they begin"
_ONE_THREAD: Final = "flows within a thread"
_ENGINE: Final = "run_backward"
"""In the name of the frame in which Python calls autograd's engine."""
_LATE_NS: Final = 2_000
"""By so much may a device's clock say that an activity ended after the call that waited for it."""


@dataclass(slots=True)
class ThreadFindings:
    """What was odd."""

    before_kernel: int = 0
    """Synchronisations that returned before what they wait for had ended."""
    cut: int = 0
    """Activities that another one of their thread cuts across."""
    inferred_syncs: int = 0
    """Synchronisations without a record of what they waited for."""
    instants: int = 0
    """Activities that take no time, which become no rows."""


@dataclass(slots=True)
class Intervals:
    """What a rank's threads did, each activity inside another one or beside it, by thread and begin.

    One element per activity: its row in the log, its worker, begin and end in nanoseconds, and the place of the
    activity around it, -1 for none.
    """

    row: I64
    worker: I64
    begin: I64
    end: I64
    parent: I64


def write_threads(
    rank: Rank,
    spans: Spans,
    operators: Operators,
    joined: Mapping[int, Joined],
    *,
    tolerance_ns: int,
    step_pattern: re.Pattern[str] | None = None,
) -> ThreadFindings:
    """Write what the threads of a rank did.

    Parameters
    ----------
    rank
        With its activities and calls.
    spans, operators
        Where to write it.
    joined
        Collectives that were joined with those of other ranks, by row.
    tolerance_ns
        Rounding of the rank's clock.
    step_pattern
        Names of annotations that are steps, besides the profiler's own: no activities.

    Returns
    -------
    ThreadFindings
        O(n log n).
    """
    odd = ThreadFindings()
    inside = _intervals(rank, tolerance_ns, odd, step_pattern)
    log = rank.log
    kind, name = log.kind[inside.row], log.name[inside.row]
    types = np.full(len(kind), -1, np.int64)
    numbers = np.full(len(kind), -1, np.int64)
    # By worker and time: numbers of operators must not depend on the order of the file.
    pairs, firsts = np.unique(kind.astype(np.int64) << 40 | name, return_index=True)
    for pair in pairs[np.argsort(firsts)].tolist():
        of_pair = (kind == pair >> 40) & (name == pair & ((1 << 40) - 1))
        activity, operator_class = _meaning(pair >> 40, log.names[pair & ((1 << 40) - 1)])
        types[of_pair] = type_code(activity)
        numbers[of_pair] = operators.of(operator_class, log.names[pair & ((1 << 40) - 1)])
    is_written = np.zeros(len(kind), np.bool_)
    for place in _blocking(rank, inside):
        is_written[place] = _write_sync(rank, spans, odd, inside, place, int(numbers[place]))
    for place in np.flatnonzero(np.isin(inside.row, list(joined))).tolist():
        of_place = (int(column[place]) for column in (inside.worker, inside.begin, inside.end))
        joined[int(inside.row[place])].write(spans, operators, *of_place)
        is_written[place] = True
    unwritten = ~is_written
    columns = (inside.worker, inside.begin, inside.end, types, numbers)
    spans.spans(*(column[unwritten] for column in columns))
    _write_background(rank, spans, operators, inside)
    _write_backward(rank, spans, operators, inside)
    write_host_collectives(rank, spans, inside)
    return odd


def write_flows(rank: Rank, spans: Spans) -> Counter[str]:
    """Write the flows of a trace that is none of Kineto's as messages between threads.

    Parameters
    ----------
    rank
        Whose log has the flows.
    spans
        Where to write a message for each two events of a flow that follow each other on different threads.

    Returns
    -------
    Counter
        How many flow events are part of no message, by reason: begin or end is absent, or its thread does nothing; the
        end comes before the begin, and both are counted; or begin and end are of one thread, and the end is counted.
    """
    lost: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    open_flows: dict[str, tuple[int, int, bool]] = {}
    for phase, flow, thread, t in sorted(rank.log.flows, key=lambda flow_event: (flow_event[3], flow_event[0] != "s")):
        worker = rank.thread_workers.get(thread, -1)
        before = open_flows.pop(flow, None) if phase == "s" or worker >= 0 else None
        if phase == "s" or before is None:
            # A begin that comes instead of the end that was awaited; or an event without its other end, or thread.
            lost[_ONE_END] += before is not None and not before[2]
            if phase == "f" and worker >= 0:
                ends[flow] += 1
            else:
                lost[_ONE_END] += phase != "s" or worker < 0
        elif before[0] == worker:
            lost[_ONE_THREAD] += 1
        else:
            spans.message(FLOW, before[0], before[1], worker, t)
        if phase != "f" and worker >= 0:
            open_flows[flow] = (worker, t, phase == "t" and before is not None)
    unread = {flow for flow, (*_, is_read) in open_flows.items() if not is_read}
    # Each begins after all ends of its name that found no begin: one of these would have read it otherwise.
    lost[_BACKWARDS] = 2 * len(unread & ends.keys())
    lost[_ONE_END] += len(unread) + ends.total() - lost[_BACKWARDS]
    return +lost


def _meaning(kind: int, name: str) -> tuple[ActivityType, int]:
    """Return the type and the class of an event of a thread."""
    if loader := LOADER.match(name):
        return (ActivityType.INPUT_WAIT if loader[1] == "Multi" else ActivityType.IO), classes.LOADING
    if ON_HOST.match(name):
        return ActivityType.IO, classes.COLLECTIVE
    if kind == CALL:
        return (ActivityType.SCHEDULING if LAUNCHES.match(name) else ActivityType.BUSY), classes.CALL
    if kind in (OP, SLICE):
        return ActivityType.PROCESSING, classes.OP
    return ActivityType.BUSY, classes.PYTHON


def _intervals(rank: Rank, tolerance_ns: int, odd: ThreadFindings, steps: re.Pattern[str] | None) -> Intervals:
    log = rank.log
    rows = log.rows_of(OP, CALL, PYTHON, ANNOTATION, SLICE)
    is_step = np.array([bool(STEP.match(name) or (steps and steps.search(name))) for name in log.names], np.bool_)
    stepping = is_step[log.name[rows]] & np.isin(log.kind[rows], [ANNOTATION, OP])
    rows = rows[~stepping]
    takes_time = log.t[rows] < log.end[rows]
    odd.instants += int((~takes_time).sum())
    rows = rows[takes_time]
    worker = np.full(len(log.threads), -1, np.int64)
    for thread, number in rank.thread_workers.items():
        worker[thread] = number
    for fitting in (True, False):
        rows = rows[np.lexsort((rows, -log.end[rows], log.t[rows], worker[log.thread[rows]]))]
        columns = (worker[log.thread[rows]], log.t[rows], log.end[rows])
        if fitting:
            # What becomes shorter may no longer be the outer one of two that begin together.
            log.end[rows] = fit(*columns, tolerance_ns)
    parent, cut_ends, cut_by = nest(*read_only(*columns))
    odd.cut += int((log.end[rows] - cut_ends > tolerance_ns)[cut_by >= 0].sum())
    return Intervals(rows, columns[0], columns[1], cut_ends, parent)


def _blocking(rank: Rank, inside: Intervals) -> list[int]:
    """Return places of calls that may wait for a device."""
    log = rank.log
    waits = np.array([bool(SYNCHRONISES.match(name)) for name in log.names], np.bool_)
    calls = log.kind[inside.row] == CALL
    places = np.flatnonzero(calls & waits[log.name[inside.row]]).tolist()
    copies = {
        call
        for call, activities in rank.launched.items()
        if any(activity.kind in (COPY, FILL) and activity.end <= log.end[call] for activity in activities)
    }
    return [*places, *np.flatnonzero(np.isin(inside.row, list(copies))).tolist()]


def _write_sync(rank: Rank, spans: Spans, odd: ThreadFindings, inside: Intervals, place: int, operator: int) -> bool:
    """Write how a call waited for a device; False if it did not."""
    row, begin, end = int(inside.row[place]), int(inside.begin[place]), int(inside.end[place])
    waited, inferred = _waited_for(rank, row, begin, end)
    if waited is None or waited.end <= begin:
        return False
    if waited.end > end + _LATE_NS:
        odd.before_kernel += 1
        return False
    odd.inferred_syncs += inferred
    rank.sync_waits.append((int(rank.log.thread[row]), begin, min(waited.end, end)))
    until = min(waited.end, end)
    worker = int(inside.worker[place])
    spans.span(worker, begin, until, ActivityType.WAITING, operator, inferred=inferred)
    spans.span(worker, until, end, ActivityType.WAKE_UP, operator, inferred=inferred)
    spans.message(SYNCHRONISATION, waited.stream.worker, until, worker, until)
    return True


def _waited_for(rank: Rank, row: int, begin: int, end: int) -> tuple[Activity | None, bool]:
    """Return the activity for whose end a call waited, and whether that is inferred."""
    log = rank.log
    if row in rank.launched:
        return max(rank.launched[row], key=lambda activity: activity.end), False
    record = _record_of(rank, row)
    if record is not None:
        kind, device, stream = log.names[log.name[record]], int(log.device[record]), int(log.stream[record])
        if kind == "Event Sync":
            source, inferred = event_source(rank, record)
            if source is not None:
                return source, inferred
        elif kind == "Stream Sync" and (device, stream) in rank.of_stream:
            return rank.of_stream[device, stream].latest_before(begin), False
        elif kind == "Context Sync" and device in rank.of_device:
            return rank.of_device[device].latest_before(begin), False
    thread = int(log.thread[row])
    if thread not in rank.of_thread:
        return None, False
    # Of what this thread called, what ended last while it waited.
    ended_activities = [
        launched
        for launched in rank.of_thread[thread].between(begin - _LOOK_BACK_NS, begin)
        if begin < launched.end <= end
    ]
    return max(ended_activities, key=lambda activity: activity.end, default=None), True


_LOOK_BACK_NS: Final = 10_000_000_000


def _record_of(rank: Rank, row: int) -> int | None:
    records = _records(rank)
    return records.get(int(rank.log.correlation[row]))


def _records(rank: Rank) -> dict[int, int]:
    if rank.records is None:
        log = rank.log
        rank.records = {
            int(log.correlation[row]): row
            for row in log.rows_of(SYNC).tolist()
            if log.correlation[row] >= 0 and log.names[log.name[row]] != "Stream Wait Event"
        }
    return rank.records


def _write_background(rank: Rank, spans: Spans, operators: Operators, inside: Intervals) -> None:
    """Write what the main thread did outside of all its activities: it ran the program."""
    worker = rank.thread_workers.get(rank.main)
    of_main = inside.worker == worker
    ends = [(step_begin, step_end) for _, step_begin, step_end in rank.steps]
    if of_main.any():
        ends.append((int(inside.begin[of_main].min()), int(inside.end[of_main].max())))
    if worker is None or not ends:
        return
    begin, end = min(begin for begin, _ in ends), max(end for _, end in ends)
    spans.span(worker, begin, end, ActivityType.BUSY, operators.of(classes.PYTHON, "Python"), inferred=True)


def _write_backward(rank: Rank, spans: Spans, operators: Operators, inside: Intervals) -> None:
    """Write how the main thread waited for passes of autograd on other threads, where nothing else explains them."""
    main = rank.thread_workers.get(rank.main)
    if main is None:
        return
    top = inside.parent < 0
    of_main = inside.worker == main
    # Who calls the engine runs the functions of its own device meanwhile: they are part of the pass.
    functions = of_main & _is_backward(rank.log.names)[rank.log.name[inside.row]]
    _, within = depths(inside.parent, functions)
    begins = np.sort(inside.begin[of_main & ~functions & ~within])
    places = np.flatnonzero(functions & ~within)
    own_work = list(zip(inside.begin[places].tolist(), inside.end[places].tolist(), strict=True))
    passes: list[tuple[int, int, int]] = []
    for worker in rank.thread_workers.values():
        if worker != main:
            passes += _passes(rank, inside, np.flatnonzero(top & (inside.worker == worker)), begins)
    rested: dict[int, int] = {}
    number = operators.of(classes.PYTHON, "backward pass")
    for together, stated in _waited_passes(rank, inside, passes):
        begin, _, first_worker = min(together)
        end, last_worker = max((end, worker) for _, end, worker in together)
        spans.message(AUTOGRAD, main, begin, first_worker, begin)
        for wait_begin, wait_end in _between(begin, end, own_work):
            spans.span(main, wait_begin, wait_end, ActivityType.WAITING, number, inferred=not stated)
            spans.message(AUTOGRAD, last_worker, wait_end, main, wait_end)
        before = inside.end[top & (inside.worker == first_worker) & (inside.end <= begin)]
        since = max(int(before.max()) if len(before) else rank.origin, rested.get(first_worker, rank.origin))
        spans.span(first_worker, since, begin, ActivityType.WAITING, inferred=True)
        for pass_begin, pass_end, worker in together:
            spans.span(worker, pass_begin, pass_end, ActivityType.BUSY, number, inferred=True)
            rested[worker] = pass_end


def _is_backward(names: Sequence[str]) -> NDArray[np.bool_]:
    """Say which names are those of what autograd runs."""
    return np.array([bool(_BACKWARD.search(name)) for name in names], np.bool_)


def _between(begin: int, end: int, work: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the stretches of some time that lie outside of work, which is by time.

    Examples
    --------
    >>> _between(2, 20, [(0, 1), (5, 8), (12, 20), (30, 31)])
    [(2, 5), (8, 12)]
    """
    stretches, free = [], begin
    for work_begin, work_end in work[max(bisect_left(work, (begin, 0)) - 1, 0) :]:
        if work_begin >= end:
            break
        if work_begin > free:
            stretches.append((free, work_begin))
        free = max(free, min(work_end, end))
    return [*stretches, (free, end)] if free < end else stretches


def _waited_passes(
    rank: Rank, inside: Intervals, passes: list[tuple[int, int, int]]
) -> list[tuple[list[tuple[int, int, int]], bool]]:
    """Return the passes that the main thread waited for together, and whether a frame of Python states the wait.

    Passes on several threads at one time say nothing of who was waited for, unless all lie in a call of the engine:
    that returns when the last one has ended.
    """
    log = rank.log
    engine = np.array([_ENGINE in name for name in log.names], np.bool_)
    calls = (inside.worker == rank.thread_workers[rank.main]) & (log.kind[inside.row] == PYTHON)
    places = np.flatnonzero(calls & engine[log.name[inside.row]])
    begins, ends = inside.begin[places], inside.end[places]
    framed: dict[int, list[tuple[int, int, int]]] = {}
    alone = []
    for backward in sorted(passes):
        frame = int(np.searchsorted(begins, backward[0], side="right")) - 1
        if frame >= 0 and backward[1] <= ends[frame]:
            framed.setdefault(frame, []).append(backward)
        else:
            alone.append(backward)
    until = -1
    waited = [(together, True) for together in framed.values()]
    for place, backward in enumerate(alone):
        if until <= backward[0] and (place + 1 == len(alone) or backward[1] <= alone[place + 1][0]):
            waited.append(([backward], False))
        until = max(until, backward[1])
    return sorted(waited)


def _passes(rank: Rank, inside: Intervals, places: I64, begins: I64) -> list[tuple[int, int, int]]:
    """Return clean passes of one thread: begin, end, worker."""
    log = rank.log
    passes: list[tuple[int, int, int]] = []
    group: list[int] = []

    def close() -> None:
        if not group:
            return
        begin, end = int(inside.begin[group[0]]), int(inside.end[group[-1]])
        names = (log.names[log.name[inside.row[place]]] for place in group)
        started = np.searchsorted(begins, end) - np.searchsorted(begins, begin, side="right")
        if not started and any(_BACKWARD.search(name) for name in names):
            passes.append((begin, end, int(inside.worker[group[0]])))

    for place in places.tolist():
        if group:
            low, high = inside.end[group[-1]], inside.begin[place]
            if np.searchsorted(begins, high) > np.searchsorted(begins, low):
                close()
                group = []
        group.append(place)
    close()
    return passes
