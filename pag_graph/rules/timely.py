"""Rule set `timely`: wait-state analysis for programs that run when they are activated and park when they are not.

Definitions: CPA (Sager 2016) ch. 5, translated to activations and parks; `docs/model.md`, section "Waits".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from pag_graph.kernels import NEVER, assembly, waits
from pag_graph.kernels import activations as act
from pag_graph.model.enums import EdgeFlags, Severity
from pag_graph.rules.polling import Polled, polled_intervals
from pag_graph.rules.protocol import Remark
from pag_graph.rules.rows import LOCAL_MESSAGE, MERGED, POLLING, PUSHED, Judged, Survey, arrivals, sent_in_process

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from pag_graph.rules.protocol import Before, Life, Logged, Setting, Wanted
    from pag_graph.rules.rows import Graph, Open, WorkerRows

    I8 = NDArray[np.int8]
    I32 = NDArray[np.int32]
    I64 = NDArray[np.int64]

columns: Final[tuple[str, ...]] = ("activity", "arrived_ns")
aligned: Final = True
epochs_are_islands: Final = False
states_activities: Final = False
reads_prepared: Final = False
reads_idleness: Final = True
no_place_to_cut: Final = "no wait begins there, and no epoch ends on a worker that never waits"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelySurvey(Survey):
    """What the rows of one worker say by themselves."""

    innermost: I32
    """As from `pag_graph.kernels.activations.activations`, per row; so are the three that follow."""
    role: I8
    """At a `start`: what the activation did."""
    consumed: I64
    """At a `start`: records that it received."""
    trouble: I8
    """What is wrong with a start or stop."""
    parks: I64
    """As from `pag_graph.kernels.activations.idle_intervals`, per candidate interval; so are the two that follow."""
    unparks: I64
    """Row of its last `unpark`."""
    last_parks: I64
    """Row of its last `park`."""
    polled: Polled | None = None
    """What is inferred of idleness; None where the log says it, or messages are not matched yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelyJudged(Judged):
    """What the rules say of the rows of one worker."""

    innermost: I32
    """As in `TimelySurvey`, at the level that is shown; so are the two that follow."""
    role: I8
    """At a `start`: what the activation did."""
    consumed: I64
    """At a `start`: records that it received."""
    verdict: I8
    """Per candidate interval: `WAITING` to `UNKNOWN` of `pag_graph.kernels.waits`."""
    interval_arrival: I64
    """Per candidate interval: when the message arrived that ended it (ns)."""


def safe_cut(parks: Callable[[], bool]) -> Wanted:
    """Say which rows of a worker may begin a slice (`WaitRules.safe_cut`).

    A worker is cut where a candidate idle interval begins (a park with its unpark right after it, that continues no
    other park): judging an interval needs the rows up to the next one and no further. One that never parks is cut after
    the end of an epoch.

    Parameters
    ----------
    parks
        Tells whether the worker ever parks.

    Returns
    -------
    Wanted
        Asked with kernel codes of kinds.
    """
    return _begins_interval if parks() else _follows_epoch


def _begins_interval(before: I8, kind: I8, after: I8) -> NDArray[np.bool_]:
    # A park that was cut off is no interval, and what follows it has its type from it: neither is a place to cut.
    begins = np.equal(kind, act.PARK) & np.equal(after, act.UNPARK)
    return begins & np.not_equal(before, act.UNPARK) & np.not_equal(before, act.PARK)


def _follows_epoch(before: I8, _kind: I8, _after: I8) -> NDArray[np.bool_]:
    return np.equal(before, act.EPOCH_END)


def survey(rows: WorkerRows) -> TimelySurvey:
    """Say what the rows of one worker tell by themselves.

    Messages between operators of one worker are no edges (they only count as buffered), pushed progress only says why
    the next activation runs, and of parks that follow each other directly only the outermost ends are kept. Slices are
    joined where activations are open, so there are no marks to carry.

    Parameters
    ----------
    rows
        Rows of one worker.

    Returns
    -------
    TimelySurvey
        O(rows) in time and memory.
    """
    innermost, role, consumed, trouble = act.activations(rows.kind, rows.operator, rows.records, rows.gaps)
    intervals = act.idle_intervals(rows.kind, rows.gaps)
    parks, unparks, last_parks = intervals
    open_ = np.flatnonzero(trouble == act.OPEN)
    dropped = act.leave_out(rows.kind, rows.peer, rows.worker, intervals, act.Reasons(LOCAL_MESSAGE, PUSHED, MERGED))
    # What follows a park that was cut off has its type from it, however many rows that are no vertices lie between.
    kept_reversed = dropped[::-1] == 0
    after_park = bool(kept_reversed.any() and rows.kind[::-1][kept_reversed.argmax()] == act.PARK)
    # So has what follows missing rows.
    after_gap = bool(kept_reversed.any() and len(rows.gaps) and rows.gaps[-1] >= rows.rows - kept_reversed.argmax())
    # What is missing behind the rows may have explained the last interval.
    gap_after_interval = rows.gap_follows and len(parks) > 0
    return TimelySurvey(
        dropped=dropped,
        depth=len(open_) + after_park + after_gap + gap_after_interval,
        idle=int(rows.epoch[unparks[-1]]) if len(unparks) else None,
        active=int(rows.epoch[open_[0]]) if len(open_) else None,
        marks=(),
        innermost=innermost,
        role=role,
        consumed=consumed,
        trouble=trouble,
        parks=parks,
        unparks=unparks,
        last_parks=last_parks,
    )


def settle(rows: WorkerRows, surveyed: TimelySurvey, setting: Setting) -> TimelySurvey:
    """Put stretches without anything to do in the place of parks, where a log has none (`WaitRules.settle`).

    What a worker did in them was polling, and becomes no vertex.

    Parameters
    ----------
    rows, surveyed, setting
        As for `WaitRules.settle`.

    Returns
    -------
    TimelySurvey
        The same one where the log says when the worker had nothing to do. O(rows log rows) where it does not.
    """
    if not setting.idle_inferred:
        return surveyed
    pause_ns = setting.parameters.busy_below_ns
    polled = polled_intervals(rows, surveyed.role, surveyed.innermost, setting.processes, pause_ns)
    parks, unparks = polled.begin, polled.end
    no_rests = np.empty(0, np.int64)
    intervals = act.Intervals(parks, unparks, parks)
    dropped = act.leave_out(rows.kind, rows.peer, rows.worker, intervals, act.Reasons(LOCAL_MESSAGE, PUSHED, POLLING))
    # An interval begins and ends at vertices, whatever they are of.
    dropped[parks[parks >= 0]] = dropped[unparks] = 0
    idle = int(rows.epoch[unparks[-1]]) if len(unparks) else None
    return replace(
        surveyed,
        dropped=dropped,
        idle=idle,
        parks=parks,
        unparks=unparks,
        last_parks=parks,
        polled=polled,
        rests=no_rests,
    )


def judge(rows: WorkerRows, surveyed: TimelySurvey, setting: Setting, _before: Sequence[Open] = ()) -> TimelyJudged:
    """Judge activations and idle intervals of one worker (`WaitRules.judge`).

    Parameters
    ----------
    rows, surveyed, setting
        As for `WaitRules.judge`.
    _before
        None is open before the rows.

    Returns
    -------
    TimelyJudged
        O(rows) in time and memory.

    Notes
    -----
    Definitions: CPA 5; `docs/model.md`, "Waits".
    """
    parameters = setting.parameters
    innermost, role, consumed = surveyed.innermost, surveyed.role, surveyed.consumed
    if parameters.level:
        innermost, role, consumed = act.at_level(innermost, role, consumed, parameters.level, rows.gaps)
    arrived, is_arrival_known = arrivals(rows, setting.processes)
    looked = np.full(len(arrived), np.iinfo(np.int64).max)
    if surveyed.polled is not None:
        arrived, looked = surveyed.polled.arrived, surveyed.polled.looked
    verdict, ender, arrival, alternatives = waits.judge_intervals(
        # Which interval work follows depends on what really ran, however coarsely it is shown.
        waits.Rows(rows.t, rows.kind, surveyed.role, rows.timeout, rows.before_t, rows.gaps),
        act.Intervals(surveyed.parks, surveyed.unparks, surveyed.last_parks),
        waits.Reads(rows.reads, arrived, is_arrival_known, looked, rows.peer, rows.channel, rows.message_seq),
        waits.Clocks(rows.worker, setting.processes, setting.uncertainty),
        parameters.busy_below_ns,
    )
    ended = np.flatnonzero(ender >= 0)
    return TimelyJudged(
        trouble=surveyed.trouble,
        # The message arrives before the worker runs: a vertex is inserted before the unpark.
        wait_row=surveyed.unparks[ended],
        wait_pos=2 * (rows.first_order + surveyed.unparks[ended]) - 1,
        ender=ender[ended],
        arrival=arrival[ended],
        alternatives=alternatives[ended],
        innermost=innermost,
        role=role,
        consumed=consumed,
        verdict=verdict,
        interval_arrival=arrival,
    )


def last_wait(rows: WorkerRows, surveyed: TimelySurvey, setting: Setting) -> int | None:
    """Return the position of the vertex that ends the last wait of one worker (`WaitRules.last_wait`).

    Parameters
    ----------
    rows, surveyed, setting
        As for `WaitRules.last_wait`.

    Returns
    -------
    int or None
        -1 if there is no wait; None if a message whose send is not known yet may tell otherwise.
    """
    judged = judge(rows, surveyed, setting)
    last = int(judged.wait_row[-1]) if len(judged.wait_row) else -1
    unknown = rows.reads[rows.send_id < 0]
    if len(unknown):
        # The interval before the last of them is the last one that it can matter to.
        interval = int(np.searchsorted(surveyed.unparks, unknown[-1])) - 1
        if interval >= 0 and surveyed.unparks[interval] >= last:
            return None
    return int(judged.wait_pos[-1]) if last >= 0 else -1


def certain(rows: WorkerRows, surveyed: TimelySurvey, setting: Setting, logged: Logged) -> int:
    """Return how many rows mean what they mean, whatever comes (`WaitRules.certain`): up to the end of some epoch.

    The last idle interval before it is certain if no message can turn up any more that ended it or was buffered, all
    such being logged and read before that row, and if it had an end at all: a message, its limit, or work.

    Parameters
    ----------
    rows, surveyed, setting, logged
        As for `WaitRules.certain`.

    Returns
    -------
    int
        Rows up to the end of some epoch; 0 where idleness is inferred.
    """
    ends = np.flatnonzero((rows.kind == act.EPOCH_END) & (surveyed.innermost < 0) & (rows.t <= logged.all_ns))
    if setting.idle_inferred or not len(ends):
        return 0
    judged = judge(rows, surveyed, setting)
    for cut in (ends[::-1] + 1).tolist():
        interval = int(np.searchsorted(surveyed.unparks, cut)) - 1
        if interval < 0 or _is_certain(rows, surveyed, judged, setting, logged, interval, cut):
            return int(cut)
    return 0


def _is_certain(
    rows: WorkerRows,
    surveyed: TimelySurvey,
    judged: TimelyJudged,
    setting: Setting,
    logged: Logged,
    interval: int,
    cut: int,
) -> bool:
    """Say whether an idle interval was what it was, whatever is read from row `cut` on."""
    park, unpark = int(surveyed.parks[interval]), int(surveyed.unparks[interval])
    end = rows.t[unpark]
    if logged.others_ns <= end or logged.unread_ns <= end:
        return False
    reads_after = np.searchsorted(rows.reads, [unpark, cut])
    sent = rows.sent[reads_after[0] :]
    if (sent[reads_after[1] - reads_after[0] :][sent[reads_after[1] - reads_after[0] :] != NEVER] <= end).any():
        return False
    verdict = judged.verdict[interval]
    if verdict in {waits.WAITING, waits.IDLE}:
        return True
    if verdict == waits.INPUT_WAIT:
        works = (rows.kind[unpark:cut] == act.START) & np.isin(
            surveyed.role[unpark:cut], (act.PROCESSING, act.INFERRED)
        )
        return bool(works.any())
    same_process = sent_in_process(rows, setting.processes)[reads_after[0] : reads_after[1]]
    sent_of_reads = sent[: len(same_process)]
    return bool((same_process & (sent_of_reads != NEVER) & (sent_of_reads < rows.t[park])).any())


def worker_graph(rows: WorkerRows, surveyed: TimelySurvey, judged: TimelyJudged, before: Before, life: Life) -> Graph:
    """Chain the rows of one worker to vertices and local edges (`WaitRules.worker_graph`).

    Parameters
    ----------
    rows, surveyed, judged, before, life
        As for `WaitRules.worker_graph`.

    Returns
    -------
    tuple
        Columns of `pag_graph.kernels.assembly.local_graph`. O(rows).
    """
    graph: Graph = assembly.local_graph(
        assembly.Rows(rows.kind, rows.t, rows.operator, surveyed.dropped, rows.gaps),
        act.Activations(judged.innermost, judged.role, judged.consumed),
        assembly.Judged(surveyed.unparks, judged.verdict, judged.interval_arrival),
        assembly.Stretch(
            rows.first_order,
            before.pos,
            before.t,
            before.segment,
            rows.starts_run,
            rows.ends_run,
            life.born,
            life.exits,
            life.run_end_ns,
        ),
    )
    if surveyed.polled is not None:
        kind, flags = graph[4], graph[8]
        flags[(kind == assembly.WAITING) | (kind == assembly.INPUT_WAIT)] |= np.int8(EdgeFlags.INFERRED)
    return graph


def extra_findings(rows: WorkerRows, surveyed: TimelySurvey, _judged: TimelyJudged) -> list[Remark]:
    """Say which parks and unparks lack each other (`WaitRules.extra_findings`).

    Parameters
    ----------
    rows, surveyed, _judged
        As for `WaitRules.extra_findings`.

    Returns
    -------
    list of Remark
        Two, also where they have no rows.
    """
    paired = surveyed.dropped > 0
    paired[surveyed.parks[surveyed.parks >= 0]] = paired[surveyed.unparks] = True
    return [
        Remark(name, Severity.WARNING, action, np.flatnonzero((rows.kind == kind) & ~paired))
        for name, action, kind in (
            ("park_without_unpark", "the time after it is unknown", act.PARK),
            ("unpark_without_park", "ignored", act.UNPARK),
        )
    ]
