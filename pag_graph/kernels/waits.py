"""What an idle interval was: which message ended it, or why it was no wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pag_graph.kernels import NEVER
from pag_graph.kernels.activations import EPOCH_END, EXIT, I8, I32, I64, INFERRED, PROCESSING, START, Intervals
from pag_graph.kernels.compiling import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Verdicts.
WAITING, BUSY, IDLE, INPUT_WAIT, UNKNOWN = 0, 1, 2, 3, 4


class Rows(NamedTuple):
    """Rows of one worker in log order; one element per row. Times are nanoseconds since the run's origin."""

    t: I64
    """On the common clock."""
    kind: I8
    """Codes of `pag_graph.kernels.activations`."""
    role: I8
    """From `pag_graph.kernels.activations.activations`."""
    timeout: I64
    """Limit of a `park` in nanoseconds, or -1."""
    before_t: int
    """Time of the row before them, at which the first interval may begin: its park is -1 then."""
    gaps: I64
    """Rows right before which others are missing, or the worker had ended, ascending."""


class Reads(NamedTuple):
    """Messages that one worker reads."""

    reads: I32
    """Rows that read a message, ascending."""
    arrived_or_sent: I64
    """Per such row: when the message arrived (common clock), or where that is not known when it was sent; the smallest
    integer where that is not known either."""
    arrival_known: NDArray[np.bool_]
    """Per such row: whether that is when it arrived."""
    looked: I64
    """Per such row: when the worker last looked for it in vain. If that was before an interval began, the message may
    have been there, and there was no wait. The largest integer where parks begin the intervals, as who parks
    has looked."""
    sender: I64
    """Per row of the worker; for those that read a message: its key."""
    channel: I64
    """See `sender`."""
    message_seq: I64
    """See `sender`."""


class Clocks(NamedTuple):
    """How the clock of one worker compares with those of all workers of the run."""

    worker: int
    """Whose clock it is."""
    processes: I64
    """Per worker of the run: its process."""
    uncertainty: I64
    """Per worker of the run: how far its clock may be off from another process' one."""


@kernel
def slop(sender: int, clocks: Clocks) -> int:
    """Return how far the clocks of the worker and of another one may disagree: not at all within a process.

    Parameters
    ----------
    sender
        The other worker.
    clocks
        The worker's clock, and those of others.

    Returns
    -------
    int
        Nanoseconds.

    Examples
    --------
    >>> clocks = Clocks(0, np.array([8, 8, 9]), np.array([30, 40, 50]))
    >>> slop(1, clocks), slop(2, clocks)
    (0, 80)
    """
    if clocks.processes[sender] == clocks.processes[clocks.worker]:
        return 0
    return clocks.uncertainty[sender] + clocks.uncertainty[clocks.worker]  # type: ignore[no-any-return]


@kernel
def _starts_work(kind: I8, role: I8, low: int, high: int, cut: bool) -> bool:
    """Say whether an activation that does work starts in rows `low` to `high` (exclusive).

    Where they are `cut`, by missing rows, the end of an epoch has to follow it.
    """
    while cut and high > low and kind[high] != EPOCH_END:
        high -= 1
    row = low
    while row < high and not (kind[row] == START and role[row] in (PROCESSING, INFERRED)):
        row += 1
    return row < high


@kernel
def judge_intervals(
    rows: Rows, intervals: Intervals, messages: Reads, clocks: Clocks, busy_below_ns: int
) -> tuple[I8, I64, I64, I64]:
    """Judge every candidate idle interval of one worker (`docs/model.md`: ender of an interval).

    Parameters
    ----------
    rows
        The worker's rows.
    intervals
        From `pag_graph.kernels.activations.idle_intervals`.
    messages
        What it reads.
    clocks
        Its clock, and those of others.
    busy_below_ns
        Unexplained intervals shorter than this are `BUSY`, longer ones `UNKNOWN`.

    Returns
    -------
    verdict
        Per interval: `WAITING` to `UNKNOWN`.
    ender
        Per interval: the row that reads the message that ended it, or -1.
    arrival
        Per interval: when that message arrived (ns); 0 where there is none.
    alternatives
        Per interval: how many other messages may have ended it, within the clocks' uncertainty.

    Notes
    -----
    Messages that are read after the interval, before the next one and before rows are missing, are looked at once:
    O(rows). What is missing may have explained the interval, so of one that nothing else does nothing is known; but a
    worker that worked, and ended an epoch before rows are missing, had input.

    A message of which nobody logged the arrival arrives, for all one can tell from the worker's log, when the worker is
    unparked.

    Examples
    --------
    Worker 1 parks at 10, is unparked at 50, and reads what worker 0 of its process sent at 40.

    >>> kind, no_gaps = np.array([6, 7, 3], np.int8), np.empty(0, np.int64)
    >>> rows = Rows(np.array([10, 50, 60]), kind, np.zeros(3, np.int8), np.full(3, -1), 0, no_gaps)
    >>> row, who, number = np.array([2], np.int32), np.array([-1, -1, 0]), np.array([-1, -1, 5])
    >>> reads = Reads(row, np.array([40]), np.array([True]), np.array([40]), who, number, number)
    >>> intervals = Intervals(np.array([0]), np.array([1]), np.array([0]))
    >>> verdict, ender, arrival, _ = judge_intervals(rows, intervals, reads, Clocks(1, *np.zeros((2, 2), np.int64)), 5)
    >>> verdict == WAITING, ender, arrival
    (array([ True]), array([2]), array([40]))
    """
    # One function: helpers for the two loops, inlined or not, and loops of their own over all intervals were slower.
    t, kind, role, timeout, before_t, gaps = rows
    parks, unparks, last_parks = intervals
    reads, arrived_or_sent, arrival_known, looked, sender, channel, message_seq = messages
    worker, count = clocks.worker, parks.shape[0]
    verdict = np.full(count, UNKNOWN, np.int8)
    ender, arrival = np.full(count, -1, np.int64), np.zeros(count, np.int64)
    alternatives, upto, gap = np.zeros(count, np.int64), 0, 0
    for interval in range(count):
        begin = t[parks[interval]] if parks[interval] >= 0 else before_t
        end, last_park = t[unparks[interval]], last_parks[interval]
        last_row = parks[interval + 1] if interval + 1 < count else t.shape[0]
        while gap < gaps.shape[0] and gaps[gap] <= unparks[interval]:
            gap += 1
        ends_there = gap < gaps.shape[0] and gaps[gap] <= last_row
        last_row = gaps[gap] - 1 if ends_there else last_row
        # Rows that are missing may have explained the interval; behind an exit none are.
        cut = ends_there and kind[last_row] != EXIT
        first = upto
        while first < reads.shape[0] and reads[first] < unparks[interval]:
            first += 1
        upto = first
        while upto < reads.shape[0] and reads[upto] <= last_row:
            upto += 1
        buffered, chosen, chosen_key = False, -1, (0, 0, 0, 0, 0, 0)
        for read in range(first, upto):
            row, message_t = reads[read], arrived_or_sent[read]
            if NEVER < message_t < begin and (arrival_known[read] or looked[read] < begin):
                buffered = True
                break
            if message_t == NEVER or sender[row] == worker or message_t > end or message_t > t[row]:
                continue
            # The first that came inside; without one the last that was sent before.
            early, arrived = int(message_t < begin), message_t if arrival_known[read] else end
            key = (early, -message_t if early else message_t, arrived, sender[row], channel[row], message_seq[row])
            if chosen < 0 or key < chosen_key:
                chosen, chosen_key = read, key
        if buffered:
            verdict[interval] = BUSY
        elif chosen >= 0:
            verdict[interval] = WAITING
            ender[interval] = reads[chosen]
            arrival[interval] = arrived_or_sent[chosen] if arrival_known[chosen] else end
            least = 0 if arrival_known[chosen] else slop(sender[reads[chosen]], clocks)
            for alternative in range(first, upto):
                row, message_t = reads[alternative], arrived_or_sent[alternative]
                if alternative == chosen or message_t == NEVER or sender[row] == worker:
                    continue
                if message_t > end or message_t > t[row] or (message_t < begin) != (arrived_or_sent[chosen] < begin):
                    continue
                doubt = 0 if arrival_known[alternative] else slop(sender[row], clocks)
                if abs(message_t - arrived_or_sent[chosen]) <= max(doubt, least):
                    alternatives[interval] += 1
        elif last_park >= 0 and timeout[last_park] >= 0 and end - t[last_park] >= timeout[last_park]:
            verdict[interval] = IDLE
        elif _starts_work(kind, role, unparks[interval], last_row, cut):
            verdict[interval] = INPUT_WAIT
        elif not cut and end - begin < busy_below_ns:
            verdict[interval] = BUSY
    return verdict, ender, arrival, alternatives
